//! Lists the devices of a node.

use command_line::{Failure, stdout};

use crate::{
    connect,
    listing::Listing,
    options::{ListArgs, NodeArgs},
};

/// Prints the devices once.
pub(crate) fn run(node: &NodeArgs, args: &ListArgs) -> Result<(), Failure> {
    let client = connect::client(node)?;
    let listing = Listing::of(&client)?;
    client.close();
    if args.json {
        return stdout::print(&format!("{:#}\n", listing.devices_json()));
    }
    stdout::print(&format!("{}\n", listing.device_lines().join("\n")))
}
