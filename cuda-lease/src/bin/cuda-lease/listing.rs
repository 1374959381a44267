//! Shows the devices and leases of a node, once or again and again, as tables and as JSON.

use std::{thread, time::Duration};

use command_line::{Failure, stdout};
use console::{Term, truncate_str};
use cuda_lease::{DeviceEntry, LeaseEntry, NodeClient};
use indicatif::HumanBytes;
use serde_json::{Value, json};

use crate::{
    connect,
    options::{ListArgs, NodeArgs, TopArgs},
};

/// The longest text in a cell of a table, in characters. A node states names of any length, and all rows are padded to the
/// longest.
const CELL: usize = 100;

/// Prints the devices once.
pub(crate) fn inventory(args: &ListArgs) -> Result<(), Failure> {
    let client = connect::client(&args.node)?;
    let listing = Listing::of(&client)?;
    client.close();
    if args.json {
        return stdout::print(&format!("{:#}\n", listing.devices_json()));
    }
    stdout::print(&format!("{}\n", listing.device_lines().join("\n")))
}

/// Prints devices and leases until the user interrupts it or `--count` is reached. On a terminal, an update replaces
/// the previous one.
pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
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

/// The devices of a node, and the leases of the tenant that asks.
pub(crate) struct Listing {
    devices: Vec<DeviceEntry>,
    leases: Vec<LeaseEntry>,
}

impl Listing {
    /// Asks the node.
    pub(crate) fn of(client: &NodeClient) -> Result<Self, Failure> {
        let (devices, leases) = (client.inventory()?, client.leases()?);
        Ok(Self { devices, leases })
    }

    /// The lines of the table of devices.
    fn device_lines(&self) -> Vec<String> {
        let head = ["DEVICE", "NAME", "MEMORY", "FREE", "LEASES", "STATE"];
        let row = |device: &DeviceEntry| {
            vec![
                device.info.address.clone(),
                device.info.name.clone(),
                HumanBytes(device.capacity).to_string(),
                HumanBytes(device.free).to_string(),
                format!("{}/{}", device.leases, device.max_leases),
                if device.fenced { "fenced" } else { "ok" }.to_owned(),
            ]
        };
        table(&head, self.devices.iter().map(row))
    }

    /// The lines of the table of leases.
    fn lease_lines(&self) -> Vec<String> {
        let head = ["LEASE", "DEVICE", "MEMORY", "CLASS", "EXPIRES", "STATE"];
        let row = |lease: &LeaseEntry| {
            vec![
                lease.lease.to_string(),
                lease.device.clone(),
                HumanBytes(lease.memory).to_string(),
                lease.exclusivity.name().to_owned(),
                format!("{} s", lease.expires_in_ms.div_ceil(1000)),
                state(lease).to_owned(),
            ]
        };
        table(&head, self.leases.iter().map(row))
    }

    fn devices_json(&self) -> Value {
        let device = |device: &DeviceEntry| {
            let info = &device.info;
            json!({
                "device": info.address,
                "name": info.name,
                "memory": device.capacity,
                "free": device.free,
                "leases": device.leases,
                "max_leases": device.max_leases,
                "fenced": device.fenced,
                "compute_capability": [info.compute_capability.0, info.compute_capability.1],
                "multiprocessors": info.multiprocessors,
            })
        };
        self.devices.iter().map(device).collect()
    }

    fn leases_json(&self) -> Value {
        let lease = |lease: &LeaseEntry| {
            json!({
                "lease": lease.lease,
                "device": lease.device,
                "memory": lease.memory,
                "class": lease.exclusivity.name(),
                "expires_in_ms": lease.expires_in_ms,
                "state": state(lease),
            })
        };
        self.leases.iter().map(lease).collect()
    }
}

/// Returns the lines of a table. The texts of the node are escaped and cut.
fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let head = head.iter().map(|&title| title.to_owned()).collect();
    let escape = |row: Vec<String>| row.iter().map(|cell| shown(cell)).collect();
    columns(&std::iter::once(head).chain(rows.map(escape)).collect::<Vec<_>>())
}

/// A text of the node, escaped and cut.
pub(crate) fn shown(text: &str) -> String {
    let mut cell = stdout::escaped(text, &[]);
    if let Some((end, _)) = cell.char_indices().nth(CELL) {
        cell.truncate(end);
        cell.push('…');
    }
    cell
}

fn state(lease: &LeaseEntry) -> &'static str {
    match (lease.ending, lease.connected) {
        (true, _) => "ending",
        (false, true) => "active",
        (false, false) => "disconnected",
    }
}

/// Returns the lines of a table whose columns are aligned at the left.
fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [row(["A", "B"]), row(["wide", "x"]), row(["é", ""])];
        assert_eq!(columns(&rows), ["A     B", "wide  x", "é"]);
        assert!(columns(&[]).is_empty());
    }
}
