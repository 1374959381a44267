//! Numbers of submissions: those of the client, and those of the backend.
//!
//! They differ, because one copy of the client becomes several submissions of the backend, and because the backend uses the
//! number of a refused submission again.

use std::collections::VecDeque;

/// The numbers of one stream.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The last number that the backend has taken.
    taken: u64,
    /// The last number that the backend has completed.
    completed: u64,
    /// The last number of the client that is complete.
    client_completed: u64,
    /// Submissions that are not known to be complete: the number of the client, and the last number of the backend that
    /// belongs to it. `u64::MAX` while parts of it are missing.
    in_flight: VecDeque<(u64, u64)>,
}

const UNFINISHED: u64 = u64::MAX;

impl Numbers {
    /// Returns the backend's number for the next part of submission `client`.
    pub(super) fn begin(&mut self, client: u64, is_last: bool) -> u64 {
        self.taken += 1;
        let last = if is_last { self.taken } else { UNFINISHED };
        match self.in_flight.back_mut() {
            Some(back) if back.0 == client => back.1 = last,
            _ => self.in_flight.push_back((client, last)),
        }
        self.taken
    }

    /// Withdraws the number that [`begin`](Self::begin) returned last, because the backend refused it. The submission
    /// is complete as soon as its predecessors are. Returns whether it is complete now.
    pub(super) fn refuse(&mut self) -> bool {
        self.taken -= 1;
        self.skip_open()
    }

    /// Records that submission `client` does not reach the backend. Returns whether it is complete.
    pub(super) fn skip(&mut self, client: u64) -> bool {
        match self.in_flight.back() {
            Some(back) if back.0 == client => {}
            _ => self.in_flight.push_back((client, UNFINISHED)),
        }
        self.skip_open()
    }

    fn skip_open(&mut self) -> bool {
        if let Some(back) = self.in_flight.back_mut() {
            back.1 = self.taken;
        }
        self.complete(self.completed).is_some()
    }

    /// Records that the backend has completed `number`. Returns the client's number if that completes more.
    pub(super) fn complete(&mut self, number: u64) -> Option<u64> {
        self.completed = self.completed.max(number);
        let before = self.client_completed;
        while let Some((client, last)) = self.in_flight.front()
            && *last <= self.completed
        {
            self.client_completed = *client;
            self.in_flight.pop_front();
        }
        (self.client_completed > before).then_some(self.client_completed)
    }

    /// The client's number for a number of the backend that is in flight.
    pub(super) fn client(&self, number: u64) -> Option<u64> {
        let found = self.in_flight.partition_point(|(_, last)| *last < number);
        self.in_flight.get(found).map(|(client, _)| *client)
    }

    /// The backend's number that completes submission `client` of the client.
    pub(super) fn backend(&self, client: u64) -> Stage {
        if client <= self.client_completed {
            return Stage::Complete;
        }
        let found = self.in_flight.partition_point(|(number, _)| *number < client);
        match self.in_flight.get(found) {
            Some((_, last)) if *last != UNFINISHED => Stage::Submitted(*last),
            _ => Stage::Held,
        }
    }

    /// The last number that is complete, in the client's count.
    pub(super) fn client_completed(&self) -> u64 {
        self.client_completed
    }

    /// The last number that the backend has taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The submissions that the backend has taken and not completed.
    pub(super) fn backlog(&self) -> u64 {
        self.taken - self.completed.min(self.taken)
    }
}

/// The position of a client's submission.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It, or a part of it, is not submitted.
    Held,
    /// It is complete with this number of the backend.
    Submitted(u64),
    /// It is complete.
    Complete,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_in_parts_is_complete_with_its_last_part() {
        let mut numbers = Numbers::default();
        assert_eq!((numbers.begin(1, false), numbers.begin(1, false)), (1, 2));
        assert_eq!((numbers.backend(1), numbers.complete(2)), (Stage::Held, None));
        assert_eq!(numbers.begin(1, true), 3);
        assert_eq!((numbers.begin(2, true), numbers.client(4)), (4, Some(2)));
        assert_eq!((numbers.client(2), numbers.backend(1)), (Some(1), Stage::Submitted(3)));
        assert_eq!(numbers.complete(3), Some(1));
        assert_eq!(numbers.complete(4), Some(2));
        assert_eq!(numbers.backend(2), Stage::Complete);
    }

    #[test]
    fn refused_submission_is_complete_with_those_before_it() {
        let mut numbers = Numbers::default();
        numbers.begin(1, true);
        numbers.begin(2, true);
        assert!(!numbers.refuse());
        assert_eq!(numbers.backend(2), Stage::Submitted(1));
        assert_eq!(numbers.complete(1), Some(2));
        assert!(numbers.skip(3));
        assert_eq!((numbers.client_completed(), numbers.begin(4, true)), (3, 2));
    }

    #[test]
    fn copy_that_is_refused_half_way_is_complete_with_its_first_parts() {
        let mut numbers = Numbers::default();
        numbers.begin(1, false);
        numbers.begin(1, false);
        assert!(!numbers.refuse());
        assert_eq!(numbers.backend(1), Stage::Submitted(1));
        assert_eq!(numbers.complete(1), Some(1));
    }
}
