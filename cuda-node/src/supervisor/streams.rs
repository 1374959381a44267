//! Frames on streams: the QUIC streams of clients, and the sockets of workers.

use std::{io, time::Duration};

use bytes::{BufMut, Bytes};
use cuda_lease::{
    internals::transport,
    wire::{
        FRAME_LIMIT, Frame, FrameBuffer, HEADER_BYTES, Header, Reader, Refused, WireError,
        put_frame,
    },
};
use quinn::{RecvStream, SendStream};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UnixStream,
    time::{Instant, timeout_at},
};

use cuda_core::{internals::text_prefix, protocol::Status};

/// The bytes that one read takes at most.
const READ: usize = 256 << 10;

/// The bytes that a read of frames makes room for at least. A stream with few bytes needs no more.
const SMALLEST_STEP: usize = 4 << 10;

/// The time in which a client sends or takes at least some bytes of a transfer that uses memory of the node, and the time
/// in which it takes the last events of a session that has ended. Afterwards the node frees that memory.
pub(super) const STALL: Duration = Duration::from_secs(10);

/// The rate of such a transfer, in bytes per second, that a client reaches at least, besides [`STALL`].
const SLOWEST: u64 = 256 << 10;

/// The longest text of a client or a worker in a line of the log, in bytes.
const LOGGED: usize = 512;

/// Cuts a text of a client or a worker for the log. A field of type `&str` is logged with escaped control characters.
pub(super) fn logged(text: &str) -> &str {
    text_prefix(text, LOGGED)
}

/// Closes a connection whose client breaks the protocol or a limit.
pub(super) fn disconnect(connection: &quinn::Connection, reason: &str) {
    let peer = connection.remote_address();
    tracing::info!(reason = logged(reason), %peer, "a client was disconnected");
    connection.close(transport::BROKEN, reason.as_bytes());
}

/// A refusal: its status and its message.
pub(super) type Refusal = (Status, String);

/// The end of a stream or connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("the connection ended: {0}")]
    Connection(String),
    #[error("the client broke the protocol: {0}")]
    Broken(#[from] cuda_lease::session::SessionError),
    #[error("{0}: {1}")]
    Refused(Status, String),
    #[error("the client closed the stream")]
    Closed,
    #[error(
        "the client sends or takes less than {SLOWEST} bytes per second, or nothing for {} s; the node keeps no memory \
         for it", STALL.as_secs()
    )]
    Stalled,
}

macro_rules! ends {
    ($($error:ty)*) => {$(
        impl From<$error> for End {
            fn from(error: $error) -> Self {
                End::Connection(error.to_string())
            }
        }
    )*};
}

ends! { io::Error quinn::ConnectionError quinn::ReadError quinn::WriteError }

impl End {
    fn refused((status, detail): Refusal) -> Self {
        Self::Refused(status, detail)
    }
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        End::Broken(error.into())
    }
}

/// The deadline of a transfer.
struct Deadline {
    /// The end of the whole transfer.
    end: Instant,
}

impl Deadline {
    fn of(bytes: usize) -> Self {
        let longest = STALL + Duration::from_secs(bytes as u64 / SLOWEST);
        Self { end: Instant::now() + longest }
    }

    /// Waits for the next bytes of the transfer.
    async fn next<T>(&self, step: impl Future<Output = T>) -> Result<T, End> {
        let until = self.end.min(Instant::now() + STALL);
        timeout_at(until, step).await.map_err(|_| End::Stalled)
    }
}

/// The receiving half of a stream, in frames.
pub(super) struct FrameStream {
    stream: RecvStream,
    buffer: FrameBuffer,
    /// The longest frame that [`next`](Self::next) takes, in bytes.
    limit: u32,
    /// The bytes that the next read makes room for: more while the client sends much.
    step: usize,
}

impl FrameStream {
    pub(super) fn new(stream: RecvStream) -> Self {
        Self { stream, buffer: FrameBuffer::default(), limit: FRAME_LIMIT, step: SMALLEST_STEP }
    }

    /// Refuses longer frames from now on.
    pub(super) fn set_limit(&mut self, bytes: u32) {
        self.limit = bytes;
    }

    /// Reads more bytes, at most [`READ`]: the bytes of a stream that have arrived may be as many as its window, and a lane
    /// passes the frames of each step on. Cancelling this loses nothing.
    pub(super) async fn fill(&mut self) -> Result<(), End> {
        let buffer = self.buffer.buffer();
        if buffer.capacity() - buffer.len() < self.step / 2 {
            buffer.reserve(self.step);
        }
        let room = (buffer.capacity() - buffer.len()).min(READ);
        let read = self.stream.read_buf(&mut buffer.limit(room)).await?;
        if read == room {
            self.step = (self.step * 2).min(READ);
        } else if read < self.step / 4 {
            self.step = (self.step / 2).max(SMALLEST_STEP);
        }
        if read == 0 { Err(End::Closed) } else { Ok(()) }
    }

    /// The frames that have arrived.
    pub(super) fn buffer(&mut self) -> &mut FrameBuffer {
        &mut self.buffer
    }

    /// Reads the next frame. Cancelling this loses nothing.
    pub(super) async fn next<T>(
        &mut self,
        mut with: impl FnMut(Frame<'_>) -> Result<T, End>,
    ) -> Result<T, End> {
        loop {
            // Also that of a frame of which all bytes have arrived.
            self.check_length()?;
            if let Some(frames) = self.buffer.take_first()?
                && let Some(frame) = frames.iter().next()
            {
                return with(frame);
            }
            self.fill().await?;
        }
    }

    /// Frees the memory of the frames that were read. Bytes behind them stay.
    pub(super) fn release(&mut self) {
        let mut arrived = std::mem::take(&mut self.buffer);
        self.buffer.extend(arrived.buffer());
        self.step = SMALLEST_STEP;
    }

    /// Checks the length of the frame that is arriving.
    fn check_length(&mut self) -> Result<(), End> {
        let length =
            self.buffer.buffer().first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        if length > self.limit {
            let (length, limit) = (length.into(), self.limit.into());
            return Err(WireError::TooLong { what: "a frame", length, limit }.into());
        }
        Ok(())
    }

    /// Reads `count` raw bytes. The buffer grows as they arrive.
    ///
    /// # Errors
    /// [`End::Stalled`] if they arrive too slowly. [`End::Refused`] if the node has no memory for them.
    pub(super) async fn read_raw(&mut self, count: usize) -> Result<Vec<u8>, End> {
        let deadline = Deadline::of(count);
        let buffered = self.buffer.buffer();
        let ready = buffered.len().min(count);
        let mut bytes = Vec::new();
        make_room(&mut bytes, ready).map_err(End::refused)?;
        bytes.extend_from_slice(&buffered.split_to(ready));
        while bytes.len() < count {
            let chunk = self.stream.read_chunk((count - bytes.len()).min(READ), true);
            match deadline.next(chunk).await?? {
                Some(chunk) => {
                    make_room(&mut bytes, chunk.bytes.len()).map_err(End::refused)?;
                    bytes.extend_from_slice(&chunk.bytes);
                }
                None => return Err(End::Closed),
            }
        }
        Ok(bytes)
    }
}

/// Makes room for bytes whose number a client or a worker states, so that a failed allocation ends its request and not
/// the node.
///
/// # Errors
/// The node has no memory for them.
pub(super) fn make_room(bytes: &mut Vec<u8>, additional: usize) -> Result<(), Refusal> {
    bytes.try_reserve(additional).map_err(|_| {
        let total = bytes.len() + additional;
        let detail = format!(
            "the node has no host memory for {total} bytes; try again later, or use another node"
        );
        (Status::CapacityExceeded, detail)
    })
}

/// Reads the opcode and the body of one frame of a worker. Reads nothing behind it.
pub(super) async fn read_frame(socket: &mut UnixStream) -> io::Result<(u16, Vec<u8>)> {
    let mut header = [0; HEADER_BYTES];
    socket.read_exact(&mut header).await?;
    let Header { opcode, length, .. } =
        Header::read(&mut Reader::new(&header)).map_err(io::Error::other)?;
    if length > FRAME_LIMIT {
        let (length, limit) = (length.into(), FRAME_LIMIT.into());
        return Err(io::Error::other(WireError::TooLong { what: "a frame", length, limit }));
    }
    let mut body = Vec::new();
    make_room(&mut body, length as usize).map_err(|(_, detail)| io::Error::other(detail))?;
    body.resize(length as usize, 0);
    socket.read_exact(&mut body).await?;
    Ok((opcode, body))
}

/// Sends one frame outside of a session.
pub(super) async fn send_frame(
    stream: &mut (impl AsyncWrite + Unpin),
    opcode: u16,
    id: u64,
    body: impl FnOnce(&mut Vec<u8>),
) -> io::Result<()> {
    let mut out = Vec::new();
    put_frame(&mut out, opcode, 0, id, body);
    stream.write_all(&out).await
}

/// Sends a reply to a client: one frame, and the bytes that follow it.
///
/// # Errors
/// [`End::Stalled`] if the client takes them too slowly.
pub(super) async fn send_reply(
    stream: &mut SendStream,
    opcode: u16,
    id: u64,
    body: impl FnOnce(&mut Vec<u8>),
    following: Bytes,
) -> Result<(), End> {
    let mut frame = Vec::new();
    put_frame(&mut frame, opcode, 0, id, body);
    send_bytes(stream, &mut [frame.into(), following]).await
}

/// Sends bytes to a client.
///
/// # Errors
/// [`End::Stalled`] if the client takes them too slowly.
pub(super) async fn send_bytes(
    stream: &mut SendStream,
    mut parts: &mut [Bytes],
) -> Result<(), End> {
    let deadline = Deadline::of(parts.iter().map(Bytes::len).sum());
    while !parts.is_empty() {
        let written = deadline.next(stream.write_chunks(parts)).await??;
        parts = &mut parts[written.chunks..];
    }
    Ok(())
}

/// Sends a refusal, and ends the stream.
pub(super) async fn refuse(stream: &mut SendStream, status: Status, detail: &str) {
    let refused = Refused { status, detail: detail.to_owned() };
    let body = |out: &mut Vec<u8>| refused.encode(out);
    _ = send_reply(stream, Refused::OPCODE, 0, body, Bytes::new()).await;
    _ = stream.finish();
}

#[cfg(test)]
mod tests {
    use cuda_lease::{
        authority::{ClientTls, ServerTls},
        internals::transport,
    };

    use super::*;

    /// The two ends of a connection, with the endpoint of the client.
    async fn connect() -> (quinn::Connection, quinn::Connection, quinn::Endpoint) {
        let listen = "127.0.0.1:0".parse().unwrap();
        let (mut config, _) = ServerTls::insecure().config_for(listen).unwrap();
        config.transport_config(transport::connection());
        let server =
            transport::endpoint(listen, Some((config, transport::ResetKey::derive(&[0; 32]))))
                .unwrap();
        let address = server.local_addr().unwrap();
        let accepted = tokio::spawn(async move { server.accept().await.unwrap().await.unwrap() });
        let client = transport::endpoint(listen, None).unwrap();
        let tls = ClientTls::loopback();
        let mut config = tls.config_for(address).unwrap();
        config.transport_config(transport::connection());
        let name = tls.server_name_for("127.0.0.1").unwrap();
        let connection = client.connect_with(config, address, &name).unwrap().await.unwrap();
        (accepted.await.unwrap(), connection, client)
    }

    /// All bytes of the frame arrive at once, before its length is known.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn frame_that_is_too_long_is_refused_also_if_it_is_complete() {
        let (accepted, connection, _endpoint) = connect().await;
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        for bytes in [100, 101] {
            send_frame(&mut send, 1, 0, |out| out.resize(out.len() + bytes, 0)).await.unwrap();
        }
        let (_send, receive) = accepted.accept_bi().await.unwrap();
        let mut stream = FrameStream::new(receive);
        stream.set_limit(100);
        assert_eq!(stream.next(|frame| Ok(frame.body.len())).await.unwrap(), 100);
        let error = stream.next(|frame| Ok(frame.body.len())).await.unwrap_err();
        assert!(error.to_string().contains("the limit is 100"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn memory_of_a_frame_is_released_and_the_bytes_behind_it_stay() {
        let (accepted, connection, _endpoint) = connect().await;
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        let mut out = Vec::new();
        put_frame(&mut out, 1, 0, 0, |out| out.resize(out.len() + (1 << 20), 0));
        put_frame(&mut out, 2, 0, 0, |_| {});
        let (first, second) = out.split_at(out.len() - 5);
        send.write_all(first).await.unwrap();
        let (_send, receive) = accepted.accept_bi().await.unwrap();
        let mut stream = FrameStream::new(receive);
        let opcode = |frame: Frame<'_>| Ok(frame.header.opcode);
        assert_eq!(stream.next(opcode).await.unwrap(), 1);
        stream.release();
        assert!(stream.buffer().buffer().capacity() <= READ);
        send.write_all(second).await.unwrap();
        assert_eq!(stream.next(opcode).await.unwrap(), 2);
    }

    /// `quinn` merges small parts of a stream that arrive in packets with parts of other streams. A merged chunk may have as
    /// many bytes as the window of the stream.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn small_parts_that_were_merged_are_read_in_bounded_steps() {
        const STREAMS: usize = 8;
        const PART: usize = 150;
        const BYTES: usize = 2 << 20;
        let (accepted, connection, _endpoint) = connect().await;
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            streams.push(connection.open_bi().await.unwrap());
        }
        for _ in 0..BYTES / PART {
            let before = connection.stats().frame_tx.stream;
            for (send, _) in &mut streams {
                send.write_all(&[7; PART]).await.unwrap();
            }
            while connection.stats().frame_tx.stream < before + 1 {
                tokio::task::yield_now().await;
            }
        }
        let (_send, receive) = accepted.accept_bi().await.unwrap();
        // Until everything has arrived.
        while accepted.stats().frame_rx.stream < connection.stats().frame_tx.stream {
            tokio::task::yield_now().await;
        }
        let mut stream = FrameStream::new(receive);
        let (mut total, mut most) = (0, 0);
        while total < BYTES / PART * PART {
            stream.fill().await.unwrap();
            let buffer = stream.buffer().buffer();
            total += buffer.len();
            most = most.max(buffer.len());
            assert!(buffer.iter().all(|byte| *byte == 7));
            buffer.clear();
        }
        assert!(most <= READ, "one step has {most} bytes");
    }
}
