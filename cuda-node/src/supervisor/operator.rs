//! Commands of the operator, on a Unix socket of the machine.
//!
//! A request is one line of JSON, and so is its reply. A second line of the reply may have details. Only the user who
//! runs the node can open the socket.

use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Write},
    os::unix::{fs::FileTypeExt, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cuda_core::{Error, Result, protocol::Status};
use rustix::{
    fs::Mode,
    net::{
        self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType,
        sockopt::{Timeout, set_socket_timeout},
    },
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    task::JoinSet,
};

use super::{leases::Leases, reload::Reload};

/// The maximum number of bytes of a request.
const LINE: u64 = 64 << 10;

/// The time in which a node answers a command. It may wait for a disk.
const ANSWER: Duration = Duration::from_secs(30);

/// The time in which a node that uses a socket takes a connection, when another node opens the same path.
const PROBE: Duration = Duration::from_secs(1);

/// The maximum number of connections that wait.
const BACKLOG: i32 = 16;

/// The maximum number of connections that are served at a time. One lasts as long as its command, which may wait for a
/// disk.
const CONNECTIONS: usize = 64;

/// A command of the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OperatorCommand {
    /// Ends a lease after a notice period.
    Revoke {
        /// The number of the lease.
        lease: u64,
        /// The reason, which the node sends to the client of the lease.
        reason: String,
        /// The notice period in seconds.
        notice_secs: u32,
    },
    /// Reads certificates, lists of revoked certificates and quotas again ([`Node::reload`](super::Node::reload)).
    Reload {},
    /// Puts a fenced device back into service. Before this command, the operator verifies that the memory of ended
    /// workers is free.
    Unfence {
        /// The device.
        device: String,
    },
}

/// The effect of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorReply {
    /// Whether the command had an effect: the device of [`Unfence`](OperatorCommand::Unfence) may be in service already.
    pub has_effect: bool,
    /// The time until the end of the lease of [`Revoke`](OperatorCommand::Revoke): it may expire before the notice period
    /// is over, or have an earlier end. `None` from an older node.
    pub ends_in: Option<Duration>,
}

/// The second line of a reply, if any.
#[derive(Debug, Serialize, Deserialize)]
struct Details {
    ends_in_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Done,
    /// There was nothing to do.
    Unchanged,
    Refused(String),
}

impl OperatorCommand {
    /// Sends the command to the node whose socket is at `socket`, and waits until the node has carried it out.
    ///
    /// # Errors
    /// The socket cannot be used, the node refuses the command, or it does not answer within 30 seconds.
    pub fn send(&self, socket: &Path) -> Result<OperatorReply> {
        self.send_within(socket, ANSWER)
    }

    fn send_within(&self, socket: &Path, limit: Duration) -> Result<OperatorReply> {
        let failed = |error: io::Error| {
            let what = format!(
                "failed to connect to the node's socket {0}; check that the node runs with `--operator-socket {0}` and \
                 as this user",
                socket.display()
            );
            Error::host(what, &error)
        };
        let silent = |error: io::Error| {
            let what = format!(
                "the node of socket {} has not answered within {} s; the command may take effect later, so look at the \
                 log of the node, and check that it is not stopped",
                socket.display(),
                limit.as_secs()
            );
            Error::host(what, &error)
        };
        let failed = |error: io::Error| match error.kind() {
            // A timeout of a socket has the first kind.
            ErrorKind::WouldBlock | ErrorKind::TimedOut => silent(error),
            _ => failed(error),
        };
        let mut stream = connect(socket, limit).map_err(failed)?;
        let mut line = serde_json::to_string(self).map_err(|error| failed(error.into()))?;
        line.push('\n');
        stream.write_all(line.as_bytes()).map_err(failed)?;
        let (mut reader, mut reply, mut details) =
            (BufReader::new(stream), String::new(), String::new());
        reader.read_line(&mut reply).map_err(failed)?;
        reader.read_line(&mut details).map_err(failed)?;
        let details: Option<Details> = serde_json::from_str(&details).ok();
        let ends_in = details.map(|details| Duration::from_millis(details.ends_in_ms));
        match serde_json::from_str(&reply).map_err(|error| failed(error.into()))? {
            Reply::Done => Ok(OperatorReply { has_effect: true, ends_in }),
            Reply::Unchanged => Ok(OperatorReply { has_effect: false, ends_in }),
            Reply::Refused(detail) => {
                let address = socket.display().to_string();
                Err(Error::Remote { address, status: Status::BadRequest, detail })
            }
        }
    }
}

/// Connects to a node. Each part of the connection has this time: its begin, a read and a write.
fn connect(path: &Path, limit: Duration) -> io::Result<StdUnixStream> {
    let socket =
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A node that is stopped takes no connection from its queue, and answers none. The first limit is that of the begin.
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, direction, Some(limit))?;
    }
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// The socket of the operator. Dropping it removes the file.
pub(super) struct OperatorSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl OperatorSocket {
    /// Opens the socket. The file of a node that has ended is replaced.
    ///
    /// # Errors
    /// Those of the file system, or another node uses the file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let probe = connect(path, PROBE);
        // The node of a full queue may be stopped.
        if probe.is_ok() || probe.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            let message = "another node uses it; choose another file";
            return Err(io::Error::new(ErrorKind::AddrInUse, message));
        }
        match fs::symlink_metadata(path) {
            Ok(file) if !file.file_type().is_socket() => {
                let message = "the file exists and is not a socket; choose another path";
                return Err(io::Error::new(ErrorKind::AlreadyExists, message));
            }
            Ok(_) => fs::remove_file(path)?,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file has this mode from its beginning, whatever the umask is.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        net::listen(&socket, BACKLOG)?;
        let listener = UnixListener::from_std(socket.into())?;
        Ok(Self { path: path.to_owned(), listener })
    }

    /// Serves requests until the node ends. They do not wait for each other.
    pub(super) async fn serve(self, leases: Arc<Leases>, reload: Arc<Reload>) {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= CONNECTIONS {
                connections.join_next().await;
            }
            while connections.try_join_next().is_some() {}
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (leases, reload) = (leases.clone(), reload.clone());
                    connections.spawn(async move {
                        if let Err(error) = answer(&leases, &reload, stream).await {
                            tracing::warn!(%error, "a request of the operator failed");
                        }
                    });
                }
                Err(error) => {
                    tracing::error!(%error, "the socket of the operator failed");
                    // Out of descriptors, perhaps.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

impl Drop for OperatorSocket {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

async fn answer(
    leases: &Arc<Leases>,
    reload: &Arc<Reload>,
    mut stream: UnixStream,
) -> io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    let mut reader = tokio::io::BufReader::new(read.take(LINE));
    tokio::time::timeout(Duration::from_secs(5), reader.read_line(&mut line)).await??;
    let (reply, details) = match serde_json::from_str(&line) {
        Ok(command) => carry_out(leases, reload, command).await,
        Err(error) => {
            let detail = format!(
                "the request is not a valid command: {error}; send one line of JSON, as `cuda-node revoke` does"
            );
            (Reply::Refused(detail), None)
        }
    };
    let mut reply = serde_json::to_string(&reply)?;
    reply.push('\n');
    if let Some(details) = details {
        reply += &serde_json::to_string(&details)?;
        reply.push('\n');
    }
    write.write_all(reply.as_bytes()).await
}

async fn carry_out(
    leases: &Arc<Leases>,
    reload: &Arc<Reload>,
    command: OperatorCommand,
) -> (Reply, Option<Details>) {
    let mut details = None;
    let done = match command {
        OperatorCommand::Revoke { lease, reason, notice_secs } => {
            let notice = Duration::from_secs(notice_secs.into());
            leases.revoke(lease, reason, notice).await.map(|ends_in| {
                let ends_in_ms = ends_in.as_millis().try_into().unwrap_or(u64::MAX);
                details = Some(Details { ends_in_ms });
                true
            })
        }
        OperatorCommand::Reload {} => {
            // Files are read, and another reload may run.
            let reload = reload.clone();
            match tokio::task::spawn_blocking(move || reload.run()).await {
                Ok(Ok(())) => Ok(true),
                Ok(Err(error)) => Err((Status::BadRequest, error.to_string())),
                Err(error) => Err((Status::Internal, error.to_string())),
            }
        }
        OperatorCommand::Unfence { device } => leases.unfence(&device).await,
    };
    let reply = match done {
        Ok(true) => Reply::Done,
        Ok(false) => Reply::Unchanged,
        Err((_, detail)) => Reply::Refused(detail),
    };
    (reply, details)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn node_that_is_stopped_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operator");
        let _stopped = OperatorSocket::open(&path).unwrap();
        let limit = Duration::from_secs(1);
        // First the queue has places, then none.
        for _ in 0..=BACKLOG + 1 {
            let (path, (done, is_done)) = (path.clone(), std::sync::mpsc::channel());
            std::thread::spawn(move || {
                done.send(OperatorCommand::Reload {}.send_within(&path, limit / 10))
            });
            let sent = is_done.recv_timeout(60 * limit).expect("the command waits for ever");
            let error = sent.unwrap_err().to_string();
            assert!(error.contains("has not answered within"), "{error}");
        }
        let error = OperatorSocket::open(&path).err().unwrap().to_string();
        assert!(error.contains("another node uses it"), "{error}");
    }

    #[tokio::test]
    async fn only_the_user_of_the_node_can_open_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operator");
        let _socket = OperatorSocket::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
