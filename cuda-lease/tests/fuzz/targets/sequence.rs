//! Numbering, acknowledgement and resumption, with a peer that keeps no rule.

use cuda_lease::{
    session::{Incoming, Outgoing},
    wire::{FrameBuffer, HEADER_BYTES, Header, put_frame},
};

use super::input::Input;

/// Each byte is a step, with operands behind it. The frames that an honest receiver accepts must be those that were
/// pushed, each once and in order. A hostile receiver may claim anything.
pub fn sequence(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let is_hostile = input.byte() & 1 == 1;
    let (mut outgoing, mut incoming) = (Outgoing::new(3), Incoming::new(3));
    let (mut buffer, mut on_the_way) = (FrameBuffer::default(), Vec::new());
    let (mut pushed, mut arrived) = (0u64, 0u64);
    while !input.is_empty() {
        match input.byte() % 7 {
            0 => {
                let padding = usize::from(input.byte());
                let sequence = outgoing.push(9, |out| {
                    out.extend_from_slice(&pushed.to_le_bytes());
                    out.resize(out.len() + padding, 0);
                });
                pushed += 1;
                assert_eq!(sequence, pushed);
            }
            1 => on_the_way.extend(outgoing.take().into_iter().flatten()),
            2 => {
                let count = usize::from(input.byte()).min(on_the_way.len());
                let part: Vec<u8> = on_the_way.drain(..count).collect();
                buffer.extend(&part);
                for frame in buffer.take().unwrap().iter() {
                    // A resumption repeats frames, but never skips one.
                    if incoming.accept(&frame.header).unwrap() {
                        assert_eq!(frame.body[..8], arrived.to_le_bytes());
                        arrived += 1;
                    }
                }
            }
            3 => outgoing.acknowledge(incoming.received()).unwrap(),
            4 => {
                on_the_way.clear();
                buffer = FrameBuffer::default();
                outgoing.resume(incoming.received()).unwrap();
            }
            5 if is_hostile => {
                let claimed = claim(&mut input, pushed);
                let before = (outgoing.acknowledged(), outgoing.bytes());
                if outgoing.acknowledge(claimed).is_err() {
                    assert_eq!((outgoing.acknowledged(), outgoing.bytes()), before);
                }
                assert!(outgoing.acknowledged() <= outgoing.last());
                if outgoing.acknowledged() > incoming.received() {
                    // The peer has lied about frames that are gone now.
                    return hostile(input, outgoing, pushed);
                }
            }
            _ => stray(&mut input, &mut incoming),
        }
        assert!(outgoing.bytes() as u64 <= pushed * (HEADER_BYTES as u64 + 8 + 255));
        assert_eq!(incoming.received(), arrived);
    }
}

/// Goes on with claims alone.
fn hostile(mut input: Input<'_>, mut outgoing: Outgoing, pushed: u64) {
    while !input.is_empty() {
        let claimed = claim(&mut input, pushed);
        _ = match input.byte() % 3 {
            0 => outgoing.acknowledge(claimed),
            1 => outgoing.resume(claimed),
            _ => {
                _ = outgoing.take();
                Ok(())
            }
        };
        assert!(outgoing.acknowledged() <= outgoing.last());
    }
}

fn claim(input: &mut Input<'_>, pushed: u64) -> u64 {
    let near = (pushed + 2).saturating_sub(u64::from(input.byte()));
    input.one_of(&[near, near, 0, u64::MAX])
}

/// A frame that is not the next one: it must change nothing.
fn stray(input: &mut Input<'_>, incoming: &mut Incoming) {
    let (received, epoch) = (incoming.received(), input.one_of(&[3u32, 3, 0, u32::MAX]));
    let sequence = input.one_of(&[0, received, received + 2, u64::MAX]);
    let mut frame = Vec::new();
    put_frame(&mut frame, 9, epoch, sequence, |_| {});
    let header = Header::read(&mut cuda_lease::wire::Reader::new(&frame)).unwrap();
    let accepted = incoming.accept(&header);
    assert_ne!(accepted, Ok(true));
    assert_eq!(incoming.received(), received);
    _ = incoming.acknowledgement();
}
