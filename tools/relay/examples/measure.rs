//! Measures a relay: the error of its delay, and its throughput beside a direct connection.
//!
//! `cargo run --release -p relay --example measure`

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    measure::delays()?;
    measure::throughput()
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod measure {
    use std::{
        io::{self, IoSliceMut},
        net::{SocketAddr, UdpSocket},
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicU64, Ordering},
        },
        time::{Duration, Instant},
    };

    use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
    use relay::{Impairment, Relay, RelayOptions};

    const DATAGRAM: usize = 1400;
    const ROUNDS: usize = 1000;
    const RUN: Duration = Duration::from_secs(2);
    /// The bytes in flight between sender and receiver.
    const WINDOW: u64 = 2 << 20;

    /// Prints by how much one way through the relay exceeds its delay.
    pub fn delays() -> io::Result<()> {
        println!("one way through the relay, time above the delay in microseconds");
        println!("{:>9} {:>8} {:>8} {:>8} {:>8}", "delay", "least", "median", "p99", "most");
        for delay in [0, 200, 1000, 5000].map(Duration::from_micros) {
            let server = UdpSocket::bind("127.0.0.1:0")?;
            let relay = Relay::start(server.local_addr()?, RelayOptions::with_delay(delay))?;
            let client = UdpSocket::bind("127.0.0.1:0")?;
            client.connect(relay.address())?;
            let mut excess = Vec::new();
            for _ in 0..ROUNDS {
                let sent = Instant::now();
                client.send(&[0; 64])?;
                server.recv(&mut [0; 64])?;
                excess.push(sent.elapsed().saturating_sub(delay).as_nanos() as f64 / 1000.0);
            }
            excess.sort_by(f64::total_cmp);
            println!(
                "{:>9?} {:>8.1} {:>8.1} {:>8.1} {:>8.1}",
                delay,
                excess[0],
                excess[ROUNDS / 2],
                excess[ROUNDS * 99 / 100],
                excess[ROUNDS - 1],
            );
        }
        Ok(())
    }

    /// Prints the throughput of one sender with a window, by datagrams per system call.
    pub fn throughput() -> io::Result<()> {
        println!("throughput in MB/s, datagrams of {DATAGRAM} bytes, window {WINDOW} bytes");
        println!(
            "{:>9} {:>8} {:>8} {:>10} {:>8}",
            "per call", "direct", "relay", "delay 1ms", "jitter"
        );
        let delay = Duration::from_millis(1);
        let jitter = Impairment { jitter: Duration::from_micros(100), ..Impairment::default() };
        for segments in [1, 10, 44] {
            println!(
                "{segments:>9} {:>8.0} {:>8.0} {:>10.0} {:>8.0}",
                transfer(segments, None)?,
                transfer(segments, Some(RelayOptions::default()))?,
                transfer(segments, Some(RelayOptions::with_delay(delay)))?,
                transfer(
                    segments,
                    Some(RelayOptions { to_server: jitter.clone(), ..RelayOptions::default() })
                )?,
            );
        }
        Ok(())
    }

    /// The received megabytes per second.
    fn transfer(segments: usize, options: Option<RelayOptions>) -> io::Result<f64> {
        let server = UdpSocket::bind("127.0.0.1:0")?;
        let mut target = server.local_addr()?;
        let relay = options.map(|options| Relay::start(target, options)).transpose()?;
        if let Some(relay) = &relay {
            target = relay.address();
        }
        let received = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let sender = std::thread::spawn({
            let (received, stop) = (Arc::clone(&received), Arc::clone(&stop));
            move || send(target, segments, &received, &stop)
        });
        let (bytes, seconds) = receive(&server, &received)?;
        stop.store(true, Ordering::Relaxed);
        let lost = sender.join().map_err(|_| io::Error::other("the sender panicked"))??;
        if lost > 0 {
            println!("    {lost} bytes were lost");
        }
        Ok(bytes as f64 / seconds / 1e6)
    }

    /// Sends until it is stopped. Returns the bytes that did not arrive in time.
    fn send(
        target: SocketAddr,
        segments: usize,
        received: &AtomicU64,
        stop: &AtomicBool,
    ) -> io::Result<u64> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let state = UdpSocketState::new((&socket).into())?;
        let contents = vec![1; segments * DATAGRAM];
        let transmit = Transmit {
            destination: target,
            ecn: None,
            contents: &contents,
            segment_size: (segments > 1).then_some(DATAGRAM),
            src_ip: None,
        };
        let (mut sent, mut lost) = (0, 0);
        let mut progressed = (0, Instant::now());
        while !stop.load(Ordering::Relaxed) {
            let arrived = received.load(Ordering::Acquire);
            if sent - lost - arrived < WINDOW {
                if state.try_send((&socket).into(), &transmit).is_ok() {
                    sent += contents.len() as u64;
                }
            } else if arrived != progressed.0 {
                progressed = (arrived, Instant::now());
                std::thread::yield_now();
            } else if progressed.1.elapsed() > Duration::from_millis(20) {
                lost = sent - arrived;
            } else {
                std::thread::yield_now();
            }
        }
        Ok(lost)
    }

    /// Receives for the time of a run, and returns the bytes and the seconds.
    fn receive(server: &UdpSocket, received: &AtomicU64) -> io::Result<(u64, f64)> {
        let state = UdpSocketState::new(server.into())?;
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(server, 16 << 20);
        server.set_nonblocking(false)?;
        server.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut storage = vec![0; 65_536];
        let mut meta = [RecvMeta::default()];
        let started = Instant::now();
        let mut bytes = 0;
        while started.elapsed() < RUN {
            let mut slices = [IoSliceMut::new(&mut storage)];
            if state.recv(server.into(), &mut slices, &mut meta).is_ok() {
                bytes += meta[0].len as u64;
                received.store(bytes, Ordering::Release);
            }
        }
        Ok((bytes, started.elapsed().as_secs_f64()))
    }
}
