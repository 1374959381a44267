//! A helper thread: runs jobs that may block, such as pinning memory, compiling a module or resetting a device.
//!
//! The thread starts with the first job and ends after [`LINGER`] without one, so an idle device has none. Jobs run one
//! after the other. No job is lost: a job that comes while the thread ends starts another thread.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use super::{
    discard_panic,
    one_shot::{Receiver, one_shot},
};

/// The time that a helper thread waits for another job before it ends.
const LINGER: Duration = Duration::from_millis(500);

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on a thread of its own.
#[derive(Clone)]
pub struct HelperThread(Arc<Shared>);

struct Shared {
    name: &'static str,
    jobs: Mutex<Jobs>,
    came: Condvar,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    running: bool,
}

impl HelperThread {
    /// A helper whose thread will have this name.
    pub fn new(name: &'static str) -> Self {
        Self(Arc::new(Shared { name, jobs: Mutex::default(), came: Condvar::new() }))
    }

    /// Runs a job on the helper thread. Never blocks. A panic of the job ends that job only.
    ///
    /// # Errors
    /// The error of starting a thread; the job is then dropped without having run.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut jobs = self.0.jobs.lock();
        jobs.queue.push_back(Box::new(job));
        if jobs.running {
            self.0.came.notify_one();
            return Ok(());
        }
        let shared = Arc::clone(&self.0);
        let spawned =
            std::thread::Builder::new().name(self.0.name.into()).spawn(move || shared.work());
        match spawned {
            Ok(_) => {
                jobs.running = true;
                Ok(())
            }
            Err(error) => {
                let job = jobs.queue.pop_back();
                drop(jobs);
                drop(job);
                Err(error)
            }
        }
    }

    /// As [`run`](Self::run), for a job with a result. Dropping the receiver does not stop the job. If the job panics, no
    /// result comes.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Receiver<T>> {
        let (sender, receiver) = one_shot();
        self.run(move || sender.send(job()))?;
        Ok(receiver)
    }
}

impl Shared {
    fn work(&self) {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some(job) = jobs.queue.pop_front() {
                drop(jobs);
                if let Err(payload) = catch_unwind(AssertUnwindSafe(job)) {
                    discard_panic(payload);
                }
                jobs = self.jobs.lock();
                continue;
            }
            let waited = self.came.wait_for(&mut jobs, LINGER);
            if waited.timed_out() && jobs.queue.is_empty() {
                jobs.running = false;
                return;
            }
        }
    }
}

impl std::fmt::Debug for HelperThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HelperThread({})", self.0.name)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn jobs_run_in_order_and_a_panic_ends_one_job_only() {
        let helper = HelperThread::new("test-helper");
        let (send, receive) = channel();
        for n in 0..10 {
            let send = send.clone();
            let job = move || if n == 5 { panic!("on purpose") } else { send.send(n).unwrap() };
            helper.run(job).unwrap();
        }
        drop(send);
        assert_eq!(receive.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
    }

    #[test]
    fn a_job_after_the_thread_has_ended_starts_another() {
        let helper = HelperThread::new("test-helper");
        for _ in 0..2 {
            let (send, receive) = channel();
            helper.run(move || send.send(()).unwrap()).unwrap();
            receive.recv().unwrap();
            while helper.0.jobs.lock().running {
                std::thread::yield_now();
            }
        }
    }
}
