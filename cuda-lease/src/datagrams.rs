//! A socket that gives each datagram memory of its own.
//!
//! The kernel joins datagrams, and `quinn` copies all that it has received with one call to one buffer, of which each
//! datagram is a part. What `quinn` keeps of a datagram keeps the whole buffer, and counts as the bytes of that datagram:
//! one byte of a stream behind a gap, a handshake that waits for its turn. So a peer that sends small datagrams beside
//! large ones would fill much more memory than the limits allow, even with large ones that belong to no connection. Here
//! `quinn` receives one datagram at a time, also of those that the kernel has joined.

use std::{
    array, fmt,
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};

/// The number of buffers for one call of the kernel, as in `quinn`.
const BATCH: usize = 32;

/// The maximum number of bytes of joined datagrams.
const JOINED: usize = 64 << 10;

/// A socket of which `quinn` receives one datagram at a time.
pub(super) struct Datagrams {
    socket: Arc<dyn AsyncUdpSocket>,
    received: Mutex<Received>,
}

/// Datagrams from the kernel.
struct Received {
    /// [`BATCH`] buffers.
    buffers: Box<[u8]>,
    batch: [RecvMeta; BATCH],
    /// The number of buffers that the kernel has filled.
    full: usize,
    /// The buffer of the next datagram, and its place there.
    next: (usize, usize),
}

impl Datagrams {
    pub(super) fn of(socket: Arc<dyn AsyncUdpSocket>) -> Arc<Self> {
        let buffers = vec![0; BATCH * JOINED].into();
        let batch = [RecvMeta::default(); BATCH];
        Arc::new(Self {
            socket,
            received: Received { buffers, batch, full: 0, next: (0, 0) }.into(),
        })
    }
}

impl Received {
    /// Receives datagrams if there are none.
    fn fill(&mut self, socket: &dyn AsyncUdpSocket, cx: &mut Context) -> Poll<io::Result<()>> {
        if self.next.0 == self.full {
            (self.full, self.next) = (0, (0, 0));
            let mut buffers = self.buffers.chunks_exact_mut(JOINED);
            let mut buffers: [_; BATCH] =
                array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
            self.full = ready!(socket.poll_recv(cx, &mut buffers, &mut self.batch))?;
        }
        Poll::Ready(Ok(()))
    }

    /// The next datagram, and what the kernel says about it.
    fn next(&mut self) -> Option<(&[u8], RecvMeta)> {
        let (number, start) = self.next;
        let meta = self.batch[..self.full].get(number)?;
        let end = meta.len.min(start + meta.stride);
        self.next = if end < meta.len { (number, end) } else { (number + 1, 0) };
        Some((&self.buffers[number * JOINED..][start..end], *meta))
    }
}

impl AsyncUdpSocket for Datagrams {
    fn poll_recv(
        &self,
        cx: &mut Context,
        buffers: &mut [IoSliceMut],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut received = self.received.lock();
        ready!(received.fill(&*self.socket, cx))?;
        let mut count = 0;
        for (buffer, meta) in buffers.iter_mut().zip(meta) {
            let Some((datagram, of)) = received.next() else { break };
            // Too large ones are cut, as the kernel does it.
            let length = datagram.len().min(buffer.len());
            buffer[..length].copy_from_slice(&datagram[..length]);
            *meta = of;
            (meta.len, meta.stride) = (length, length);
            count += 1;
        }
        Poll::Ready(Ok(count))
    }

    fn max_receive_segments(&self) -> usize {
        1
    }

    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.socket.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.socket.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A socket that has received joined datagrams.
    #[derive(Debug)]
    struct Joined(Mutex<Vec<(&'static [u8], usize)>>);

    impl AsyncUdpSocket for Joined {
        fn poll_recv(
            &self,
            _: &mut Context,
            buffers: &mut [IoSliceMut],
            meta: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            let received = std::mem::take(&mut *self.0.lock());
            for ((of, buffer), (bytes, stride)) in meta.iter_mut().zip(buffers).zip(&received) {
                buffer[..bytes.len()].copy_from_slice(bytes);
                (of.len, of.stride) = (bytes.len(), *stride);
            }
            if received.is_empty() { Poll::Pending } else { Poll::Ready(Ok(received.len())) }
        }
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            panic!("this socket only receives")
        }
        fn try_send(&self, _: &Transmit) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn local_addr(&self) -> io::Result<SocketAddr> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn joined_datagrams_arrive_one_at_a_time() {
        let joined: [(&[u8], _); 4] = [(b"aabbc", 2), (b"", 0), (b"ddd", 3), (b"too long", 8)];
        let socket = Datagrams::of(Arc::new(Joined(joined.to_vec().into())));
        let mut cx = Context::from_waker(Waker::noop());
        let mut arrived = Vec::new();
        loop {
            let mut bytes = [[0; 3]; 2];
            let [first, second] = &mut bytes;
            let mut buffers = [IoSliceMut::new(first), IoSliceMut::new(second)];
            let mut meta = [RecvMeta::default(); 2];
            let Poll::Ready(count) = socket.poll_recv(&mut cx, &mut buffers, &mut meta) else {
                break;
            };
            for (bytes, of) in bytes.iter().zip(meta).take(count.unwrap()) {
                assert_eq!(of.len, of.stride);
                arrived.push(bytes[..of.len].to_vec());
            }
        }
        assert_eq!(arrived, [&b"aa"[..], b"bb", b"c", b"", b"ddd", b"too"]);
    }
}
