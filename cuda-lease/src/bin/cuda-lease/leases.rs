//! Allocates, renews and frees leases.

use std::path::Path;

use command_line::{Failure, stdout};
use cuda_lease::{DetachedLease, LeaseEntry};
use indicatif::HumanBytes;

use crate::{
    connect,
    listing::shown,
    options::{AllocArgs, FreeArgs, RenewArgs},
    out_file,
    saved::{Certificates, Named, SavedLease, token_text},
};

/// The memory of a lease if the command line states none: 256 MiB.
const DEFAULT_VRAM: u64 = 256 << 20;

/// Allocates a detached lease, and prints it or writes it to a file.
pub(crate) fn alloc(args: &AllocArgs) -> Result<(), Failure> {
    let (node, terms) = (&args.node, &args.terms);
    if args.out.is_none() && stdout::is_discarded() {
        return Err(Failure::bad_input(
            "stdout is closed or /dev/null, so the token of the lease would be lost; write the lease to a file with --out",
        ));
    }
    let protected = args.out.as_deref().filter(|_| !args.force);
    protected.map_or(Ok(()), check_is_free)?;
    let file = args.out.as_deref().map(SavedLease::open).transpose()?;
    let client = connect::client(node)?;
    let granted = client.allocate(&connect::request(node, terms, DEFAULT_VRAM)?);
    let granted = granted.map_err(|error| connect::refused(node, terms, error))?;
    let saved = SavedLease {
        node: node.address().to_owned(),
        lease: granted.id,
        token: token_text(&granted.token)?,
        device: granted.device.address.clone(),
        memory: granted.memory,
        expires_in_secs: granted.expires_in.as_secs(),
        certificates: Certificates::of(node),
    };
    let text = if args.json { format!("{}\n", saved.json()) } else { text(args, &saved, &granted) };
    // The request may have waited for minutes, and another program may have written the file meanwhile.
    let kept = protected.map_or(Ok(()), check_is_free).and_then(|()| match file {
        Some(file) => saved.write(file),
        None => stdout::print_secret(&text),
    });
    if let Err(failure) = kept {
        // Without its token the lease could not be used.
        let (lease, freed) = (granted.id, client.free(granted.id, granted.token));
        return Err(match freed {
            Ok(()) => failure,
            Err(error) => {
                let left = format!(
                    "lease {lease} lasts until it expires, because it was not freed: {error}"
                );
                failure.with_advice(left)
            }
        });
    }
    client.close();
    if args.out.is_some() { stdout::print(&text) } else { Ok(()) }
}

/// The lease as text, with its token or the file that has it.
fn text(args: &AllocArgs, saved: &SavedLease, granted: &DetachedLease) -> String {
    let SavedLease { lease, device, memory, expires_in_secs, .. } = saved;
    let (device, name) = (shown(device), shown(&granted.device.name));
    let secret = match &args.out {
        Some(path) => format!("file     {}", path.display()),
        None => format!("token    {}", saved.token),
    };
    let memory = HumanBytes(*memory);
    format!(
        "lease    {lease}\ndevice   {device} ({name})\nmemory   {memory}\nexpires  in {expires_in_secs} s\n{secret}\n"
    )
}

/// Refuses the file of a lease whose time is not over.
fn check_is_free(path: &Path) -> Result<(), Failure> {
    // Reading a pipe could block.
    if path.is_file()
        && let Ok(saved) = SavedLease::read(path)
        && !saved.is_over(path)
    {
        let SavedLease { lease, node, .. } = saved;
        let why = format!(
            "is the file of lease {lease} of {node}, whose token would be lost; free that lease and delete the file, or \
             replace the file with --force"
        );
        return Err(Failure::bad_input(why).at(path.display()));
    }
    Ok(())
}

/// Renews a lease. Replaces the token in its file.
pub(crate) fn renew(args: &RenewArgs) -> Result<(), Failure> {
    let named = Named::required(&args.lease)?;
    let node = named.node(&args.node);
    let Named { lease, token, file } = named;
    // A pipe or stdin cannot be replaced: the new token is printed.
    let file = file.filter(|(path, _)| out_file::is_replaced(path));
    let out = file.as_ref().map(|(path, _)| SavedLease::open(path)).transpose()?;
    let client = connect::client(&node)?;
    let (token, left) = client.renew(lease, token, args.lease_secs)?;
    client.close();
    let (token, secs) = (token_text(&token)?, left.as_secs());
    let lost = |failure: Failure| {
        let place = format!("lease {lease} was renewed, but its new token is lost");
        failure
            .at(place)
            .with_advice("renew it again with the old token, which stays valid for a while")
    };
    let file = match (file, out) {
        (Some((path, saved)), Some(out)) => {
            let saved = SavedLease { token: token.clone(), expires_in_secs: secs, ..saved };
            saved.write(out).map_err(lost)?;
            Some(path)
        }
        _ => None,
    };
    let secret = match &file {
        Some(path) => format!("file     {}", path.display()),
        None => format!("token    {token}"),
    };
    let text = if args.json {
        let renewed =
            serde_json::json!({ "lease": lease, "token": token, "expires_in_secs": secs });
        format!("{renewed:#}\n")
    } else {
        format!("lease    {lease}\nexpires  in {secs} s\n{secret}\n")
    };
    if file.is_some() {
        return stdout::print(&text);
    }
    stdout::print_secret(&text).map_err(lost)
}

/// Ends a lease.
pub(crate) fn free(args: &FreeArgs) -> Result<(), Failure> {
    let (node, lease, token) = match args.id {
        Some(id) => (args.node.clone(), id, None),
        None => {
            let named = Named::required(&args.lease)?;
            (named.node(&args.node), named.lease, Some(named.token))
        }
    };
    let client = connect::client(&node)?;
    // A lease whose time is over is listed for its grace, in which it can be freed too.
    let entries = client.leases()?;
    let is_over =
        |entry: &LeaseEntry| entry.lease == lease && entry.ending && entry.expires_in_ms == 0;
    let had_ended = entries.iter().any(is_over);
    match token {
        Some(token) => client.free(lease, token)?,
        None => client.free_own(lease)?,
    }
    client.close();
    let done = if had_ended { "had ended already" } else { "is freed" };
    stdout::print(&format!("lease {lease} {done}\n"))
}
