//! UDP sockets that receive and send many datagrams with one system call.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    net::sockopt,
};

use crate::link::Batch;

/// The size of each receive buffer: the most that the kernel returns as one message.
const BUFFER: usize = 64 << 10;

/// The most bytes that the kernel takes as one message.
const MAX_MESSAGE: usize = 65_000;

/// The kernel's buffers of each socket, in bytes.
const KERNEL_BUFFER: usize = 16 << 20;

/// The longest wait for space in the kernel's send buffer.
const SEND_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Receive buffers, which all sockets of a relay share.
pub(crate) struct Buffers {
    storage: Box<[u8]>,
    meta: [RecvMeta; BATCH_SIZE],
}

impl Buffers {
    pub(crate) fn new() -> Self {
        let storage = vec![0; BATCH_SIZE * BUFFER].into_boxed_slice();
        Self { storage, meta: [RecvMeta::default(); BATCH_SIZE] }
    }

    /// One received message: its sender and its datagrams. The batch has client 0.
    pub(crate) fn message(&self, index: usize) -> (SocketAddr, Batch<'_>) {
        let meta = &self.meta[index];
        let start = index * BUFFER;
        let contents = &self.storage[start..start + meta.len.min(BUFFER)];
        (meta.addr, Batch { client: 0, contents, segment: meta.stride.max(1), ecn: meta.ecn })
    }
}

/// A non-blocking UDP socket.
pub(crate) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let state = UdpSocketState::new((&socket).into())?;
        // The forced size needs a privilege. The kernel limits the other one.
        if sockopt::set_socket_recv_buffer_size_force(&socket, KERNEL_BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, KERNEL_BUFFER)?;
        }
        if sockopt::set_socket_send_buffer_size_force(&socket, KERNEL_BUFFER).is_err() {
            sockopt::set_socket_send_buffer_size(&socket, KERNEL_BUFFER)?;
        }
        Ok(Self { socket, state })
    }

    /// Binds a free port of any address of the same family as `peer`.
    pub(crate) fn bind_for(peer: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self::bind((any, 0).into())
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Receives messages and returns their number. An error counts as none: it concerns a datagram that was sent
    /// before.
    pub(crate) fn receive(&self, buffers: &mut Buffers) -> usize {
        let mut parts = buffers.storage.chunks_exact_mut(BUFFER);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(parts.next().unwrap_or_default()));
        self.state.recv((&self.socket).into(), &mut slices, &mut buffers.meta).unwrap_or(0)
    }

    /// Sends a batch. False if the kernel took only a part of it, or nothing.
    pub(crate) fn send(&self, destination: SocketAddr, batch: Batch<'_>) -> bool {
        let by_size = (MAX_MESSAGE / batch.segment).max(1);
        let mut sent = true;
        let mut rest = batch;
        // The kernel may refuse several datagrams in one message. They are then sent one by one.
        for size in [self.state.max_gso_segments().min(by_size), 1] {
            let mut done = 0;
            sent = rest.split(size).all(|part| {
                let ok = self.send_message(destination, part, size > 1);
                done += if ok { part.contents.len() } else { 0 };
                ok
            });
            rest.contents = &rest.contents[done..];
            if sent || size == 1 {
                break;
            }
        }
        sent
    }

    fn send_message(&self, destination: SocketAddr, batch: Batch<'_>, segmented: bool) -> bool {
        let segment_size =
            (segmented && batch.contents.len() > batch.segment).then_some(batch.segment);
        let transmit = Transmit {
            destination,
            ecn: batch.ecn,
            contents: batch.contents,
            segment_size,
            src_ip: None,
        };
        let send = || self.state.try_send((&self.socket).into(), &transmit);
        match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
                let _ = rustix::event::poll(&mut polled, Some(&SEND_WAIT));
                send().is_ok()
            }
            result => result.is_ok(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
