//! Defines an enum whose variants are words of PTX.

/// Defines an enum of words, in the order of their texts: `words! { /// .. pub enum Color { Blue = "blue", Red = "red" } }`.
///
/// The enum has `ALL`, `name` and `from_name`. Words out of order do not compile, because `from_name` searches them.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // Each variant is named like its word.
        #[repr(u16)]
        pub enum $name { $($variant,)* }

        impl $name {
            /// All words, in the order of their texts.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            const NAMES: &'static [&'static str] = &[$($text,)*];
            const _SORTED: () = assert!($crate::words::is_sorted(Self::NAMES), "words are out of order");

            /// Returns the word, as it is written in PTX.
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            /// Returns the variant of a word.
            pub fn from_name(name: &str) -> Option<Self> {
                let () = Self::_SORTED;
                let at = Self::NAMES.binary_search(&name).ok()?;
                Self::ALL.get(at).copied()
            }
        }
    };
}

pub(crate) use words;

/// Returns whether the texts are sorted by their bytes, without repetitions.
pub(crate) const fn is_sorted(names: &[&str]) -> bool {
    let mut i = 1;
    while i < names.len() {
        if !is_less(names[i - 1].as_bytes(), names[i].as_bytes()) {
            return false;
        }
        i += 1;
    }
    true
}

const fn is_less(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return a[i] < b[i];
        }
        i += 1;
    }
    a.len() < b.len()
}
