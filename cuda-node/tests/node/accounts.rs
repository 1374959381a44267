//! The accounts of a lease: memory that it uses counts, and memory that is free in time is not refused.

use cuda_core::{
    Ticket,
    protocol::{AllocId, Control, Notice, Pattern, Region, Reply, Request, StreamId, Work},
};
use cuda_lease::wire::{Command, Event, Step};

use crate::{
    hostile::{attack, command, session},
    raw::RawClient,
};

/// The memory of the leases of raw clients.
const QUOTA: u64 = 1 << 20;

/// A program has half of its memory in use, and frees it on another stream than it allocates on. All of its work is
/// submitted before it waits, so allocations wait for frees.
#[test]
fn memory_that_is_freed_on_another_stream_is_not_refused() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (_, _, mut stream) = session(&mut client).await;
        let [first, second] = [1, 2].map(StreamId);
        let mut commands = Vec::new();
        for id in [first, second] {
            commands.push(Command::Control(Control::CreateStream { id, priority: 0 }));
        }
        let submit = |stream, number, after, work| {
            let step = Step::Work(work);
            Command::Submit { ticket: Ticket { stream, number }, after, step }
        };
        let count = 200;
        for round in 1..=count {
            let (id, bytes) = (AllocId(round), QUOTA / 2);
            let at = Ticket { stream: second, number: 2 * round - 1 };
            let filled = Ticket { stream: second, number: 2 * round };
            let to = Region { alloc: id, offset: 0 };
            let fill = Work::Fill { to, pattern: Pattern::Word(7), count: bytes / 4 };
            commands.push(Command::Control(Control::Allocate { id, bytes, at }));
            commands.push(submit(second, filled.number, Vec::new(), fill));
            commands.push(submit(first, round, vec![filled], Work::Join));
            let after = Vec::new();
            commands.push(Command::Control(Control::Free { id, stream: first, after }));
        }
        commands.push(Command::Request { id: 1, request: Request::Memory });
        let ticket = Ticket { stream: first, number: count };
        commands.push(Command::Control(Control::Want { ticket }));
        for (number, sent) in commands.into_iter().enumerate() {
            command(&mut stream, number as u64 + 1, sent).await;
        }
        let mut used = None;
        loop {
            let (opcode, body) = stream.reply().await.unwrap();
            match Event::decode(opcode, &body) {
                Ok(Event::Notice(Notice::Progress { stream, complete, .. }))
                    if stream == first && complete == count =>
                {
                    break;
                }
                Ok(Event::Notice(Notice::Failed { ticket, error })) => {
                    panic!("{ticket:?}: {error}")
                }
                Ok(Event::Reply { reply: Ok(Reply::Memory(info)), .. }) => used = Some(info.used),
                _ => {}
            }
        }
        assert_eq!(used, Some(0));
    });
}
