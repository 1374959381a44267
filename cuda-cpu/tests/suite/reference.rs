//! What plain loops give, for cases whose result is easily said.

use crate::Verdict;
use crate::case::Case;

/// Runs a case and judges it by its reference.
pub(crate) fn verdict(_case: &Case, _variant: &str) -> Verdict {
    panic!("later")
}
