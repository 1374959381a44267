//! A simulated driver, for tests of the backend on machines without a GPU.
//!
//! It has streams, events, waits, captures, graphs of fills and memory addresses, but no memory and no kernels. A fill
//! stands for a kernel: its value names a gate, and it runs when a test [opens](open) the gate. Captures follow the
//! manual: a query of a captured stream ends the capture, and what is enqueued there does not run. Every function that
//! is not listed in [`api`] is refused. Memory pools only count ([`memory`]).

#![allow(clippy::expect_used)]

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::OnceLock,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use super::{
    Address, Api, ContextHandle, EventHandle, ExecutableHandle, FillParams, GraphHandle,
    HostFunction, NodeHandle, StreamHandle,
};
use crate::driver::{library::Driver, status};

/// The number of simulated devices. Each test uses one of its own.
const DEVICES: u32 = 64;

/// The status with which a record is refused.
const REFUSED: c_int = status::OUT_OF_MEMORY;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
const CAPTURING: c_int = 900;

/// The driver, with devices that no test has opened.
pub(crate) fn driver() -> Driver {
    static API: OnceLock<Api> = OnceLock::new();
    Driver { api: API.get_or_init(api), version: (13, 0), devices: DEVICES }
}

/// The number of a device that no other test uses.
pub(crate) fn own_device() -> u32 {
    let mut state = state();
    state.devices += 1;
    state.devices - 1
}

/// A gate that is closed. The backend fills with a pattern of two bytes if both halves of a value are equal, which the
/// simulation does not have.
pub(crate) fn gate() -> u32 {
    loop {
        let gate = state().new_handle() as u32;
        if gate >> 16 != gate & 0xffff {
            return gate;
        }
    }
}

/// Runs the fills that have this value.
pub(crate) fn open(gate: u32) {
    let mut state = state();
    state.open.insert(gate);
    state.advance();
}

/// A stream with a fill of this value in it.
pub(crate) fn stream_with(gate: u32) -> StreamHandle {
    let mut state = state();
    let stream = state.new_stream();
    state.enqueue(stream, Command::Kernel { gate });
    stream
}

/// Enqueues a fill with this value, as foreign code does.
pub(crate) fn enqueue(stream: *mut c_void, gate: u32) {
    state().enqueue(StreamHandle(stream), Command::Kernel { gate });
}

/// Whether a fill with this value has run.
pub(crate) fn has_run(gate: u32) -> bool {
    state().ran.contains(&gate)
}

/// The values of the fills that ran on a stream, in order.
pub(crate) fn log(stream: *mut c_void) -> Vec<u32> {
    state().stream(StreamHandle(stream)).log.clone()
}

/// The number of graphs that were launched on a stream.
pub(crate) fn graphs_launched(stream: *mut c_void) -> usize {
    state().stream(StreamHandle(stream)).graphs
}

/// The number of executables that exist on all devices and have a node with this value.
pub(crate) fn executables_with(value: u32) -> usize {
    state().executables.values().filter(|nodes| nodes.contains(&value)).count()
}

/// The numbers of reserved ranges, of mapped ranges, and of pieces of physical memory, on all devices.
pub(crate) fn mappings() -> [usize; 3] {
    state().mappings.counts()
}

/// The number of pools that exist on a device.
pub(crate) fn pools_of(device: u32) -> usize {
    state().pools.of_device(device as c_int)
}

/// Refuses to set attributes of pools of a device, or takes them again.
pub(crate) fn refuse_pool_attributes(device: u32, refuse: bool) {
    state().pools.refuse_attributes(device as c_int, refuse);
}

/// Refuses every record of an event on a device, or takes them again.
pub(crate) fn refuse_records(device: u32, refuse: bool) {
    let mut state = state();
    if refuse {
        state.refuses.insert(device)
    } else {
        state.refuses.remove(&device)
    };
}

/// Begins a capture of a stream.
pub(crate) fn begin_capture(stream: *mut c_void) {
    state().stream(StreamHandle(stream)).capture = Capture::Running;
}

/// Ends a capture. Returns whether it was valid: nothing ended it, and no other stream was drawn into it.
pub(crate) fn end_capture(stream: *mut c_void) -> bool {
    let mut state = state();
    let drawn = state.streams.values_mut().filter(|stream| stream.capture == Capture::Drawn);
    let drawn = drawn.map(|stream| stream.capture = Capture::None).count();
    let stream = state.stream(StreamHandle(stream));
    let valid = stream.capture == Capture::Running && stream.captured == 0;
    stream.capture = Capture::None;
    valid && drawn == 0
}

#[derive(Default)]
struct State {
    devices: u32,
    handles: usize,
    streams: HashMap<usize, Stream>,
    events: HashMap<usize, Event>,
    open: HashSet<u32>,
    ran: HashSet<u32>,
    refuses: HashSet<u32>,
    /// The values of the fills of each graph.
    graphs: HashMap<usize, Vec<u32>>,
    executables: HashMap<usize, Vec<u32>>,
    pools: memory::Pools,
    mappings: memory::Mappings,
}

#[derive(Default)]
struct Stream {
    queue: VecDeque<Command>,
    capture: Capture,
    /// The commands of the capture that runs.
    captured: usize,
    log: Vec<u32>,
    graphs: usize,
}

#[derive(Default, PartialEq)]
enum Capture {
    #[default]
    None,
    Running,
    /// Another stream's capture includes this one.
    Drawn,
    Invalid,
}

enum Command {
    Kernel {
        gate: u32,
    },
    Record {
        event: usize,
        number: u64,
    },
    Wait {
        event: usize,
        number: u64,
    },
    /// A function and the address of its data.
    Host(HostFunction, usize),
}

#[derive(Default)]
struct Event {
    recorded: u64,
    passed: u64,
    captured: bool,
}

fn state() -> MutexGuard<'static, State> {
    static STATE: OnceLock<Mutex<State>> = OnceLock::new();
    STATE.get_or_init(Mutex::default).lock()
}

impl State {
    fn new_handle(&mut self) -> usize {
        self.handles += 1;
        self.handles
    }

    fn new_stream(&mut self) -> StreamHandle {
        let number = self.new_handle();
        self.streams.insert(number, Stream::default());
        StreamHandle(handle(number))
    }

    fn stream(&mut self, handle: StreamHandle) -> &mut Stream {
        self.streams.get_mut(&handle.0.addr()).expect("a stream that exists")
    }

    fn event(&mut self, handle: EventHandle) -> &mut Event {
        self.events.get_mut(&handle.0.addr()).expect("an event that exists")
    }

    /// Enqueues a command, or captures it.
    fn enqueue(&mut self, stream: StreamHandle, command: Command) {
        let stream = self.stream(stream);
        if stream.capture == Capture::None {
            stream.queue.push_back(command);
        } else {
            stream.captured += 1;
        }
        self.advance();
    }

    /// Runs everything that can run.
    fn advance(&mut self) {
        let Self { streams, events, open, ran, .. } = self;
        let mut runs = true;
        while std::mem::take(&mut runs) {
            for stream in streams.values_mut() {
                while let Some(command) = stream.queue.front() {
                    let event_of =
                        |event: &usize| events.get(event).map_or(u64::MAX, |event| event.passed);
                    match command {
                        Command::Kernel { gate } if !open.contains(gate) => break,
                        Command::Wait { event, number } if event_of(event) < *number => break,
                        Command::Kernel { gate } => {
                            _ = ran.insert(*gate);
                            stream.log.push(*gate);
                        }
                        Command::Wait { .. } => {}
                        Command::Host(function, data) => {
                            let data = std::ptr::with_exposed_provenance_mut(*data);
                            // SAFETY: the caller of `launch_host` gave them to this driver; called once.
                            unsafe { function(data) };
                        }
                        Command::Record { event, number } => {
                            if let Some(event) = events.get_mut(event) {
                                event.passed = event.passed.max(*number);
                            }
                        }
                    }
                    stream.queue.pop_front();
                    runs = true;
                }
            }
        }
    }
}

thread_local!(static CURRENT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

/// Writes the result of a call through its first argument.
///
/// # Safety
/// `to` is valid for writes.
unsafe fn give<T>(to: *mut T, value: T) -> c_int {
    // SAFETY: `to` is valid for writes.
    unsafe { to.write(value) };
    0
}

const fn handle(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

/// Replaces functions of a table.
macro_rules! calls {
    ($($method:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        pub(super) fn calls(others: Api) -> Api {
            $(unsafe extern "system" fn $method($($arg: $ty),*) -> c_int $body)*
            Api { $($method,)* ..others }
        }
    };
}

mod memory;

/// The table of this driver.
fn api() -> Api {
    memory::calls(calls(Api::refusing()))
}

// The backend passes pointers that are valid for writes, as the driver's manual demands.
calls! {
    init(_flags: c_uint) { 0 }
    error_name(_code: c_int, text: *mut *const c_char) {
        const NAME: &CStr = c"SIMULATED";
        // SAFETY: `text` is valid for writes.
        unsafe { give(text, NAME.as_ptr()) }
    }
    error_string(_code: c_int, text: *mut *const c_char) {
        const TEXT: &CStr = c"simulated";
        // SAFETY: `text` is valid for writes.
        unsafe { give(text, TEXT.as_ptr()) }
    }
    device(device: *mut c_int, ordinal: c_int) {
        // SAFETY: `device` is valid for writes.
        unsafe { give(device, ordinal) }
    }
    device_name(_name: *mut c_char, _bytes: c_int, _device: c_int) { 0 }
    device_memory(bytes: *mut usize, _device: c_int) {
        // SAFETY: `bytes` is valid for writes.
        unsafe { give(bytes, memory::MEMORY as usize) }
    }
    device_attribute(value: *mut c_int, attribute: c_int, _device: c_int) {
        let has = attribute != super::device_attribute::HOST_MEMORY_POOLS;
        // SAFETY: `value` is valid for writes.
        unsafe { give(value, c_int::from(has)) }
    }
    primary_retain(context: *mut ContextHandle, device: c_int) {
        // SAFETY: `context` is valid for writes.
        unsafe { give(context, ContextHandle(handle(device as usize + 1))) }
    }
    context_current(context: *mut ContextHandle) {
        // SAFETY: `context` is valid for writes.
        unsafe { give(context, ContextHandle(handle(CURRENT.get()))) }
    }
    context_push(context: ContextHandle) {
        CURRENT.set(context.0.addr());
        0
    }
    context_pop(context: *mut ContextHandle) {
        // SAFETY: `context` is valid for writes.
        unsafe { give(context, ContextHandle(handle(CURRENT.take()))) }
    }
    thread_capture_mode(_mode: *mut c_int) { 0 }
    priority_range(least: *mut c_int, greatest: *mut c_int) {
        // SAFETY: `least` and `greatest` are valid for writes.
        unsafe { give(least, 0) + give(greatest, -5) }
    }
    memory_info(free: *mut usize, total: *mut usize) {
        let left = state().pools.left(CURRENT.get() as c_int - 1);
        // SAFETY: `free` and `total` are valid for writes.
        unsafe { give(free, left as usize) + give(total, memory::MEMORY as usize) }
    }
    fill_32(_to: Address, value: c_uint, _count: usize, stream: StreamHandle) {
        state().enqueue(stream, Command::Kernel { gate: value });
        0
    }
    stream_create(stream: *mut StreamHandle, _flags: c_uint, _priority: c_int) {
        let new = state().new_stream();
        // SAFETY: `stream` is valid for writes.
        unsafe { give(stream, new) }
    }
    stream_destroy(stream: StreamHandle) {
        state().streams.remove(&stream.0.addr());
        0
    }
    stream_query(stream: StreamHandle) {
        let mut state = state();
        let stream = state.stream(stream);
        if stream.capture != Capture::None {
            stream.capture = Capture::Invalid;
            return CAPTURING;
        }
        if stream.queue.is_empty() { 0 } else { status::NOT_READY }
    }
    stream_synchronize(stream: StreamHandle) {
        loop {
            // SAFETY: the function only looks the handle up, and `stream` is a stream of this driver.
            match unsafe { stream_query(stream) } {
                status::NOT_READY => std::thread::sleep(Duration::from_micros(100)),
                other => return other,
            }
        }
    }
    stream_wait(stream: StreamHandle, event: EventHandle, _flags: c_uint) {
        let mut state = state();
        let Event { recorded: number, captured, .. } = *state.event(event);
        if captured {
            state.stream(stream).capture = Capture::Drawn;
            return 0;
        }
        state.enqueue(stream, Command::Wait { event: event.0.addr(), number });
        0
    }
    launch_host(stream: StreamHandle, function: HostFunction, data: *mut c_void) {
        let mut state = state();
        state.enqueue(stream, Command::Host(function, data.expose_provenance()));
        0
    }
    event_create(event: *mut EventHandle, _flags: c_uint) {
        let mut state = state();
        let number = state.new_handle();
        state.events.insert(number, Event::default());
        // SAFETY: `event` is valid for writes.
        unsafe { give(event, EventHandle(handle(number))) }
    }
    event_record(event: EventHandle, stream: StreamHandle) {
        let mut state = state();
        if state.refuses.contains(&(CURRENT.get() as u32).wrapping_sub(1)) {
            return REFUSED;
        }
        let captured = state.stream(stream).capture != Capture::None;
        let recorded = state.event(event);
        recorded.captured = captured;
        recorded.recorded += 1;
        let number = recorded.recorded;
        state.enqueue(stream, Command::Record { event: event.0.addr(), number });
        0
    }
    event_query(event: EventHandle) {
        let mut state = state();
        let event = state.event(event);
        if event.captured {
            return CAPTURING;
        }
        if event.passed >= event.recorded { 0 } else { status::NOT_READY }
    }
    event_synchronize(event: EventHandle) {
        loop {
            // SAFETY: the function only looks the handle up, and `event` is an event of this driver.
            match unsafe { event_query(event) } {
                status::NOT_READY => std::thread::sleep(Duration::from_micros(100)),
                other => return other,
            }
        }
    }
    event_elapsed(milliseconds: *mut f32, _start: EventHandle, _end: EventHandle) {
        // SAFETY: `milliseconds` is valid for writes.
        unsafe { give(milliseconds, 0.0) }
    }
    graph_create(graph: *mut GraphHandle, _flags: c_uint) {
        let mut state = state();
        let number = state.new_handle();
        state.graphs.insert(number, Vec::new());
        // SAFETY: `graph` is valid for writes.
        unsafe { give(graph, GraphHandle(handle(number))) }
    }
    graph_destroy(graph: GraphHandle) {
        state().graphs.remove(&graph.0.addr());
        0
    }
    graph_add_fill(
        node: *mut NodeHandle, graph: GraphHandle, _after: *const NodeHandle, _count: usize,
        params: *const FillParams, _context: ContextHandle,
    ) {
        let mut state = state();
        let nodes = state.graphs.get_mut(&graph.0.addr()).expect("a graph that exists");
        // SAFETY: `params` is valid for reads.
        nodes.push(unsafe { (*params).value });
        let number = nodes.len();
        // SAFETY: `node` is valid for writes.
        unsafe { give(node, NodeHandle(handle(number))) }
    }
    graph_instantiate(executable: *mut ExecutableHandle, graph: GraphHandle, _flags: u64) {
        let mut state = state();
        let nodes = state.graphs[&graph.0.addr()].clone();
        let number = state.new_handle();
        state.executables.insert(number, nodes);
        // SAFETY: `executable` is valid for writes.
        unsafe { give(executable, ExecutableHandle(handle(number))) }
    }
    executable_set_fill(
        executable: ExecutableHandle, node: NodeHandle, params: *const FillParams,
        _context: ContextHandle,
    ) {
        let mut state = state();
        let nodes = state.executables.get_mut(&executable.0.addr());
        // SAFETY: `params` is valid for reads.
        nodes.expect("an executable that exists")[node.0.addr() - 1] = unsafe { (*params).value };
        0
    }
    executable_launch(executable: ExecutableHandle, stream: StreamHandle) {
        let mut state = state();
        let nodes = state.executables[&executable.0.addr()].clone();
        state.stream(stream).graphs += 1;
        for gate in nodes {
            state.enqueue(stream, Command::Kernel { gate });
        }
        0
    }
    executable_destroy(executable: ExecutableHandle) {
        state().executables.remove(&executable.0.addr());
        0
    }
    event_destroy(event: EventHandle) {
        state().events.remove(&event.0.addr());
        0
    }
}
