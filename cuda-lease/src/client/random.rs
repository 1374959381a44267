//! Random bytes.

use cuda_core::{Error, Result};

/// Random bytes of the operating system.
///
/// # Errors
/// The operating system gives no random numbers.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let what = "the operating system gives no random numbers";
    getrandom::fill(&mut bytes).map_err(|error| Error::host(what, &error))?;
    Ok(bytes)
}
