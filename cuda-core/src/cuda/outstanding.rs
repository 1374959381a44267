//! Who waits for a notice: a state machine that knows no CUDA.
//!
//! An entry is *waiting* from the moment it is accepted, *fired* once the device got there, and gone
//! once it was taken to be answered. Each transition takes the entry out of the state before, so
//! whoever comes second finds nothing: that is how every entry is answered exactly once, whichever of
//! the host function, the driver's refusal and the loss of the device comes first.

use std::collections::BTreeMap;

/// Names an entry; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

/// Entries that are not answered yet. `T` is what is known of each.
#[derive(Debug)]
pub(super) struct Outstanding<T> {
    next: u64,
    waiting: BTreeMap<Key, T>,
    fired: Vec<T>,
}

impl<T> Default for Outstanding<T> {
    fn default() -> Self {
        Self { next: 0, waiting: BTreeMap::new(), fired: Vec::new() }
    }
}

impl<T> Outstanding<T> {
    /// Takes an entry in, before the device is told of it: it may be faster than the caller.
    pub(super) fn accept(&mut self, entry: T) -> Key {
        let key = Key(self.next);
        self.next += 1;
        self.waiting.insert(key, entry);
        key
    }

    /// The device was never told. `None` if the entry was answered in the meantime.
    pub(super) fn withdraw(&mut self, key: Key) -> Option<T> {
        self.waiting.remove(&key)
    }

    /// The device got there. False if the entry was answered in the meantime.
    pub(super) fn fire(&mut self, key: Key) -> bool {
        match self.waiting.remove(&key) {
            Some(entry) => {
                self.fired.push(entry);
                true
            }
            None => false,
        }
    }

    /// Moves what has fired to `out`, in the order in which it did.
    pub(super) fn take_fired(&mut self, out: &mut Vec<T>) {
        out.append(&mut self.fired);
    }

    /// Moves everything to `out`, in the order in which it was accepted: the device is lost.
    pub(super) fn take_all(&mut self, out: &mut Vec<T>) {
        out.append(&mut self.fired);
        out.extend(std::mem::take(&mut self.waiting).into_values());
    }

    /// The one that has waited longest.
    pub(super) fn oldest(&self) -> Option<&T> {
        self.waiting.first_key_value().map(|(_, entry)| entry)
    }

    /// Whether something has fired and was not taken.
    pub(super) fn has_fired(&self) -> bool {
        !self.fired.is_empty()
    }

    /// Whether everything is answered.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.fired.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_function_that_comes_after_the_loss_changes_nothing() {
        let (mut state, mut out) = (Outstanding::default(), Vec::new());
        let key = state.accept("a");
        state.take_all(&mut out);
        assert!(!state.fire(key));
        assert!(state.is_empty() && !state.has_fired());
        assert_eq!(out, ["a"]);
    }

    #[test]
    fn a_refusal_that_comes_after_the_loss_was_answered_by_it() {
        let (mut state, mut out) = (Outstanding::default(), Vec::new());
        let key = state.accept("a");
        state.take_all(&mut out);
        assert_eq!((state.withdraw(key), out), (None, vec!["a"]));
    }

    #[test]
    fn what_fired_before_the_loss_is_answered_by_it_if_nobody_took_it() {
        let (mut state, mut out) = (Outstanding::default(), Vec::new());
        let (first, second) = (state.accept(1), state.accept(2));
        assert!(state.fire(second));
        assert_eq!(state.oldest(), Some(&1));
        state.take_all(&mut out);
        assert_eq!(out, [2, 1]);
        assert!(!state.fire(first) && !state.fire(second));
    }

    proptest! {
        /// Whatever happens in whatever order: nobody is answered twice, and once the device is lost
        /// everybody accepted until then was answered or withdrawn.
        #[test]
        fn everybody_is_answered_exactly_once(steps in prop::collection::vec((0_u8..5, 0_usize..16), 0..200)) {
            let mut state = Outstanding::default();
            let (mut keys, mut answered) = (Vec::new(), Vec::new());
            for (step, pick) in steps {
                let key = keys.get(pick % keys.len().max(1)).copied();
                match (step, key) {
                    (0, _) => keys.push(state.accept(keys.len())),
                    (1, Some(key)) => { state.fire(key); }
                    (2, Some(key)) => answered.extend(state.withdraw(key)),
                    (3, _) => state.take_fired(&mut answered),
                    (4, _) if pick == 0 => state.take_all(&mut answered),
                    _ => {}
                }
            }
            state.take_all(&mut answered);
            prop_assert!(state.is_empty());
            answered.sort_unstable();
            prop_assert_eq!(answered, (0..keys.len()).collect::<Vec<_>>());
        }
    }
}
