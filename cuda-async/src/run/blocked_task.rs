//! Reports blocking runs inside async tasks, in debug builds.
//!
//! A task of tokio that blocks stops every other task of its thread, and can wait for one of them forever. A
//! thread-local variable of tokio states whether a thread runs tasks. This module uses it only for a log line: a run
//! does the same on every thread. Other executors have no such query.

use std::sync::Once;

static REPORTED: Once = Once::new();

/// Logs a warning if the calling thread runs tasks of tokio, once in the process. Does nothing in release builds.
#[inline]
pub(super) fn report() {
    if cfg!(debug_assertions) {
        report_once(is_worker(), &REPORTED);
    }
}

/// Whether the calling thread is one on which tokio runs tasks. Threads of `spawn_blocking` are not.
#[cfg(not(loom))]
fn is_worker() -> bool {
    tokio::runtime::worker_index().is_some()
}

#[cfg(loom)]
fn is_worker() -> bool {
    false
}

#[cold]
fn report_once(is_worker: bool, reported: &Once) {
    if is_worker {
        reported.call_once(|| {
            tracing::warn!(
                "a blocking run (`sync`, `sync_on`, `DeviceFuture::wait`) in an async task stops the other tasks of its \
                 thread; use `.await`, or `tokio::task::spawn_blocking` (inside of `block_in_place` it stops none)"
            );
        });
    }
}

#[cfg(all(test, feature = "cpu", not(loom)))]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use tokio::runtime::Builder;
    use tracing::Dispatch;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[test]
    fn threads_that_run_tasks_are_workers() {
        assert!(!is_worker());
        let on_pool = || tokio::task::spawn_blocking(is_worker);
        let current = Builder::new_current_thread().build().unwrap();
        let found = current.block_on(async { (is_worker(), on_pool().await.unwrap()) });
        assert_eq!(found, (true, false));
        let threads = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let task = tokio::spawn;
        let found = threads.block_on(async {
            (task(async { is_worker() }).await.unwrap(), on_pool().await.unwrap())
        });
        assert_eq!(found, (true, false));
    }

    /// Keeps the text of a log.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn blocking_run_in_a_task_is_reported_once() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
        let reported = Once::new();
        tracing::dispatcher::with_default(&Dispatch::new(subscriber), || {
            report_once(false, &reported);
            assert!(log.0.lock().unwrap().is_empty());
            report_once(true, &reported);
            report_once(true, &reported);
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("WARN").count(), 1, "{text}");
        assert!(text.contains("use `.await`, or `tokio::task::spawn_blocking`"), "{text}");
    }
}
