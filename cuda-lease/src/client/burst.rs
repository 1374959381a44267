//! One job over many inputs, on several leases.

use std::{collections::VecDeque, thread};

use bytes::Bytes;
use cuda_core::{Element, Error, Limit, Quantity, Result, protocol::Status};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use super::{
    end::not_submitted,
    lease::Lease,
    submit::{Job, Submitted},
};

/// The inputs of one lease that are in flight: one runs while the next one travels.
const IN_FLIGHT: usize = 2;

/// Runs `job` once for each input, on all `leases` at the same time, and returns the results in the order of the
/// inputs.
///
/// An error of one input does not affect the others. If a lease ends or its node is lost, its inputs run on the other
/// leases. An input that was running on that lease may run twice, with the same result, because the output of a submit
/// depends only on its job and its input. Blocks the calling thread until every input has a result.
///
/// # Errors
/// The result of an input has the errors of [`Submit::launch_blocking`](crate::Submit::launch_blocking). When no lease
/// is left, the remaining inputs get the error of the last lease. [`Error::Disconnected`] states for each input whether
/// it may have run. Without leases every result is [`Error::OutOfRange`].
///
/// ```standalone_crate
/// use cuda_cpu::CpuProvider;
/// use cuda_lease::{Job, LeaseBuilder, burst};
/// use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
///
/// let device = DeviceOptions::in_process(CpuProvider::default());
/// let node = Node::start(NodeOptions::loopback(vec![device]))?;
/// let request = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20);
/// let (first, second) = (request.clone().acquire_blocking()?, request.acquire_blocking()?);
///
/// # let ptx = include_str!("../../../kernels/basic.ptx");
/// // scale(x, f32 a, u32 n): x *= a
/// let job = Job::new("scale", ptx).block(32).arg(&10f32).arg(&2u32).max_output(8);
/// let inputs = [[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]];
/// let results = burst(&[&first, &second], &job, &inputs);
/// let last: Vec<f32> = results.into_iter().last().unwrap()?.output_as()?;
/// assert_eq!(last, [50.0, 60.0]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub fn burst<T: Element, I: AsRef<[T]> + Sync>(
    leases: &[&Lease],
    job: &Job,
    inputs: &[I],
) -> Vec<Result<Submitted>> {
    let refused = leases.iter().find_map(|lease| lease.check_thread().err());
    if let Some(error) = refused {
        return inputs.iter().map(|_| Err(error.clone())).collect();
    }
    let queue = InputQueue::new(inputs.len());
    let serve = |lease: &Lease| {
        let _end_on_panic = EndOnPanic(&queue);
        while let Some(index) = queue.take() {
            let bytes = bytemuck::cast_slice(inputs[index].as_ref());
            let job = job.clone().input_bytes(Bytes::copy_from_slice(bytes));
            let result = lease.submit_job(job).launch_blocking();
            if !queue.finish(index, result) {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for lease in leases.iter().copied().flat_map(|lease| [lease; IN_FLIGHT]) {
            let name = thread::Builder::new().name("cuda-lease-burst".into());
            if let Err(error) = name.spawn_scoped(scope, move || serve(lease)) {
                queue.leave(Error::host("failed to start a thread of a burst", &error));
            }
        }
    });
    queue.into_results()
}

/// Ends a burst when a thread panics, because of the `AsRef` of an input. The scope of the threads passes the panic on.
struct EndOnPanic<'a>(&'a InputQueue);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end();
        }
    }
}

/// The queue of the inputs of a burst, and their results.
struct InputQueue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: VecDeque<usize>,
    /// The number of inputs without a result, those that run included.
    left: usize,
    results: Vec<Option<Result<Submitted>>>,
    /// The error of the last lease that was lost.
    lost: Error,
    /// The errors of inputs that were sent to a lease that was lost, and may have run there.
    sent: FxHashMap<usize, Error>,
}

impl InputQueue {
    fn new(count: usize) -> Self {
        let lost = Error::out_of_range("a burst", Quantity::Leases, 0, Limit::AtLeast(1));
        let results = (0..count).map(|_| None).collect();
        let (waiting, sent) = ((0..count).collect(), FxHashMap::default());
        let state = State { waiting, left: count, results, lost, sent };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes an input from the queue. Waits while the queue is empty and other threads still run inputs, because an
    /// input of a lost lease returns to the queue.
    fn take(&self) -> Option<usize> {
        let mut state = self.state.lock();
        loop {
            if let Some(index) = state.waiting.pop_front() {
                return Some(index);
            }
            if state.left == 0 {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Stores the result of an input. If its lease is lost, returns the input to the queue, and returns `false`.
    fn finish(&self, index: usize, result: Result<Submitted>) -> bool {
        match result {
            Err(error) if is_end_of_lease(&error) => {
                let mut state = self.state.lock();
                state.waiting.push_back(index);
                if let Error::Disconnected { may_have_run: true, .. } = error {
                    state.sent.insert(index, error.clone());
                }
                drop(state);
                self.leave(error);
                false
            }
            result => {
                let mut state = self.state.lock();
                state.left = state.left.saturating_sub(1);
                state.results[index] = Some(result);
                self.changed.notify_all();
                true
            }
        }
    }

    /// Lets no thread take another input.
    fn end(&self) {
        let mut state = self.state.lock();
        state.waiting.clear();
        state.left = 0;
        self.changed.notify_all();
    }

    /// Records that a thread takes no more inputs, because of `error`.
    fn leave(&self, error: Error) {
        let mut state = self.state.lock();
        state.lost = error;
        self.changed.notify_all();
    }

    fn into_results(self) -> Vec<Result<Submitted>> {
        let State { results, lost, mut sent, .. } = self.state.into_inner();
        let lost = not_submitted(lost);
        let mut error = |index| sent.remove(&index).unwrap_or_else(|| lost.clone());
        let results = results.into_iter().enumerate();
        results.map(|(index, result)| result.unwrap_or_else(|| Err(error(index)))).collect()
    }
}

/// Whether an error ends the lease, so that the input can run on another one.
fn is_end_of_lease(error: &Error) -> bool {
    match error {
        Error::Disconnected { .. } => true,
        Error::Remote { status, .. } => {
            status.ends_lease() || matches!(status, Status::NotFound | Status::Unauthorized)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(text: &str) -> Result<Submitted> {
        Ok(Submitted { exit_code: Status::Ok, output: Bytes::new(), text: text.into() })
    }

    fn remote(status: Status) -> Error {
        Error::Remote { address: "node".into(), status, detail: String::new() }
    }

    #[test]
    fn input_of_a_lost_lease_returns_to_the_queue() {
        let queue = InputQueue::new(2);
        let (first, second) = (queue.take().unwrap(), queue.take().unwrap());
        assert!(!queue.finish(first, Err(remote(Status::LeaseExpired))));
        assert!(queue.finish(second, done("second")));
        assert_eq!(queue.take(), Some(first));
        assert!(queue.finish(first, done("first")));
        assert_eq!(queue.take(), None);
        let texts: Vec<_> =
            queue.into_results().into_iter().map(|result| result.unwrap().text).collect();
        assert_eq!(texts, ["first", "second"]);
    }

    #[test]
    fn error_of_an_input_is_its_result() {
        let queue = InputQueue::new(1);
        let index = queue.take().unwrap();
        assert!(queue.finish(index, Err(remote(Status::LaunchFailed))));
        assert_eq!(queue.into_results(), [Err(remote(Status::LaunchFailed))]);
    }

    #[test]
    fn panic_of_a_thread_ends_the_burst() {
        let queue = InputQueue::new(2);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _end_on_panic = EndOnPanic(&queue);
            queue.take().unwrap();
            panic!("the input has no bytes");
        }));
        assert!(caught.is_err());
        assert_eq!(queue.take(), None);
    }

    fn disconnected(may_have_run: bool) -> Error {
        Error::Disconnected { address: "node".into(), cause: "killed".into(), may_have_run }
    }

    #[test]
    fn only_inputs_that_were_sent_may_have_run() {
        let queue = InputQueue::new(4);
        let [first, second, third] = [(); 3].map(|()| queue.take().unwrap());
        // The fourth is never taken. The third is refused by a connection that has ended.
        for (index, may_have_run) in [(first, true), (third, false), (second, true)] {
            assert!(!queue.finish(index, Err(disconnected(may_have_run))));
        }
        let expected = [true, true, false, false].map(|of| Err(disconnected(of)));
        assert_eq!(queue.into_results(), expected);
    }

    #[test]
    fn input_that_was_sent_once_may_have_run_whatever_comes_later() {
        let queue = InputQueue::new(2);
        let (first, second) = (queue.take().unwrap(), queue.take().unwrap());
        queue.finish(first, Err(disconnected(true)));
        assert_eq!(queue.take(), Some(first));
        queue.finish(first, Err(disconnected(false)));
        queue.finish(second, Err(remote(Status::Revoked)));
        let expected = [Err(disconnected(true)), Err(remote(Status::Revoked))];
        assert_eq!(queue.into_results(), expected);
    }

    #[test]
    fn inputs_without_a_lease_get_the_error_of_the_last_one() {
        let queue = InputQueue::new(2);
        let index = queue.take().unwrap();
        assert!(!queue.finish(index, Err(remote(Status::Revoked))));
        assert_eq!(queue.into_results(), [(); 2].map(|()| Err(remote(Status::Revoked))));
    }
}
