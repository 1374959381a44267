//! The choices of an autotuner, in memory and in a file.
//!
//! The file is text: a header, and a line for each choice with its key, its device and its candidate, separated by
//! tabs. Its newest choices are at the end.

use std::{
    collections::VecDeque,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// The maximum number of choices.
const MAX_CHOICES: usize = 4096;

/// The maximum number of bytes of a key, a device or a candidate in a file. Longer ones are only in memory.
const MAX_TEXT: usize = 1 << 10;

/// The maximum number of bytes of a file: 16 MiB.
const MAX_FILE: u64 = 16 << 20;

/// The first line.
const HEADER: &str = "cuda-async autotuner 1";

/// A key, and the name of a device.
type Place = (String, String);

/// The candidates that were chosen. The newest ones are at the end.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Choices(VecDeque<(Place, String)>);

impl Choices {
    pub(super) fn get(&self, place: &Place) -> Option<String> {
        self.0.iter().find(|(known, _)| known == place).map(|(_, choice)| choice.clone())
    }

    /// Sets a choice, and forgets the oldest one if there are too many.
    pub(super) fn set(&mut self, place: Place, choice: String) {
        self.0.retain(|(known, _)| *known != place);
        if self.0.len() >= MAX_CHOICES {
            self.0.pop_front();
        }
        self.0.push_back((place, choice));
    }

    /// Adds each choice of `others` whose place has no choice here.
    pub(super) fn add_missing(&mut self, others: &Self) {
        for (place, choice) in &others.0 {
            if self.get(place).is_none() {
                self.set(place.clone(), choice.clone());
            }
        }
    }

    fn to_text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for ((key, device), choice) in &self.0 {
            let fields = [key, device, choice];
            if fields.iter().all(|field| field.len() <= MAX_TEXT) {
                text += &fields.map(|field| escaped(field)).join("\t");
                text.push('\n');
            }
        }
        text
    }

    /// Returns `None` if a line is damaged.
    fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        lines.next().filter(|line| *line == HEADER)?;
        let mut choices = Self::default();
        for line in lines {
            let fields: Vec<String> = line.split('\t').map(unescaped).collect::<Option<_>>()?;
            let [key, device, choice] = <[String; 3]>::try_from(fields).ok()?;
            if choices.0.len() >= MAX_CHOICES {
                return None;
            }
            choices.0.push_back(((key, device), choice));
        }
        Some(choices)
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n")
}

/// Returns `None` for an escape that does not exist.
fn unescaped(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text.chars());
    while let Some(next) = rest.next() {
        out.push(match next {
            '\\' => match rest.next()? {
                '\\' => '\\',
                't' => '\t',
                'n' => '\n',
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}

/// A file of choices. Its methods block.
#[derive(Debug)]
pub(super) struct TuningFile(PathBuf);

impl TuningFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Reads the choices. There are none if the file is missing, damaged or not readable. The last two are logged as
    /// warnings.
    pub(super) fn read(&self) -> Choices {
        let path = self.0.display();
        match read_bounded(&self.0) {
            Ok(text) => Choices::from_text(&text).unwrap_or_else(|| {
                tracing::warn!(%path, "the autotuner's file is damaged: it is ignored and written anew");
                Choices::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Choices::default(),
            Err(error) => {
                tracing::warn!(%path, %error, "the autotuner's file cannot be read: it is ignored");
                Choices::default()
            }
        }
    }

    /// Adds a choice to those in the file. A failure is logged as a warning.
    pub(super) fn add(&self, place: Place, choice: String) {
        let mut choices = self.read();
        choices.set(place, choice);
        if let Err(error) = replace(&self.0, &choices.to_text()) {
            tracing::warn!(path = %self.0.display(), %error, "the autotuner's file cannot be written");
        }
    }
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    // Text that is too long or not UTF-8 is damaged, not unreadable.
    Ok(if bytes.len() as u64 > MAX_FILE {
        String::new()
    } else {
        String::from_utf8(bytes).unwrap_or_default()
    })
}

/// Replaces a file as a whole, by a rename.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{number}.new", std::process::id()));
    let new = PathBuf::from(name);
    let replaced = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        // Report the first error, not one of the removal.
        _ = fs::remove_file(&new);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(key: &str) -> Place {
        (key.into(), "NVIDIA H200".into())
    }

    #[test]
    fn text_holds_every_character() {
        let mut choices = Choices::default();
        choices.set(place("a\tb\\n\nc"), "(1, \"x\")".into());
        choices.set(place(""), String::new());
        assert_eq!(Choices::from_text(&choices.to_text()), Some(choices));
    }

    #[test]
    fn damaged_text_is_refused() {
        let good = format!("{HEADER}\nkey\tdevice\t64\n");
        assert!(Choices::from_text(&good).is_some());
        for bad in [
            String::new(),
            "something else\n".into(),
            good[..good.len() - 1].into(),
            format!("{HEADER}\nkey\tdevice\n"),
            format!("{HEADER}\nkey\tdevice\t64\tmore\n"),
            format!("{HEADER}\nkey\tdevice\t\\x\n"),
            format!("{HEADER}\n{}", "key\tdevice\t64\n".repeat(MAX_CHOICES + 1)),
        ] {
            assert_eq!(Choices::from_text(&bad), None, "{:.60}", bad);
        }
    }

    #[test]
    fn oldest_choice_is_forgotten_first() {
        let mut choices = Choices::default();
        for number in 0..MAX_CHOICES {
            choices.set(place(&number.to_string()), "1".into());
        }
        choices.set(place("0"), "2".into());
        choices.set(place("more"), "3".into());
        assert_eq!(choices.get(&place("1")), None);
        assert_eq!(choices.get(&place("0")), Some("2".into()));
        assert_eq!(choices.0.len(), MAX_CHOICES);
    }
}
