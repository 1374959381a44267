//! Splits: the owner of a buffer splits it while a replay writes it.

use std::sync::Arc;

use ::loom::thread;

use super::check;
use crate::{
    order::history::{Accesses, Displaced},
    protocol::{Access, StreamId, Ticket},
};

fn ticket(stream: u64, number: u64) -> Ticket {
    Ticket { stream: StreamId(stream), number }
}

/// A split takes no turn. A later use of a part comes after the write of the replay all the same.
#[test]
fn split_beside_a_replay_keeps_the_replays_write() {
    check(None, || {
        let accesses = Arc::new(Accesses::written(ticket(1, 1)));
        let replay = thread::spawn({
            let (accesses, write) = (accesses.clone(), Access::Write);
            move || accesses.claim_locked(ticket(1, 2), write, &(0..8), true, &mut Displaced::new())
        });
        accesses.split([4]).unwrap();
        replay.join().unwrap();
        let mut after = Displaced::new();
        accesses.claim_locked(ticket(2, 1), Access::Write, &(4..8), false, &mut after);
        assert_eq!(after.as_slice(), [(ticket(1, 2), Access::Write)]);
    });
}
