//! Allocates, renews and frees leases.

use std::path::Path;

use command_line::{Failure, stdout};
use indicatif::HumanBytes;

use crate::{
    connect,
    options::{AllocArgs, FreeArgs, NodeArgs, RenewArgs},
    saved::{Named, SavedLease, token_text},
};

/// The memory of a lease if the command line states none: 256 MiB.
const DEFAULT_VRAM: u64 = 256 << 20;

/// Allocates a detached lease, and prints it or writes it to a file.
pub(crate) fn alloc(node: &NodeArgs, args: &AllocArgs) -> Result<(), Failure> {
    let client = connect::client(node)?;
    let granted = client.allocate(&connect::request(node, &args.terms, DEFAULT_VRAM)?)?;
    let saved = SavedLease {
        node: node.address().to_owned(),
        lease: granted.id,
        token: token_text(&granted.token)?,
        device: granted.device.address.clone(),
        memory: granted.memory,
        expires_in_secs: granted.expires_in.as_secs(),
    };
    if let Some(path) = &args.out
        && let Err(failure) = saved.write(path)
    {
        // Without its token the lease could not be used or freed.
        client.free(granted.id, granted.token)?;
        return Err(failure);
    }
    client.close();
    if args.json {
        return stdout::print(&format!("{}\n", saved.json()));
    }
    let SavedLease { lease, device, memory, expires_in_secs, .. } = &saved;
    let name = &granted.device.name;
    let secret = match &args.out {
        Some(path) => format!("file     {}", path.display()),
        None => format!("token    {}", saved.token),
    };
    let memory = HumanBytes(*memory);
    stdout::print(&format!(
        "lease    {lease}\ndevice   {device} ({name})\nmemory   {memory}\nexpires  in {expires_in_secs} s\n{secret}\n"
    ))
}

/// Renews a lease. Replaces the token in its file.
pub(crate) fn renew(node: &NodeArgs, args: &RenewArgs) -> Result<(), Failure> {
    let named = Named::required(&args.lease)?;
    let client = connect::client(&node.of_lease(named.node()))?;
    let Named { lease, token, file } = named;
    let (token, left) = client.renew(lease, token, args.lease_secs)?;
    client.close();
    let (token, secs) = (token_text(&token)?, left.as_secs());
    let file = match file {
        Some((path, saved)) if path != Path::new("-") => {
            let saved = SavedLease { token: token.clone(), expires_in_secs: secs, ..saved };
            saved.write(&path)?;
            Some(path)
        }
        _ => None,
    };
    if args.json {
        let renewed =
            serde_json::json!({ "lease": lease, "token": token, "expires_in_secs": secs });
        return stdout::print(&format!("{renewed:#}\n"));
    }
    let secret = match file {
        Some(path) => format!("file     {}", path.display()),
        None => format!("token    {token}"),
    };
    stdout::print(&format!("lease    {lease}\nexpires  in {secs} s\n{secret}\n"))
}

/// Ends a lease.
pub(crate) fn free(node: &NodeArgs, args: &FreeArgs) -> Result<(), Failure> {
    let named = Named::required(&args.lease)?;
    let client = connect::client(&node.of_lease(named.node()))?;
    let lease = named.lease;
    client.free(lease, named.token)?;
    client.close();
    stdout::print(&format!("lease {lease} is freed\n"))
}
