//! One direction of a link: frames arrive in order, each after a fixed time.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

pub struct FarEnd(Sender<(Instant, Vec<u8>)>, Duration);

/// The sending end and the receiving end. The receiver ends when the sender is dropped and everything has arrived.
pub fn link(delay: Duration) -> (FarEnd, Receiver<Vec<u8>>) {
    let (send, under_way) = channel::<(Instant, Vec<u8>)>();
    let (arrive, receive) = channel();
    thread::spawn(move || {
        for (due, frame) in under_way {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if arrive.send(frame).is_err() {
                return;
            }
        }
    });
    (FarEnd(send, delay), receive)
}

impl FarEnd {
    /// Sends a frame, without waiting for anything.
    pub fn send(&self, frame: Vec<u8>) {
        // The other end may be gone.
        let _ = self.0.send((Instant::now() + self.1, frame));
    }
}
