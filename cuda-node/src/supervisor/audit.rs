//! The audit log: one line of JSON for each decision about a lease.
//!
//! A thread writes the lines, so a file that is slow or full, or a FIFO that no process reads, does not stop the node.
//! The lines that wait are in memory. While too many wait, or the file cannot be written, the node grants no lease, so
//! no line of a lease is lost, and their number is limited. Refusals and renewals have no limit: then their lines are
//! dropped, and a line `dropped` tells how many.
//!
//! A reload opens the path again, so that a file can be renamed. If the path still leads to the open file, that one
//! stays open: the reader of a FIFO would see its end. A file that was removed counts as one that cannot be written.
//!
//! No call on a FIFO blocks, so that a reload can replace one that no process reads.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    mem,
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cuda_core::{Error, Result};
use cuda_lease::wire::Status;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use tokio::sync::watch;

use crate::supervisor::streams::Refusal;

/// The limit of the lines that wait, in bytes: some thousand lines.
const WAITING: usize = 1 << 20;

/// The time between attempts to write.
const RETRY: Duration = Duration::from_secs(1);

/// The time between attempts to write to a FIFO that is full, or that no process reads.
const FIFO_RETRY: Duration = Duration::from_millis(20);

/// A decision about a lease. Fields that do not apply are left out.
#[derive(Debug, Default, Serialize)]
pub(super) struct Entry<'a> {
    /// `granted`, `refused`, `denied`, `renewed`, `freed`, `ending`, `ended`, `fenced`, `unfenced`, `revoked` or `dropped`.
    pub(super) event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<&'a str>,
    /// The quota in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<u64>,
    /// The reason of a refusal or of an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The number of lines that were dropped before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<u64>,
}

impl Entry<'_> {
    /// Whether clients can cause any number of these lines.
    fn is_unlimited(&self) -> bool {
        matches!(self.event, "refused" | "denied" | "renewed")
    }

    fn line(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Line<'a> {
            /// Milliseconds since 1970, by the clock of the machine.
            time_ms: u64,
            #[serde(flatten)]
            entry: &'a Entry<'a>,
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = since.as_millis().try_into().unwrap_or(u64::MAX);
        // Strings and numbers have a JSON form.
        let mut line = serde_json::to_vec(&Line { time_ms, entry: self }).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// The audit log of a node, or none.
#[derive(Default)]
pub(super) struct Audit(Option<Arc<Log>>);

struct Log {
    path: PathBuf,
    /// The limit of [`Lines::len`], beyond which no lease is granted.
    limit: usize,
    lines: Mutex<Lines>,
    changed: Condvar,
    /// The bytes that are in the file. Changed while the lines are locked.
    written: watch::Sender<u64>,
}

/// The lines that are not in the file yet.
#[derive(Default)]
struct Lines {
    waiting: Vec<u8>,
    /// The bytes that the thread has taken to write.
    taken: usize,
    /// The lines that were dropped since the last line `dropped`.
    dropped: u64,
    /// Why the last attempt to write failed.
    failure: Option<String>,
    /// The target that a reload has opened, until the thread takes it.
    reopened: Option<Target>,
    /// Whether the thread ends once no lines wait, or at the next failure.
    is_closed: bool,
}

/// The file of a log.
#[derive(Debug)]
pub(super) struct Target {
    /// `None` for a FIFO until a process reads it.
    file: Option<File>,
    /// The device and the number of the file, which no other file has while this one is open.
    id: (u64, u64),
    /// Whether the last line of the file is known to have its end.
    has_whole_lines: bool,
}

impl Target {
    fn open(path: &Path, creates: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create(creates).mode(0o600).custom_flags(libc::O_NONBLOCK);
        let (file, metadata) = match options.open(path) {
            Ok(file) => {
                let metadata = file.metadata()?;
                (Some(file), metadata)
            }
            Err(error) => {
                let metadata = path.metadata().ok().filter(|of| of.file_type().is_fifo());
                let is_unread = error.raw_os_error() == Some(libc::ENXIO);
                (None, metadata.filter(|_| is_unread).ok_or(error)?)
            }
        };
        Ok(Self { file, id: (metadata.dev(), metadata.ino()), has_whole_lines: false })
    }

    /// Writes a part of the bytes.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) for a FIFO that is full, or that no process reads.
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<usize> {
        if self.file.is_none() {
            *self = Self::open(path, false)?;
        }
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::WouldBlock.into()) };
        let metadata = file.metadata()?;
        if metadata.nlink() == 0 {
            let message = "the file was removed; run `cuda-node reload`, which creates it again";
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        // A node that was killed may have left a part of a line. Later parts are of the line that this thread writes.
        if !self.has_whole_lines && metadata.is_file() && has_part_of_line(file).unwrap_or(false) {
            file.write_all(b"\n")?;
        }
        self.has_whole_lines = true;
        match file.write(bytes)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            bytes => Ok(bytes),
        }
    }
}

impl Lines {
    fn len(&self) -> usize {
        self.waiting.len() + self.taken
    }
}

impl Audit {
    /// Appends to the file at `path`, which is created with mode 0600.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started. A FIFO is opened when a process reads it.
    pub(super) fn append_to(path: &Path) -> io::Result<Self> {
        Self::with_limit(path, WAITING)
    }

    fn with_limit(path: &Path, limit: usize) -> io::Result<Self> {
        let target = Target::open(path, true)?;
        let (lines, changed, written) = Default::default();
        let log = Arc::new(Log { path: path.to_owned(), limit, lines, changed, written });
        let of_thread = log.clone();
        let thread = thread::Builder::new().name("lease-audit".into());
        thread.spawn(move || of_thread.write_lines(target))?;
        Ok(Self(Some(log)))
    }

    /// Opens the path again, for [`switch`](Self::switch).
    ///
    /// # Errors
    /// The file cannot be opened. The error names it.
    pub(super) fn open_again(&self) -> Result<Option<Target>> {
        let Some(log) = &self.0 else { return Ok(None) };
        let opened = Target::open(&log.path, true);
        opened.map(Some).map_err(|error| open_error(&log.path, &error))
    }

    /// Writes later lines, and those that wait, to a target that was opened.
    pub(super) fn switch(&self, target: Option<Target>) {
        if let (Some(log), Some(target)) = (&self.0, target) {
            log.lines.lock().reopened = Some(target);
            log.changed.notify_all();
        }
    }

    /// Adds a line. Never blocks.
    pub(super) fn write(&self, entry: &Entry<'_>) {
        let Some(log) = &self.0 else { return };
        let line = entry.line();
        let mut lines = log.lines.lock();
        if entry.is_unlimited() && lines.len() + line.len() > log.limit {
            lines.dropped += 1;
            return;
        }
        if lines.dropped > 0 {
            let dropped = Some(mem::take(&mut lines.dropped));
            let entry = Entry { event: "dropped", lines: dropped, ..Entry::default() };
            lines.waiting.extend(entry.line());
        }
        lines.waiting.extend(line);
        log.changed.notify_all();
    }

    /// Checks that decisions are being written, before a lease is granted.
    ///
    /// # Errors
    /// [`Status::CapacityExceeded`] if too many lines wait, or the file cannot be written.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let Some(log) = &self.0 else { return Ok(()) };
        let lines = log.lines.lock();
        let reason = match &lines.failure {
            Some(failure) => failure.clone(),
            None if lines.len() > log.limit => format!("{} bytes wait", lines.len()),
            None => return Ok(()),
        };
        let message = format!(
            "the audit log of the node cannot be written ({reason}), and the node grants no lease without it; try again later, or tell the operator of the node"
        );
        Err((Status::CapacityExceeded, message))
    }

    /// Waits until all lines that were added before are in the file, however long that takes.
    pub(super) async fn written(&self) {
        let Some(log) = &self.0 else { return };
        let until = {
            let lines = log.lines.lock();
            *log.written.borrow() + lines.len() as u64
        };
        _ = log.written.subscribe().wait_for(|written| *written >= until).await;
    }

    /// Waits until all lines are in the file, until one cannot be written, or for `limit`. Logs an error if lines are lost.
    pub(super) fn flush(&self, limit: Duration) {
        let Some(log) = &self.0 else { return };
        let until = Instant::now() + limit;
        let mut lines = log.lines.lock();
        while lines.len() > 0 && lines.failure.is_none() {
            if log.changed.wait_until(&mut lines, until).timed_out() {
                break;
            }
        }
        if lines.len() > 0 {
            let (bytes, path) = (lines.len(), log.path.display());
            tracing::error!(bytes, %path, "the node ends, and the last lines of its audit log are lost");
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if let Some(log) = &self.0 {
            log.lines.lock().is_closed = true;
            log.changed.notify_all();
        }
    }
}

/// The error of a log that cannot be opened.
pub(super) fn open_error(path: &Path, error: &io::Error) -> Error {
    Error::host(format!("failed to open the audit log {}", path.display()), error)
}

/// Whether a file, which is open for writing, has a last line without an end.
fn has_part_of_line(file: &File) -> io::Result<bool> {
    // The file itself, whatever the path leads to by now.
    let mut file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok(last != [b'\n'])
}

impl Log {
    /// The thread: writes the lines until the log is closed.
    fn write_lines(&self, mut target: Target) {
        // The bytes of earlier lines.
        let mut earlier = 0;
        while let Some(lines) = self.take() {
            let mut done = 0;
            self.take_reopened(&mut target);
            while done < lines.len() {
                // After a part, the next attempt goes on behind it, so every line is whole.
                let written = self.retry(|| {
                    if self.take_reopened(&mut target) {
                        // The line begins again in the new file.
                        done = lines[..done]
                            .iter()
                            .rposition(|byte| *byte == b'\n')
                            .map_or(0, |end| end + 1);
                    }
                    target.write(&self.path, &lines[done..])
                });
                let Some(bytes) = written else { return };
                done += bytes;
                let mut waiting = self.lines.lock();
                waiting.taken = lines.len() - done;
                self.written.send_modify(|written| *written = earlier + done as u64);
                self.changed.notify_all();
            }
            earlier += lines.len() as u64;
        }
    }

    /// Replaces the target by one that a reload has opened, unless that is the same open file. Returns whether the lines
    /// now go to another one.
    fn take_reopened(&self, target: &mut Target) -> bool {
        let reopened = self.lines.lock().reopened.take();
        let is_same = |reopened: &Target| target.file.is_some() && target.id == reopened.id;
        let other = reopened.filter(|reopened| !is_same(reopened));
        other.map(|other| *target = other).is_some()
    }

    /// Waits for lines, or for a target that a reload has opened. Returns `None` once there are no lines and the log is
    /// closed.
    fn take(&self) -> Option<Vec<u8>> {
        let mut lines = self.lines.lock();
        while lines.waiting.is_empty() && lines.reopened.is_none() {
            if lines.is_closed {
                return None;
            }
            self.changed.wait(&mut lines);
        }
        lines.taken = lines.waiting.len();
        Some(mem::take(&mut lines.waiting))
    }

    /// Calls `attempt` until it succeeds. Returns `None` if it fails when the log is closed.
    fn retry<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> Option<T> {
        loop {
            match attempt() {
                Ok(value) => {
                    self.lines.lock().failure = None;
                    return Some(value);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let mut lines = self.lines.lock();
                    let pause = if error.kind() == io::ErrorKind::WouldBlock {
                        // The lines wait: no failure, until there are too many.
                        lines.failure = None;
                        FIFO_RETRY
                    } else {
                        if lines.failure.is_none() {
                            tracing::error!(%error, path = %self.path.display(), "the audit log cannot be written");
                        }
                        lines.failure = Some(error.to_string());
                        self.changed.notify_all();
                        RETRY
                    };
                    let next = Instant::now() + pause;
                    while !lines.is_closed && lines.reopened.is_none() && Instant::now() < next {
                        self.changed.wait_until(&mut lines, next);
                    }
                    if lines.is_closed {
                        return None;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        os::unix::fs::PermissionsExt,
    };

    use tempfile::TempDir;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn text(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn each_decision_is_one_line_of_json() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::append_to(&path).unwrap();
        let reason = Some("it says \"no\"\nand more".to_owned());
        audit.write(&Entry { event: "refused", tenant: Some("alice"), reason, ..Entry::default() });
        audit.write(&Entry { event: "ended", lease: Some(7), ..Entry::default() });
        audit.flush(LONG);
        let lines = text(&path);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["reason"], "it says \"no\"\nand more");
        assert_eq!((&lines[1]["lease"], lines[1].get("tenant")), (&7.into(), None));
        assert!(lines[1]["time_ms"].as_u64() > Some(1_700_000_000_000));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn fifo_that_nobody_reads_stops_new_leases_and_loses_no_line_of_a_lease() {
        let folder = TempDir::new().unwrap();
        let path = fifo(&folder);
        let audit = Audit::with_limit(&path, 1000).unwrap();
        let mut granted = 0;
        while audit.check().is_ok() {
            audit.write(&Entry { event: "granted", lease: Some(granted), ..Entry::default() });
            granted += 1;
            assert!(granted < 10_000, "leases are granted without an audit log");
        }
        let (status, message) = audit.check().unwrap_err();
        assert_eq!(status, Status::CapacityExceeded);
        assert!(message.contains("audit log") && message.contains("bytes wait"), "{message}");
        for _ in 0..100_000 {
            audit.write(&Entry { event: "refused", ..Entry::default() });
        }
        assert!(audit.0.as_ref().unwrap().lines.lock().len() < 1200);
        audit.write(&Entry { event: "ended", lease: Some(0), ..Entry::default() });
        // A reader comes, and everything is there.
        let mut reader = File::open(&path).unwrap();
        audit.flush(LONG);
        assert_eq!(audit.check(), Ok(()));
        drop(audit);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count() as u64;
        assert_eq!((count("granted"), count("ended"), count("refused")), (granted, 1, 0));
        let dropped = lines.iter().find(|line| line["event"] == "dropped").unwrap();
        assert_eq!(dropped["lines"], 100_000);
    }

    fn ended(audit: &Audit, lease: u64) {
        audit.write(&Entry { event: "ended", lease: Some(lease), ..Entry::default() });
        audit.flush(LONG);
    }

    fn leases(path: &Path) -> Vec<u64> {
        text(path).iter().map(|line| line["lease"].as_u64().unwrap()).collect()
    }

    #[test]
    fn reload_opens_a_renamed_or_removed_file_again() {
        let folder = TempDir::new().unwrap();
        let [path, old] = ["audit", "audit.1"].map(|name| folder.path().join(name));
        let audit = Audit::append_to(&path).unwrap();
        ended(&audit, 1);
        std::fs::rename(&path, &old).unwrap();
        ended(&audit, 2);
        audit.switch(audit.open_again().unwrap());
        ended(&audit, 3);
        assert_eq!((leases(&old), leases(&path)), (vec![1, 2], vec![3]));

        std::fs::remove_file(&path).unwrap();
        ended(&audit, 4);
        let (_, message) = audit.check().unwrap_err();
        assert!(message.contains("the file was removed"), "{message}");
        std::fs::create_dir(&path).unwrap();
        let error = audit.open_again().unwrap_err().to_string();
        assert!(error.contains(&*path.to_string_lossy()), "{error}");
        std::fs::remove_dir(&path).unwrap();
        audit.switch(audit.open_again().unwrap());
        let started = Instant::now();
        while audit.check().is_err() {
            assert!(started.elapsed() < LONG, "the file is not used");
            thread::sleep(Duration::from_millis(5));
        }
        ended(&audit, 5);
        assert_eq!(leases(&path), [4, 5]);
    }

    fn fifo(folder: &TempDir) -> PathBuf {
        let path = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    }

    /// A program that reads the FIFO to its end would end at each reload, and the lines behind would wait for ever.
    #[test]
    fn reload_does_not_end_the_reader_of_a_fifo() {
        let folder = TempDir::new().unwrap();
        let path = fifo(&folder);
        let audit = Audit::append_to(&path).unwrap();
        let (sender, seen) = std::sync::mpsc::channel();
        let reader = thread::spawn(move || {
            let lines = BufReader::new(File::open(path).unwrap()).lines();
            lines.for_each(|line| sender.send(line.unwrap()).unwrap());
        });
        for lease in 0..3 {
            ended(&audit, lease);
            let line = seen.recv_timeout(LONG).expect("the reader has ended");
            assert!(line.contains(&format!("\"lease\":{lease}")), "{line}");
            audit.switch(audit.open_again().unwrap());
            while audit.0.as_ref().unwrap().lines.lock().reopened.is_some() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        drop(audit);
        reader.join().unwrap();
    }

    /// The operator replaces a FIFO by a file, while lines wait for a process that reads the FIFO.
    #[test]
    fn reload_replaces_a_fifo_that_nobody_reads() {
        let folder = TempDir::new().unwrap();
        let path = fifo(&folder);
        let audit = Audit::append_to(&path).unwrap();
        audit.write(&Entry { event: "ended", lease: Some(1), ..Entry::default() });
        // The thread tries to write.
        while audit.0.as_ref().unwrap().lines.lock().taken == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        std::fs::remove_file(&path).unwrap();
        audit.switch(audit.open_again().unwrap());
        let started = Instant::now();
        while leases(&path) != [1] {
            assert!(started.elapsed() < LONG, "the file is not used");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The thread may have written a part of a line when a reload opens the file.
    #[test]
    fn reload_adds_nothing_to_a_line_that_is_being_written() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::append_to(&path).unwrap();
        ended(&audit, 1);
        let mut thread = OpenOptions::new().append(true).open(&path).unwrap();
        thread.write_all(b"{\"lease\":").unwrap();
        audit.switch(audit.open_again().unwrap());
        thread.write_all(b"2}\n").unwrap();
        ended(&audit, 3);
        assert_eq!(leases(&path), [1, 2, 3]);
    }

    #[test]
    fn part_of_a_line_is_ended() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("audit");
        for part in ["", "{\"event\":", "{\"event\":1}\n"] {
            std::fs::write(&path, part).unwrap();
            ended(&Audit::append_to(&path).unwrap(), 1);
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<_> = text.lines().collect();
            assert_eq!(lines.len(), part.lines().count() + 1, "{text}");
            assert!(lines.last().unwrap().contains("ended"), "{text}");
        }
    }

    #[test]
    fn file_that_cannot_be_written_stops_new_leases() {
        let audit = Audit::append_to(Path::new("/dev/full")).unwrap();
        audit.write(&Entry { event: "ended", ..Entry::default() });
        audit.flush(LONG);
        let (_, message) = audit.check().unwrap_err();
        assert!(message.contains("No space left"), "{message}");
    }
}
