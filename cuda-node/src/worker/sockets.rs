//! Reading frames from a socket, on a thread of its own.

use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
};

use cuda_lease::wire::{
    FRAME_LIMIT, Frame, HEADER_BYTES, Header, Reader, WireError, complete_frames, frames_in,
};

/// The bytes that a read can take behind an incomplete frame.
const READ: usize = 256 << 10;

/// The end of a reader.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Reads frames until the socket ends, or `take` returns `false`. Calls `begin` before the frames of each read.
pub(super) fn read_frames(
    mut socket: &UnixStream,
    mut begin: impl FnMut(),
    mut take: impl FnMut(Frame<'_>) -> bool,
) -> Result<(), ReadError> {
    // A frame is handled where it was read. Only an incomplete one moves.
    let mut buffer = vec![0; HEADER_BYTES + FRAME_LIMIT as usize + READ];
    let mut filled = 0;
    loop {
        match socket.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        begin();
        let complete = complete_frames(&buffer[..filled], usize::MAX)?;
        for frame in frames_in(&buffer[..complete]) {
            if !take(frame) {
                return Ok(());
            }
        }
        buffer.copy_within(complete..filled, 0);
        filled -= complete;
    }
}

/// Reads the body of one frame with an opcode. Reads nothing behind it.
pub(super) fn read_message(mut socket: &UnixStream, opcode: u16) -> Result<Vec<u8>, ReadError> {
    let mut header = [0; HEADER_BYTES];
    socket.read_exact(&mut header)?;
    let header = Header::read(&mut Reader::new(&header))?;
    if header.opcode != opcode {
        return Err(WireError::UnexpectedOpcode { opcode: header.opcode }.into());
    }
    let mut body = vec![0; header.length as usize];
    socket.read_exact(&mut body)?;
    Ok(body)
}
