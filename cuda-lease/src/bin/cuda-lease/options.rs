//! Declares the command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use command_line::{Dimensions, dimensions};
use cuda_lease::{Exclusivity, authority::DevelopmentCertificates, wire::parse_bytes};

use crate::output::Format;

const STATUSES: &str = "\
Exit status:
  0  success
  2  bad input: usage, a file that cannot be read or written, PTX, kernel, arguments
  3  the kernel faulted, or the launch was refused
  4  the node cannot be reached, or it refuses: no free capacity, no access, the lease has ended
  128 + N  signal N has ended a submit: 130 after Ctrl-C";

/// The help of `--node` for the subcommands with `--lease FILE`.
const NODE_OF_LEASE: &str = "\
The node [default: the node of --lease FILE, else 127.0.0.1:5701]. The file has the certificates too";

const ARGUMENTS: &str = "\
The kernel's first parameter is the pointer of the region, device memory of the lease. Before the launch the region is the
input, and zeros behind it. After the launch the output is read from the region. The other parameters are the arguments,
in order:
  --arg u32=256          a number: i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64; integers also as 0x10
  --arg f32@x.npy        an array by value: the numbers of an .npy file of this type
  --arg f32@x.bin        the same: the bytes of any other file
  --arg bytes@s.bin      a struct by value: the bytes of the file

  cuda-lease submit --ptx kernels/iota.ptx --kernel iota --block 256 --arg u32=256 --output-bytes 1024 --format f32";

/// Leases devices of nodes and runs kernels on them.
#[derive(Debug, Parser)]
#[command(name = "cuda-lease", version, after_help = STATUSES)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The node and the certificates of the connection.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Node")]
pub(crate) struct NodeArgs {
    /// The node [default: 127.0.0.1:5701].
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub(crate) node: Option<String>,
    /// The authority that signs the node's certificate, a PEM file. Without it the node has to be on this machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate of this client, a PEM file.
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of the certificate, a PEM file.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The name in the node's certificate, if it is not the host.
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
}

impl NodeArgs {
    /// The address of the node.
    pub(crate) fn address(&self) -> &str {
        self.node.as_deref().unwrap_or("127.0.0.1:5701")
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the devices of the node.
    Inventory(ListArgs),
    /// Allocates a lease that lasts until it expires or is freed.
    Alloc(AllocArgs),
    /// Renews a lease: it expires --lease-secs from now.
    #[command(mut_arg("node", |arg| arg.help(NODE_OF_LEASE)))]
    Renew(RenewArgs),
    /// Ends a lease.
    #[command(mut_arg("node", |arg| arg.help(NODE_OF_LEASE)))]
    Free(FreeArgs),
    /// Runs a kernel once, on a lease of its own or on an allocated one. Its own lease is renewed until the kernel
    /// ends, or until --timeout; an allocated one is not renewed.
    #[command(after_help = ARGUMENTS)]
    #[command(mut_arg("node", |arg| arg.help(NODE_OF_LEASE)))]
    Submit(Box<SubmitArgs>),
    /// Shows the devices of the node and your leases, again and again.
    Top(TopArgs),
    /// Creates certificates for development: an authority, a node and clients. Revokes those of clients.
    Certs(CertsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// The terms of a lease.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lease")]
pub(crate) struct TermsArgs {
    /// The device memory, such as 512MiB or 8GiB [default: 256MiB, or enough for the region].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) min_vram: Option<u64>,
    /// The duration of the lease in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) lease_secs: u32,
    /// The exclusivity class.
    #[arg(long, value_enum, default_value = "shared")]
    pub(crate) exclusive: Class,
    /// The device of the node, such as cuda:0 [default: the node chooses].
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// The maximum wait in seconds if the node has no free capacity. A node lets a request wait for at most 10 minutes.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) wait: u64,
    /// The priority of the request. Higher numbers come first.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
}

/// The exclusivity class of a lease.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Class {
    /// Other leases run on the device at the same time.
    Shared,
    /// One session of the device runs at a time.
    Session,
    /// No other lease is on the device.
    Device,
}

impl From<Class> for Exclusivity {
    fn from(class: Class) -> Self {
        match class {
            Class::Shared => Self::Shared,
            Class::Session => Self::Session,
            Class::Device => Self::Device,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AllocArgs {
    /// Writes the lease to a file that `renew`, `free` and `submit` take. Only you can read it.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Replaces the file of another lease, whose token is lost.
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) terms: TermsArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// An allocated lease.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct LeaseArgs {
    /// The file of the lease that `alloc` wrote, or its output with --json; - is stdin.
    #[arg(long, value_name = "FILE")]
    pub(crate) lease: Option<PathBuf>,
    /// The token of the lease. Other users of this machine can see it in the list of processes.
    #[arg(long)]
    pub(crate) token: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RenewArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// The duration of the lease from now on, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) lease_secs: u32,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FreeArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// The number of a lease whose token is lost; `top` lists your leases. Only a certificate with the key that
    /// allocated or last renewed the lease frees it so.
    #[arg(long, value_name = "N", group = "LeaseArgs")]
    pub(crate) id: Option<u64>,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("code").args(["ptx", "cubin"]).required(true)))]
pub(crate) struct SubmitArgs {
    /// The PTX file.
    #[arg(long, value_name = "FILE")]
    pub(crate) ptx: Option<PathBuf>,
    /// A cubin or fatbin, in the place of PTX. Its arguments are checked by the node only.
    #[arg(long, value_name = "FILE")]
    pub(crate) cubin: Option<PathBuf>,
    /// The name of the kernel.
    #[arg(long, value_name = "NAME")]
    pub(crate) kernel: String,
    /// The grid size in blocks.
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = dimensions)]
    pub(crate) grid: Dimensions,
    /// The block size in threads.
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = dimensions)]
    pub(crate) block: Dimensions,
    /// Dynamic shared memory per block, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub(crate) shared: u32,
    /// An argument behind the pointer of the region; see below. Repeat it.
    #[arg(long = "arg", value_name = "TYPE=VALUE")]
    pub(crate) args: Vec<OsString>,
    /// The input: the numbers of an .npy file, or the bytes of any other file.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// The size of the region in bytes [default: as large as input and output need].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) region_bytes: Option<u64>,
    /// The maximum size of the output in bytes.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes)]
    pub(crate) output_bytes: u64,
    /// The offset of the output in the region, in bytes.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes)]
    pub(crate) output_offset: u64,
    /// The form of the output: a type of numbers such as f32 (one number a line), hex, raw (the bytes), npy:TYPE or npy
    /// (f32).
    #[arg(long, default_value = "hex", value_parser = Format::parse)]
    pub(crate) format: Format,
    /// Writes the output to a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The file of an allocated lease; - is stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) lease: Option<PathBuf>,
    /// The token of an allocated lease.
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// The maximum time of the submit in seconds. After it the submit's own lease ends, and the kernel with it
    /// [default: none, the lease is renewed until the kernel ends].
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["lease", "token"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: Option<u64>,
    #[command(flatten)]
    pub(crate) terms: TermsArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The seconds between two updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) interval: u64,
    /// Ends after N updates [default: never on a terminal, else 1].
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Prints one line of JSON for each update.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CertsArgs {
    /// The directory of the certificates. An authority that is there already is used again.
    #[arg(long, value_name = "DIRECTORY", default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// A DNS name or address of the node. Repeat it [default: localhost, 127.0.0.1 and ::1].
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// The name of a client, which is its tenant. Repeat it [default: client].
    #[arg(long = "client", value_name = "NAME")]
    pub(crate) clients: Vec<String>,
    /// The validity of the certificates of node and clients, in days.
    #[arg(long, default_value_t = 365)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(DevelopmentCertificates::MAX_DAYS)))]
    pub(crate) days: u32,
    /// Replaces existing certificates of the named clients, and that of the node unless only clients are named. The
    /// authority stays. By default they are kept.
    #[arg(long)]
    pub(crate) force: bool,
    /// Revokes the certificate of a client: adds it to the list ca.crl, and creates nothing. Repeat it. The node reads the
    /// list with `--crl`, again on SIGHUP.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["hosts", "clients", "days", "force"])]
    pub(crate) revoke: Vec<String>,
}

fn address(text: &str) -> Result<String, String> {
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if has_port {
        Ok(text.to_owned())
    } else {
        Err("write HOST:PORT, such as gpu-node:5701".into())
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn clap_command_is_valid() {
        Options::command().debug_assert();
    }

    #[test]
    fn lease_is_named_by_a_file_or_a_token() {
        let parse = |line: &str| Options::try_parse_from(line.split(' ')).map(drop);
        assert!(parse("cuda-lease free --lease l.json --node h:1").is_ok());
        assert!(parse("cuda-lease free --token t").is_ok());
        assert!(parse("cuda-lease free --id 7 --node h:1").is_ok());
        assert!(parse("cuda-lease free").is_err());
        assert!(parse("cuda-lease free --token t --id 7").is_err());
        assert!(parse("cuda-lease renew --id 7").is_err());
        assert!(parse("cuda-lease free --token t --lease l.json").is_err());
    }
}
