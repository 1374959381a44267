//! Creates certificates for development, and revokes them.

use command_line::{Failure, stdout};
use cuda_lease::authority::{DevelopmentCaError, DevelopmentCertificates};

use crate::options::CertsArgs;

/// The names under which programs of this machine reach a node.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Creates the files, or revokes certificates, and prints the paths of the written files.
pub(crate) fn run(args: &CertsArgs) -> Result<(), Failure> {
    if args.revoke.is_empty() { create(args) } else { revoke(args) }
}

fn revoke(args: &CertsArgs) -> Result<(), Failure> {
    let revoked = args.revoke.iter().map(String::as_str);
    let certificates = DevelopmentCertificates::new(&args.dir);
    let certificates = revoked.fold(certificates, DevelopmentCertificates::client);
    let list = certificates.revoke().map_err(Failure::bad_input)?;
    stdout::print(&format!("{}\n", list.display()))
}

fn create(args: &CertsArgs) -> Result<(), Failure> {
    let mut certificates = DevelopmentCertificates::new(&args.dir).days(args.days);
    // A command without --host that adds a client keeps the node's certificate, whatever its hosts are.
    let has_node = args.dir.join("node.pem").exists();
    let hosts: Vec<&str> = match args.hosts.iter().map(String::as_str).collect::<Vec<_>>() {
        hosts if hosts.is_empty() && (args.clients.is_empty() || !has_node) => HOSTS.to_vec(),
        hosts => hosts,
    };
    let clients = match args.clients.iter().map(String::as_str).collect::<Vec<_>>() {
        clients if clients.is_empty() => vec!["client"],
        clients => clients,
    };
    certificates = hosts.into_iter().fold(certificates, DevelopmentCertificates::host);
    certificates = clients.into_iter().fold(certificates, DevelopmentCertificates::client);
    certificates = if args.force { certificates.replace() } else { certificates.keep() };
    let created = certificates.create().map_err(|error| match error {
        DevelopmentCaError::Exists { path } => Failure::bad_input(format_args!(
            "{} exists; replace it with --force, or choose another --dir or --client",
            path.display()
        )),
        DevelopmentCaError::Unsuitable { path, reason } => {
            let replace = command(args, &args.hosts, true);
            let is_of_node = has_node && path == args.dir.join("node.pem");
            let keep = match is_of_node && !args.clients.is_empty() {
                true => format!(", or only add clients with `{}`", command(args, &[], false)),
                false => String::new(),
            };
            let path = path.display();
            Failure::bad_input(format_args!(
                "{path} cannot be kept: {reason}; replace the certificates and keys with `{replace}`{keep}"
            ))
        }
        error => Failure::bad_input(error),
    })?;
    let files: String = created.files.iter().map(|path| format!("{}\n", path.display())).collect();
    stdout::print(&files)
}

/// A command line with these hosts and the clients of `args`.
fn command(args: &CertsArgs, hosts: &[String], is_forced: bool) -> String {
    let hosts = hosts.iter().map(|host| format!(" --host {host}"));
    let clients = args.clients.iter().map(|client| format!(" --client {client}"));
    let words: String = hosts.chain(clients).collect();
    let force = if is_forced { " --force" } else { "" };
    format!("cuda-lease certs --dir {}{words}{force}", args.dir.display())
}
