//! Lists the devices of a node.

use command_line::{Failure, stdout};

use crate::{connect, listing::Listing, options::ListArgs};

/// Prints the devices once.
pub(crate) fn run(args: &ListArgs) -> Result<(), Failure> {
    let client = connect::client(&args.node)?;
    let listing = Listing::of(&client)?;
    client.close();
    if args.json {
        return stdout::print(&format!("{:#}\n", listing.devices_json()));
    }
    stdout::print(&format!("{}\n", listing.device_lines().join("\n")))
}
