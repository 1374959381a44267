//! Reading frames from a socket, on a thread of its own.

use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
};

use crate::wire::{Frame, FrameBuffer, WireError};

/// The bytes that one read takes at most.
const READ: usize = 256 << 10;

/// The end of a reader.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Reads frames until the socket ends, or `take` returns `false`.
pub(super) fn read_frames(
    mut socket: &UnixStream,
    mut take: impl FnMut(Frame<'_>) -> bool,
) -> Result<(), ReadError> {
    let mut buffer = FrameBuffer::default();
    let mut bytes = vec![0; READ];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => buffer.extend(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        for frame in buffer.take()?.iter() {
            if !take(frame) {
                return Ok(());
            }
        }
    }
}
