//! Evaluates a graph in plain Rust.

use std::ops::Range;

use super::program::{Change, Node, Round};

/// The number of elements of every buffer.
pub const LEN: usize = 8;

pub type Words = Vec<u32>;

/// A part of the graph fails, and so does every user of that part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fails;

pub fn value(round: &Round, registers: &[Words], node: usize) -> Result<Words, Fails> {
    let sub = |node: &usize| value(round, registers, *node);
    match &round.nodes[node] {
        Node::Upload(x) => Ok(vec![*x; LEN]),
        Node::Uninitialized(x) => Ok(counted(*x)),
        Node::Register(register) => Ok(registers[*register].clone()),
        Node::Mad(of, a, b) => Ok(mad(&sub(of)?, *a, *b)),
        Node::Add(a, b) => Ok(added(&sub(a)?, &sub(b)?)),
        Node::Sum(parts) => {
            parts.iter().try_fold(vec![0; LEN], |sum, part| Ok(added(&sum, &sub(part)?)))
        }
        Node::Host(of) => Ok(changed(sub(of)?)),
        Node::Fork(of, x) => Ok(added(&sub(of)?, &mad(&counted(*x), 3, 0))),
        Node::Join(of, x) => Ok(added(&sub(of)?, &counted(*x))),
        Node::Mark(of, _) => sub(of),
        Node::Told(of) => match &round.nodes[*of] {
            Node::Mark(_, x) => Ok(added(&sub(of)?, &counted(*x))),
            other => panic!("{other:?} is not a mark"),
        },
        Node::Pieces(of, cut, changes) => {
            let mut words = sub(of)?;
            for (range, change) in cut.ranges().into_iter().zip(changes.iter().cycle()) {
                apply(*change, &mut words[range], registers);
            }
            Ok(words)
        }
        Node::Tail(of, at, x) => {
            let mut words = sub(of)?;
            words[..*at].fill(*x);
            Ok(words)
        }
        Node::Swap(of, mid) => {
            let mut words = sub(of)?;
            words.rotate_left(*mid);
            Ok(words)
        }
        Node::Fail(..) => Err(Fails),
    }
}

pub fn mad(x: &[u32], a: u32, b: u32) -> Words {
    x.iter().map(|x| x.wrapping_mul(a).wrapping_add(b)).collect()
}

pub fn added(a: &[u32], b: &[u32]) -> Words {
    a.iter().zip(b).map(|(a, b)| a.wrapping_add(*b)).collect()
}

/// `x`, `x + 1`, ..
pub fn counted(x: u32) -> Words {
    (0..LEN as u32).map(|i| x.wrapping_add(i)).collect()
}

/// Applies a change to some elements.
pub fn apply(change: Change, words: &mut [u32], registers: &[Words]) {
    let source = |register: usize, at| &registers[register][source_range(at, words.len())];
    let new = match change {
        Change::Mad(a, b) => mad(words, a, b),
        Change::Fill(v) => vec![v; words.len()],
        Change::Count(v) | Change::CountAndCopy(v) | Change::Upload(v) => {
            counted(v)[..words.len()].to_vec()
        }
        Change::Copy { from, at } => source(from, at).to_vec(),
        Change::Sum { a, b, at } => added(source(a, at), source(b, at)),
        Change::Host(v) => mad(words, 1, v),
    };
    words.copy_from_slice(&new);
}

/// The elements that a change of `len` elements reads, at `at` or before it.
pub fn source_range(at: usize, len: usize) -> Range<usize> {
    let start = at.min(LEN - len);
    start..start + len
}

/// The host's change to a value.
pub fn changed(mut x: Words) -> Words {
    x.reverse();
    x[0] = x[0].wrapping_mul(3);
    x
}
