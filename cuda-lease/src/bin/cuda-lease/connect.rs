//! Connects to the node that the command line names.

use std::time::Duration;

use command_line::Failure;
use cuda_core::{Error, Misuse, protocol::Status};
use cuda_lease::{
    LeaseBuilder, NodeClient,
    authority::{ClientTls, TlsError},
};

use crate::options::{Class, NodeArgs, TermsArgs};

/// Connects to the node.
pub(crate) fn client(node: &NodeArgs) -> Result<NodeClient, Failure> {
    NodeClient::connect(node.address(), tls(node)?).map_err(|error| unreachable(node, error))
}

/// Creates the request for a lease with these terms. `least` is the memory if the command line states none.
pub(crate) fn request(
    node: &NodeArgs,
    terms: &TermsArgs,
    least: u64,
) -> Result<LeaseBuilder, Failure> {
    let mut request = LeaseBuilder::new(node.address())
        .tls(tls(node)?)
        .min_vram(terms.min_vram.unwrap_or(least))
        .lease_secs(terms.lease_secs)
        .exclusive(terms.exclusive.into())
        .wait(Duration::from_secs(terms.wait))
        .priority(terms.priority);
    if let Some(device) = &terms.device {
        request = request.on_device(device);
    }
    Ok(request)
}

/// Returns the failure of a connection that was not made.
pub(crate) fn unreachable(node: &NodeArgs, error: Error) -> Failure {
    match error {
        Error::Unreachable { address, cause } => Failure::unavailable(format_args!(
            "no node answers at `{address}`: {cause}; check --node, that cuda-node runs there, and that its UDP port is open"
        )),
        // The address is that of a lease in a program. Here it is an option.
        Error::Misuse(Misuse::Setting { cause, .. }) => {
            let option = match cause.get().downcast_ref() {
                Some(TlsError::UnverifiedNode { .. }) => " with --ca",
                _ => "",
            };
            let message = format!("{cause}{option}");
            Failure::bad_input(message).at(format_args!("--node {}", node.address()))
        }
        Error::Remote { address, status: status @ Status::Unauthorized, detail } => {
            let options = if detail.contains("requires a client certificate") {
                " with --ca, --cert and --key"
            } else if detail.starts_with("the certificate of the node is not trusted") {
                "; the options are --ca and --server-name"
            } else {
                ""
            };
            let detail = format!("{detail}{options}");
            Error::Remote { address, status, detail }.into()
        }
        error => error.into(),
    }
}

/// Returns the failure of a request for a lease with these terms.
pub(crate) fn refused(node: &NodeArgs, terms: &TermsArgs, error: Error) -> Failure {
    match error {
        Error::Remote { address, status: status @ Status::CapacityExceeded, detail }
            if detail.contains("let the request wait") =>
        {
            let class = match terms.exclusive {
                Class::Device => "; --exclusive device needs a device without other leases",
                _ => "",
            };
            let detail = format!("{detail} with --wait SECONDS{class}");
            Error::Remote { address, status, detail }.into()
        }
        error => unreachable(node, error),
    }
}

fn tls(node: &NodeArgs) -> Result<ClientTls, Failure> {
    let tls = match (&node.ca, &node.cert, &node.key) {
        (None, None, None) => ClientTls::loopback(),
        (Some(ca), None, None) => ClientTls::with_ca(ca),
        (Some(ca), Some(cert), Some(key)) => ClientTls::with_ca(ca).client_certificate(cert, key),
        _ => {
            return Err(Failure::bad_input(
                "--ca, --cert and --key belong together; state all three, or --ca alone",
            ));
        }
    };
    Ok(match &node.server_name {
        Some(name) => tls.server_name(name),
        None => tls,
    })
}
