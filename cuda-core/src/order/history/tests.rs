//! Compares histories with a reference: the named edges order every conflicting pair of accesses. Runs with `Pieces`
//! alone, and with `Accesses`, which puts three numbers in front of them.

use std::collections::HashSet;

use proptest::{prelude::*, test_runner::TestCaseResult};

use super::*;
use crate::order::{MAX_READERS, history::Accesses};

const LEN: u64 = 100;

fn ticket(stream: u64, number: u64) -> Ticket {
    Ticket { stream: StreamId(stream), number }
}

fn claim(pieces: &mut Pieces, ticket: Ticket, access: Access) -> Vec<Ticket> {
    claim_in(pieces, ticket, access, 0..LEN)
}

fn claim_in(pieces: &mut Pieces, ticket: Ticket, access: Access, range: Range<u64>) -> Vec<Ticket> {
    let mut displaced = Displaced::new();
    pieces.claim(ticket, access, &range, range == (0..LEN), &mut displaced);
    displaced.into_iter().map(|(ticket, _)| ticket).collect()
}

#[test]
fn read_comes_after_a_write_of_another_stream_only() {
    let mut pieces = Pieces::of_stream(StreamId(1), 1, 0);
    assert_eq!(claim(&mut pieces, ticket(2, 1), Access::Read), [ticket(1, 1)]);
    assert!(claim(&mut pieces, ticket(1, 2), Access::Read).is_empty());
}

#[test]
fn write_comes_after_every_reader_and_supersedes_them() {
    let mut pieces = Pieces::of_stream(StreamId(1), 1, 0);
    for read in [ticket(2, 5), ticket(3, 7), ticket(2, 6)] {
        assert_eq!(claim(&mut pieces, read, Access::Read), [ticket(1, 1)]);
    }
    let after = claim(&mut pieces, ticket(4, 1), Access::Write);
    assert_eq!(after, [ticket(1, 1), ticket(3, 7), ticket(2, 6)]);
    assert_eq!(claim(&mut pieces, ticket(2, 7), Access::Read), [ticket(4, 1)]);
}

#[test]
fn reader_beyond_the_limit_replaces_the_oldest() {
    let mut pieces = Pieces::default();
    for stream in 0..MAX_READERS as u64 {
        assert!(claim(&mut pieces, ticket(stream, 1), Access::Read).is_empty());
    }
    assert_eq!(claim(&mut pieces, ticket(99, 1), Access::Read), [ticket(0, 1)]);
    assert_eq!(pieces.last_uses().len(), MAX_READERS);
}

/// A write on stream 2 is refused after it displaced the writer on stream 1: later reads still come after stream 1.
#[test]
fn restored_writer_stays_a_writer() {
    let mut pieces = Pieces::of_stream(StreamId(1), 7, 0);
    let mut displaced = Displaced::new();
    pieces.claim(ticket(2, 3), Access::Write, &(0..LEN), true, &mut displaced);
    pieces.retract(ticket(2, 3));
    pieces.restore(&(0..LEN), &displaced);
    assert!(claim(&mut pieces, ticket(3, 1), Access::Read).contains(&ticket(1, 7)));
    assert!(claim(&mut pieces, ticket(2, 3), Access::Read).contains(&ticket(1, 7)));
    assert!(claim(&mut pieces, ticket(4, 1), Access::Write).contains(&ticket(1, 7)));
}

#[test]
fn retracted_claim_leaves_the_earlier_use_of_its_stream() {
    let mut pieces = Pieces::of_stream(StreamId(1), 7, 0);
    claim(&mut pieces, ticket(1, 8), Access::Write);
    pieces.retract(ticket(1, 8));
    assert_eq!(claim(&mut pieces, ticket(2, 1), Access::Read), [ticket(1, 7)]);
    let mut fresh = Pieces::default();
    claim(&mut fresh, ticket(5, 1), Access::Read);
    fresh.retract(ticket(5, 1));
    assert!(fresh.last_uses().is_empty());
}

#[test]
fn pieces_are_ordered_separately_and_a_whole_write_joins_them() {
    let mut pieces = Pieces::of_stream(StreamId(1), 1, 0);
    pieces.split([40]).unwrap();
    pieces.split([70]).unwrap();
    pieces.split([40]).unwrap();
    assert_eq!(claim_in(&mut pieces, ticket(2, 1), Access::Write, 0..40), [ticket(1, 1)]);
    assert_eq!(claim_in(&mut pieces, ticket(3, 1), Access::Write, 40..70), [ticket(1, 1)]);
    assert_eq!(claim_in(&mut pieces, ticket(4, 1), Access::Read, 10..20), [ticket(2, 1)]);
    assert_eq!(
        claim_in(&mut pieces, ticket(4, 2), Access::Read, 69..71),
        [ticket(3, 1), ticket(1, 1)]
    );
    assert_eq!(pieces.last_uses().len(), 4);
    claim(&mut pieces, ticket(5, 1), Access::Write);
    assert_eq!(pieces.last_uses().as_slice(), [ticket(5, 1)]);
    assert!(pieces.rest.is_empty());
}

#[test]
fn pieces_are_limited() {
    let mut pieces = Pieces::<Ticket>::default();
    (1..MAX_PIECES as u64).for_each(|at| pieces.split([at]).unwrap());
    assert!(matches!(pieces.split([MAX_PIECES as u64]), Err(Error::OutOfRange { .. })));
    pieces.split([1]).unwrap();
}

/// An access, its position, and the tickets that it comes after.
type Log = Vec<(Ticket, Access, Range<u64>, Vec<Ticket>)>;

/// All accesses that the edges of the log put before `this`.
fn before(log: &Log, this: Ticket, after: &[Ticket]) -> HashSet<(u64, u64)> {
    let mut known = std::collections::HashMap::from([(this.stream, this.number - 1)]);
    let mut learn = |ticket: &Ticket| {
        let number = known.entry(ticket.stream).or_insert(0);
        *number = ticket.number.max(*number);
    };
    after.iter().for_each(&mut learn);
    let mut before = HashSet::new();
    for (earlier, _, _, theirs) in log.iter().rev() {
        if known.get(&earlier.stream).is_some_and(|number| earlier.number <= *number) {
            before.insert((earlier.stream.0, earlier.number));
            for ticket in theirs {
                let number = known.entry(ticket.stream).or_insert(0);
                *number = ticket.number.max(*number);
            }
        }
    }
    before
}

#[derive(Debug, Clone)]
enum Step {
    Use { stream: u64, write: bool, range: Range<u64>, refused: bool },
    Split(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..LEN, 1..=LEN).prop_map(|(start, len)| start..(start + len).min(LEN));
    let range = prop_oneof![2 => range, 1 => Just(0..LEN)];
    let uses = (0..12u64, prop::bool::weighted(0.3), range, prop::bool::weighted(0.15))
        .prop_map(|(stream, write, range, refused)| Step::Use { stream, write, range, refused });
    prop::collection::vec(prop_oneof![8 => uses, 1 => (1..LEN).prop_map(Step::Split)], 1..60)
}

/// The histories of an allocation: `Pieces`, or `Accesses` with its numbers in front of them.
trait Histories {
    fn enter(&mut self, by: Ticket, access: Access, range: &Range<u64>) -> Displaced;
    fn refuse(&mut self, by: Ticket, range: &Range<u64>, displaced: &Displaced);
    fn cut(&mut self, at: u64) -> Result<()>;
    fn uses(&self) -> Vec<Ticket>;
}

impl Histories for Pieces {
    fn enter(&mut self, by: Ticket, access: Access, range: &Range<u64>) -> Displaced {
        let mut displaced = Displaced::new();
        self.claim(by, access, range, false, &mut displaced);
        displaced
    }

    fn refuse(&mut self, by: Ticket, range: &Range<u64>, displaced: &Displaced) {
        self.retract(by);
        self.restore(range, displaced);
    }

    fn cut(&mut self, at: u64) -> Result<()> {
        self.split([at])
    }

    fn uses(&self) -> Vec<Ticket> {
        self.last_uses().to_vec()
    }
}

impl Histories for Accesses {
    fn enter(&mut self, by: Ticket, access: Access, range: &Range<u64>) -> Displaced {
        let mut displaced = Displaced::new();
        self.claim(by, access, range, *range == (0..LEN), &mut displaced);
        displaced
    }

    fn refuse(&mut self, by: Ticket, range: &Range<u64>, displaced: &Displaced) {
        self.retract(by);
        self.restore(range, displaced);
    }

    fn cut(&mut self, at: u64) -> Result<()> {
        self.split([at])
    }

    fn uses(&self) -> Vec<Ticket> {
        self.last_uses().to_vec()
    }
}

/// Of every two accesses to the same bytes, unless both read, the edges put the earlier one first. The last uses come
/// after all of them.
fn check(mut histories: impl Histories, steps: Vec<Step>) -> TestCaseResult {
    let allocated = ticket(0, 1);
    let (mut log, mut counts) = (Log::new(), [0u64; 12]);
    log.push((allocated, Access::Write, 0..LEN, Vec::new()));
    counts[0] = 1;
    for step in steps {
        let (stream, write, range, refused) = match step {
            Step::Split(at) => {
                prop_assert!(histories.cut(at).is_ok());
                continue;
            }
            Step::Use { stream, write, range, refused } => (stream, write, range, refused),
        };
        let access = if write { Access::Write } else { Access::Read };
        let this = ticket(stream, counts[stream as usize] + 1);
        let displaced = histories.enter(this, access, &range);
        if refused {
            histories.refuse(this, &range, &displaced);
            continue;
        }
        counts[stream as usize] += 1;
        let after: Vec<_> = displaced.into_iter().map(|(ticket, _)| ticket).collect();
        let before = before(&log, this, &after);
        for (earlier, kind, theirs, _) in &log {
            let conflict = write || *kind == Access::Write;
            let same = theirs.start < range.end && range.start < theirs.end;
            if conflict && same {
                let known = before.contains(&(earlier.stream.0, earlier.number));
                prop_assert!(known, "{earlier:?} {this:?}");
            }
        }
        log.push((this, access, range, after));
    }
    let freed = before(&log, ticket(99, 1), &histories.uses());
    prop_assert!(log.iter().all(|(by, ..)| freed.contains(&(by.stream.0, by.number))));
    Ok(())
}

proptest! {
    /// Conflicting accesses are ordered also after splits, and after refused submissions that restored the accesses
    /// that they had displaced.
    #[test]
    fn conflicting_accesses_are_ordered(steps in steps()) {
        check(Pieces::of_stream(StreamId(0), 1, 0), steps.clone())?;
        check(Accesses::written(ticket(0, 1)), steps)?;
    }
}

/// Few streams, so that one of them often uses the memory several times in a row.
fn steps_of_few_streams() -> impl Strategy<Value = Vec<Step>> {
    steps().prop_map(|mut steps| {
        for step in &mut steps {
            if let Step::Use { stream, .. } = step {
                *stream /= 5;
            }
        }
        steps
    })
}

proptest! {
    #[test]
    fn conflicting_accesses_of_few_streams_are_ordered(steps in steps_of_few_streams()) {
        check(Pieces::of_stream(StreamId(0), 1, 0), steps.clone())?;
        check(Accesses::written(ticket(0, 1)), steps)?;
    }
}
