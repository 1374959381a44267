//! Shows devices and leases, again and again.

use std::{thread, time::Duration};

use command_line::{Failure, stdout};
use console::{Term, truncate_str};
use serde_json::json;

use crate::{
    connect,
    listing::Listing,
    options::{NodeArgs, TopArgs},
};

/// Prints devices and leases until the user interrupts it or `--count` is reached. On a terminal, an update replaces
/// the previous one.
pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let node = &args.node;
    let terminal = Some(Term::stdout()).filter(|terminal| terminal.is_term() && !args.json);
    let count = args.count.unwrap_or(if terminal.is_some() { u64::MAX } else { 1 });
    let client = connect::client(node)?;
    let mut shown = 0;
    for update in 0..count {
        if update > 0 {
            thread::sleep(Duration::from_secs(args.interval));
        }
        let listing = Listing::of(&client)?;
        if args.json {
            let (devices, leases) = (listing.devices_json(), listing.leases_json());
            stdout::print(&format!("{}\n", json!({ "devices": devices, "leases": leases })))?;
            continue;
        }
        let lines = lines(node, &listing);
        match &terminal {
            Some(terminal) => shown = redraw(terminal, shown, &lines)?,
            None => stdout::print(&format!("{}\n", lines.join("\n")))?,
        }
    }
    client.close();
    Ok(())
}

fn lines(node: &NodeArgs, listing: &Listing) -> Vec<String> {
    let title = format!("node {}", node.address());
    let parts = [vec![title, String::new()], listing.device_lines(), vec![String::new()]];
    parts.into_iter().flatten().chain(listing.lease_lines()).collect()
}

/// Replaces the `shown` lines of the previous update. Returns the number of lines that are shown now, which fit the
/// terminal.
fn redraw(terminal: &Term, shown: usize, lines: &[String]) -> Result<usize, Failure> {
    let (rows, columns) = terminal.size();
    let lines = &lines[..lines.len().min(usize::from(rows).saturating_sub(1))];
    terminal.clear_last_lines(shown.min(usize::from(rows)))?;
    for line in lines {
        terminal.write_line(&truncate_str(line, columns.into(), "…"))?;
    }
    Ok(lines.len())
}
