//! A helper thread: runs tasks that may block, such as pinning memory, compiling a module or resetting a device.
//!
//! The thread starts with the first task and ends after [`LINGER`] without one, so an idle device has none. Tasks run
//! one after the other. No task is lost: a task that comes while the thread ends starts another thread.

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

/// The time that a helper thread waits for another task before it ends.
const LINGER: Duration = Duration::from_millis(500);

type Task = Box<dyn FnOnce() + Send>;

/// Runs tasks on a thread of its own.
#[derive(Clone)]
pub struct HelperThread(Arc<Shared>);

struct Shared {
    name: &'static str,
    tasks: Mutex<Tasks>,
    arrived: Condvar,
}

#[derive(Default)]
struct Tasks {
    queue: VecDeque<Task>,
    is_running: bool,
}

impl HelperThread {
    /// A helper whose thread will have this name.
    pub fn new(name: &'static str) -> Self {
        Self(Arc::new(Shared { name, tasks: Mutex::default(), arrived: Condvar::new() }))
    }

    /// Runs a task on the helper thread. Never blocks. A panic of the task ends that task only.
    ///
    /// # Errors
    /// The error of starting a thread; the task is then dropped without having run.
    pub fn run(&self, task: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut tasks = self.0.tasks.lock();
        tasks.queue.push_back(Box::new(task));
        if tasks.is_running {
            self.0.arrived.notify_one();
            return Ok(());
        }
        let shared = Arc::clone(&self.0);
        let spawned =
            std::thread::Builder::new().name(self.0.name.into()).spawn(move || shared.work());
        match spawned {
            Ok(_) => {
                tasks.is_running = true;
                Ok(())
            }
            Err(error) => {
                let task = tasks.queue.pop_back();
                drop(tasks);
                drop(task);
                Err(error)
            }
        }
    }

    /// As [`run`](Self::run), for a task with a result. Dropping the receiver does not stop the task. If the task
    /// panics, no result comes.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run).
    pub fn start<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Receiver<T>> {
        let (sender, receiver) = one_shot();
        self.run(move || sender.send(task()))?;
        Ok(receiver)
    }
}

impl Shared {
    fn work(&self) {
        let mut tasks = self.tasks.lock();
        loop {
            if let Some(task) = tasks.queue.pop_front() {
                drop(tasks);
                if let Err(payload) = catch_unwind(AssertUnwindSafe(task)) {
                    discard_panic(payload);
                }
                tasks = self.tasks.lock();
                continue;
            }
            let waited = self.arrived.wait_for(&mut tasks, LINGER);
            if waited.timed_out() && tasks.queue.is_empty() {
                tasks.is_running = false;
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
            let task = move || if n == 5 { panic!("on purpose") } else { send.send(n).unwrap() };
            helper.run(task).unwrap();
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
            while helper.0.tasks.lock().is_running {
                std::thread::yield_now();
            }
        }
    }
}
