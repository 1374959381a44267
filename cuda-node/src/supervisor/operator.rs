//! Commands of the operator, on a Unix socket of the machine.
//!
//! A request is one line of JSON, and so is its reply. Only the user who runs the node can open the socket.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cuda_core::{Error, Result, protocol::Status};
use rustix::{
    fs::Mode,
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
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

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Done,
    /// There was nothing to do.
    Unchanged,
    Refused(String),
}

impl OperatorCommand {
    /// Sends the command to the node whose socket is at `socket`, and waits until the node has carried it out. Returns
    /// whether the command had an effect: the device of [`Unfence`](Self::Unfence) may be in service already.
    ///
    /// # Errors
    /// The socket cannot be used, or the node refuses the command.
    pub fn send(&self, socket: &Path) -> Result<bool> {
        let failed = |error: io::Error| {
            let what = format!(
                "failed to connect to the node's socket {0}; check that the node runs with `--operator-socket {0}` and \
                 as this user",
                socket.display()
            );
            Error::host(what, &error)
        };
        let mut stream = std::os::unix::net::UnixStream::connect(socket).map_err(failed)?;
        let mut line = serde_json::to_string(self).map_err(|error| failed(error.into()))?;
        line.push('\n');
        stream.write_all(line.as_bytes()).map_err(failed)?;
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).map_err(failed)?;
        match serde_json::from_str(&reply).map_err(|error| failed(error.into()))? {
            Reply::Done => Ok(true),
            Reply::Unchanged => Ok(false),
            Reply::Refused(detail) => {
                let address = socket.display().to_string();
                Err(Error::Remote { address, status: Status::BadRequest, detail })
            }
        }
    }
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
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            let message = "another node uses it; choose another file";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        match fs::symlink_metadata(path) {
            Ok(file) if !file.file_type().is_socket() => {
                let message = "the file exists and is not a socket; choose another path";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
            Ok(_) => fs::remove_file(path)?,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
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
    let reply = match serde_json::from_str(&line) {
        Ok(command) => carry_out(leases, reload, command).await,
        Err(error) => Reply::Refused(format!(
            "the request is not a valid command: {error}; send one line of JSON, as `cuda-node revoke` does"
        )),
    };
    let mut reply = serde_json::to_string(&reply)?;
    reply.push('\n');
    write.write_all(reply.as_bytes()).await
}

async fn carry_out(leases: &Arc<Leases>, reload: &Arc<Reload>, command: OperatorCommand) -> Reply {
    let done = match command {
        OperatorCommand::Revoke { lease, reason, notice_secs } => {
            let notice = Duration::from_secs(notice_secs.into());
            leases.revoke(lease, reason, notice).await.map(|()| true)
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
    match done {
        Ok(true) => Reply::Done,
        Ok(false) => Reply::Unchanged,
        Err((_, detail)) => Reply::Refused(detail),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn only_the_user_of_the_node_can_open_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operator");
        let _socket = OperatorSocket::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
