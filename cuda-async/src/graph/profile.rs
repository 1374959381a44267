//! `Profile`: the device time of every node of a graph.

use std::{
    fmt,
    task::{Context, Poll, ready},
    time::Duration,
};

use cuda_core::{
    DeviceBuffer, Download, Error, Misuse, PinnedBuffer, Pinning, Result, Waiter,
    internals::Recording,
};

use crate::{
    context::{CreditWait, ExecutionContext},
    graph::{
        cuda_graph::CudaGraph,
        plan::{Plan, PlanNode, PlanWork, counted, duration, padded, printable, title},
    },
    op::{Op, Submit, Submitted},
};

/// The number of nodes that one poll submits before it yields to the executor.
const NODES_PER_POLL: usize = 64;

/// The device time of every node of a graph: the output of [`CudaGraph::profile`]. `{profile}` prints a table, slowest
/// node first.
///
/// ```
/// use cuda_async::prelude::*;
/// let graph = zeros::<u32>(4).named("clear").graph()?;
/// let profile = graph.profile().sync()?;
/// assert!(profile.to_string().starts_with("profile: 1 node, "));
/// assert_eq!(Some(profile.total()), profile.plan().nodes()[0].time());
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    plan: Plan,
}

impl Profile {
    /// Returns the plan of the graph. Each node has a [time](PlanNode::time), which drawings show.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let graph = zeros::<u32>(4).named("clear").graph()?;
    /// let profile = graph.profile().sync()?;
    /// assert!(profile.plan().nodes().iter().all(|node| node.time().is_some()));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the sum of the times. A launch of the graph may take less, because branches run at the same time.
    pub fn total(&self) -> Duration {
        self.plan.nodes().iter().filter_map(PlanNode::time).sum()
    }

    /// Returns the nodes with their index in the plan, slowest first. Nodes of equal time are in the order of the plan.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let graph = zip!(zeros::<u8>(4), zeros::<u8>(8)).graph()?;
    /// let profile = graph.profile().sync()?;
    /// let slowest = profile.by_time()[0].1;
    /// assert_eq!(profile.by_time().len(), 3); // two fills and the join of the branches
    /// assert!(slowest.time() <= Some(profile.total()));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    pub fn by_time(&self) -> Vec<(usize, &PlanNode)> {
        let mut nodes: Vec<_> = self.plan.nodes().iter().enumerate().collect();
        nodes.sort_by_key(|(_, node)| std::cmp::Reverse(node.time()));
        nodes
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let nodes = counted(self.plan.len(), "node");
        write!(f, "profile: {nodes}, {} in sequence", duration(total))?;
        for (index, node) in self.by_time() {
            let time = node.time().unwrap_or_default();
            let share = 100.0 * time.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
            let (time, name) = (duration(time), printable(node.name().unwrap_or_default()));
            let work = padded(&title(node.work()), 24);
            let line = format!("{time:>12} {share:5.1} %  #{index:<5} {work} {name}");
            write!(f, "\n{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl<T> CudaGraph<T> {
    /// Returns the nodes of the graph, their order and their names.
    ///
    /// ```
    /// use cuda_async::{memory::fill, prelude::*};
    /// let graph = zeros::<u32>(4).then(|x| fill(x, 7)).graph()?;
    /// assert_eq!(graph.plan().len(), graph.len());
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    pub fn plan(&self) -> Plan {
        Plan::from(self.recording())
    }

    /// Returns an operation that runs the nodes of the graph one after the other and measures the device time of each.
    /// It has the effects of a [launch](CudaGraph::launch).
    ///
    /// The time of a node includes the time of a timestamp, so it is inaccurate for nodes of a few microseconds. Work
    /// of other streams may run between the nodes, and counts. Nodes that only join branches run nothing and take no
    /// time.
    ///
    /// ```
    /// use cuda_async::{memory::fill, prelude::*};
    /// let clear = zeros::<u32>(1 << 16).named("clear");
    /// let graph = clear.then(|x| fill(x, 7).named("set")).graph()?;
    /// let profile = graph.profile().sync()?;
    /// println!("{profile}");
    /// let names: Vec<_> = profile.plan().nodes().iter().map(|node| node.name()).collect();
    /// assert_eq!(names, [Some("clear"), Some("set")]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`] on a stream of another device. [`Error::NeedsHostData`] in
    /// [`async_on`](crate::DeviceOp::async_on) and inside a recording. [`Error::Unsupported`] on a device without a
    /// clock. [`Error::Misuse`] if the graph has a loop or foreign work.
    pub fn profile(&self) -> Op<ProfileGraph<T>>
    where
        T: Send + Sync,
    {
        let state = State::Idle(CreditWait::new());
        Op::new(ProfileGraph { graph: self.clone(), plan: self.plan(), state })
    }
}

/// The steps of [`CudaGraph::profile`].
pub struct ProfileGraph<T> {
    graph: CudaGraph<T>,
    plan: Plan,
    state: State,
}

enum State {
    Idle(CreditWait),
    Running(Nodes, CreditWait),
    Pinning(DeviceBuffer<u64>, Option<Pinning<u64>>),
    Reading(Download<u64>, Option<Waiter>),
}

/// The nodes that are submitted so far.
struct Nodes {
    /// Has the begin and the end of every node, except of joins.
    times: DeviceBuffer<u64>,
    /// The next node.
    next: usize,
    /// The number of timestamps so far.
    stamps: usize,
}

impl<T: Send + Sync> Submit for ProfileGraph<T> {
    type Output = Profile;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self { graph, plan, mut state } = self;
        loop {
            state = match state {
                State::Idle(mut credit) => {
                    cx.waits().may_wait("profile")?;
                    if graph.recording().needs_executable() {
                        return Err(Error::Misuse(Misuse::WholeGraphOnly));
                    }
                    if cx.poll_credit(&mut credit, task)?.is_pending() {
                        let state = State::Idle(credit);
                        return Ok(Submitted::Pending(Self { graph, plan, state }));
                    }
                    State::Running(Nodes { times: begin(&plan, cx)?, next: 0, stamps: 1 }, credit)
                }
                State::Running(mut nodes, mut credit) => {
                    if nodes.poll(&graph, &plan, &mut credit, task, cx)?.is_pending() {
                        let state = State::Running(nodes, credit);
                        return Ok(Submitted::Pending(Self { graph, plan, state }));
                    }
                    State::Pinning(nodes.times, None)
                }
                State::Pinning(times, mut pinning) => {
                    let Poll::Ready(host) =
                        cx.waits().poll_pinned(&mut pinning, times.len(), task)?
                    else {
                        let state = State::Pinning(times, pinning);
                        return Ok(Submitted::Pending(Self { graph, plan, state }));
                    };
                    let download = cx.enqueue(|stream| times.as_slice().download(stream, host))?;
                    State::Reading(download, None)
                }
                State::Reading(mut download, mut waiter) => {
                    let Poll::Ready(stamps) =
                        cx.waits().poll_download(&mut download, &mut waiter, task)?
                    else {
                        let state = State::Reading(download, waiter);
                        return Ok(Submitted::Pending(Self { graph, plan, state }));
                    };
                    let times = times_of(&plan, &stamps);
                    return Ok(Submitted::Ready(Profile { plan: plan.with_times(&times) }));
                }
            };
        }
    }
}

impl Nodes {
    /// Submits the nodes that are left.
    fn poll<T>(
        &mut self,
        graph: &CudaGraph<T>,
        plan: &Plan,
        credit: &mut CreditWait,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<()>> {
        while let Some(node) = plan.nodes().get(self.next) {
            if *node.work() != PlanWork::Join {
                ready!(cx.poll_credit(credit, task))?;
                run_node(graph.recording(), self.next, &mut self.times, self.stamps, cx)?;
                self.stamps += 1;
            }
            self.next += 1;
            if self.next.is_multiple_of(NODES_PER_POLL) && cx.waits().yield_now(task) {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Allocates the timestamps, and writes the first.
fn begin(plan: &Plan, cx: &ExecutionContext) -> Result<DeviceBuffer<u64>> {
    let measured = plan.nodes().iter().filter(|node| *node.work() != PlanWork::Join).count();
    cx.enqueue(|stream| {
        let mut times = DeviceBuffer::uninitialized(stream, measured + 1)?;
        times.as_slice_mut().timestamp(stream)?;
        Ok(times)
    })
}

/// Submits a node, and a timestamp behind it.
fn run_node(
    recording: &Recording,
    node: usize,
    times: &mut DeviceBuffer<u64>,
    stamp: usize,
    cx: &ExecutionContext,
) -> Result<()> {
    cx.enqueue(|stream| recording.replay_in_order(stream, [node]))?;
    cx.enqueue(|stream| times.slice_mut(stamp..)?.timestamp(stream)).map(drop)
}

/// The time of every node. A join takes none.
fn times_of(plan: &Plan, stamps: &PinnedBuffer<u64>) -> Vec<Duration> {
    let mut between = stamps.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    let time = |node: &PlanNode| match node.work() {
        PlanWork::Join => Duration::ZERO,
        _ => Duration::from_nanos(between.next().unwrap_or(0)),
    };
    plan.nodes().iter().map(time).collect()
}
