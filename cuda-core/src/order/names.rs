//! Names of the operations that are being recorded. Independent of devices.

use crate::protocol::Name;

/// The named operations that have begun and not ended, outermost first. Each entry holds the full name: those of the
/// outer operations and its own, separated by `/`.
#[derive(Debug, Default)]
pub(crate) struct Names {
    begun: Vec<(u64, Name)>,
    next: u64,
}

impl Names {
    /// Begins an operation inside the current one. Returns the key of its [end](Self::end).
    pub(crate) fn begin(&mut self, name: &str) -> u64 {
        let full = match self.begun.last() {
            Some((_, outer)) => format!("{outer}/{name}").into(),
            None => name.into(),
        };
        let key = self.next;
        self.next += 1;
        self.begun.push((key, full));
        key
    }

    /// Ends the operation with this key. Operations may end in any order, and a second end has no effect.
    pub(crate) fn end(&mut self, key: u64) {
        self.begun.retain(|(begun, _)| *begun != key);
    }

    /// The full name of the innermost operation.
    pub(crate) fn current(&self) -> Option<&Name> {
        self.begun.last().map(|(_, name)| name)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_nest_and_end_in_any_order() {
        let mut names = Names::default();
        assert_eq!(names.current(), None);
        let outer = names.begin("a");
        let inner = names.begin("b");
        assert_eq!(names.current().map(|name| &**name), Some("a/b"));
        names.end(outer);
        assert_eq!(names.current().map(|name| &**name), Some("a/b"));
        names.end(inner);
        names.end(inner);
        assert_eq!(names.current(), None);
    }
}
