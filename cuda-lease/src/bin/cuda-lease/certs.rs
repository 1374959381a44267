//! Creates certificates for development.

use command_line::{Failure, stdout};
use cuda_lease::authority::{DevelopmentCaError, DevelopmentCertificates};

use crate::options::CertsArgs;

/// The names under which programs of this machine reach a node.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Creates the files, and prints their paths.
pub(crate) fn run(args: &CertsArgs) -> Result<(), Failure> {
    let mut certificates = DevelopmentCertificates::new(&args.dir).days(args.days);
    // A command that adds a client does not need the node's certificate again.
    let adds_clients = !args.clients.is_empty() && args.dir.join("node.pem").exists();
    let hosts: Vec<&str> = match args.hosts.iter().map(String::as_str).collect::<Vec<_>>() {
        hosts if hosts.is_empty() && !adds_clients => HOSTS.to_vec(),
        hosts => hosts,
    };
    let clients = match args.clients.iter().map(String::as_str).collect::<Vec<_>>() {
        clients if clients.is_empty() => vec!["client"],
        clients => clients,
    };
    certificates = hosts.into_iter().fold(certificates, DevelopmentCertificates::host);
    certificates = clients.into_iter().fold(certificates, DevelopmentCertificates::client);
    if args.force {
        certificates = certificates.replace();
    }
    let created = certificates.create().map_err(|error| match error {
        DevelopmentCaError::Exists { path } => Failure::bad_input(format_args!(
            "{} exists; replace it with --force, or choose another --dir or --client",
            path.display()
        )),
        error => Failure::bad_input(error),
    })?;
    let files: String = created.files.iter().map(|path| format!("{}\n", path.display())).collect();
    stdout::print(&files)
}
