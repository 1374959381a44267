//! `repeat_while`: the host loop and the loop of a graph give the same results.

use cuda_async::{
    Device, Error, Function, LaunchConfig, Result, Stream,
    graph::{CudaGraph, DeviceScalar, HostSlot, PlanNode, PlanWork, repeat_while},
    launch,
    memory::{copy, fill},
    prelude::*,
};

use crate::{
    modules::{load_ptx, prepared},
    on_every_device,
    polling::own_devices,
};

on_every_device! {
    loop_runs_while_the_condition_is_set
    loop_of_zero_passes_runs_nothing
    loops_of_graphs_agree_with_host_loops
    loops_nest
    loop_that_gives_other_memory_back_is_an_error
    profile_of_a_loop_is_refused_for_its_own_reason
    plan_of_a_loop_has_the_nodes_of_a_pass
}

const LEN: usize = 40;

type Words = DeviceBuffer<u32>;
type Floats = DeviceBuffer<f32>;

#[derive(Clone)]
struct Kernels {
    count_down: Function,
    root_step: Function,
    add: Function,
}

impl Kernels {
    fn load(device: &Device) -> Self {
        let loops = load_ptx(device, include_str!("../../../kernels/loops.ptx")).unwrap();
        let basic = load_ptx(device, include_str!("../../../kernels/basic.ptx")).unwrap();
        Self {
            count_down: loops.function("count_down").unwrap(),
            root_step: loops.function("root_step").unwrap(),
            add: basic.function("add_scalar_u32").unwrap(),
        }
    }

    /// Adds 1 to `x` while it counts `left` down.
    fn counted(&self, go: &DeviceScalar<u32>, left: Words, x: Words) -> BoxedWords {
        let this = self.clone();
        let again = go.clone();
        repeat_while(go, (left, x), move |(left, x)| {
            let config = LaunchConfig::new(1, 1);
            // SAFETY: both kernels write buffers of one element.
            let down = unsafe { launch(&this.count_down, config, (again.writable(), left)) };
            let add = this.add.clone();
            // SAFETY: both kernels write buffers of one element.
            let add = move |x| unsafe { launch(&add, config, (x, 1u32, 1u32)) };
            down.then(move |(_, left)| add(x).map(move |x| (left, x)))
        })
        .boxed()
    }

    fn roots(
        &self,
        go: &DeviceScalar<u32>,
        a: Floats,
        x: Floats,
    ) -> impl DeviceOp<Output = Floats> + use<> {
        let (step, again) = (self.root_step.clone(), go.clone());
        let a = std::sync::Arc::new(a);
        repeat_while(go, x, move |x| {
            let arguments = (again.writable(), a.clone(), x, LEN as u32);
            // SAFETY: root_step(go, a, x, n) reads a and writes x, of n elements, and go.
            unsafe { launch(&step, LaunchConfig::new(1, 32), arguments) }.map(|(_, _, x)| x)
        })
    }
}

type BoxedWords = cuda_async::BoxedOp<'static, (Words, Words)>;

fn condition(value: u32, stream: &Stream) -> DeviceScalar<u32> {
    DeviceScalar::new(value).sync_on(stream).unwrap()
}

fn words(value: u32, stream: &Stream) -> Words {
    h2d([value]).sync_on(stream).unwrap()
}

/// Whether graphs of the device can have loops. Elsewhere recording one is an error.
fn has_loops<T>(recorded: &Result<T>) -> bool {
    match recorded {
        Ok(_) => true,
        Err(error) => {
            assert!(error.to_string().contains("a loop inside a graph"), "{error}");
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            false
        }
    }
}

fn loop_runs_while_the_condition_is_set(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let go = condition(1, &stream);
    let op = kernels.counted(&go, words(7, &stream), words(100, &stream));
    let (left, x) = op.sync_on(&stream).unwrap();
    assert_eq!(to_host(left).sync_on(&stream).unwrap(), [0]);
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [107]);
    // SAFETY: only the library uses the output.
    let waits =
        unsafe { kernels.counted(&go, words(7, &stream), words(0, &stream)).async_on(&stream) };
    assert!(matches!(waits, Err(Error::NeedsHostData { .. })));
}

fn loop_of_zero_passes_runs_nothing(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let go = condition(0, &stream);
    let (_, x) =
        kernels.counted(&go, words(7, &stream), words(5, &stream)).sync_on(&stream).unwrap();
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [5]);
    let graph = kernels.counted(&go, words(7, &stream), words(5, &stream)).graph_on(&stream);
    if has_loops(&graph) {
        let graph = prepared(graph.unwrap());
        let output = graph.launch().sync_on(&stream).unwrap();
        assert_eq!(to_host(&output.1).sync_on(&stream).unwrap(), [5]);
    }
}

fn loops_of_graphs_agree_with_host_loops(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let a: Vec<f32> = (0..LEN).map(|at| (at * at + 1) as f32 * 0.37).collect();
    let start = || fill(zeros::<f32>(LEN).sync_on(&stream).unwrap(), 1.0).sync_on(&stream).unwrap();
    let go = condition(1, &stream);
    let input = || h2d(a.clone()).sync_on(&stream).unwrap();
    let expected = kernels.roots(&go, input(), start()).then(to_host).sync_on(&stream).unwrap();
    for (root, a) in expected.iter().zip(&a) {
        assert!((root - a.sqrt()).abs() < 1e-4 * root, "{root} of {a}");
    }
    // The start value and the condition are set inside the graph, so each launch begins again.
    let x = start();
    let (from, kernels, again) = (start(), kernels.clone(), go.clone());
    let values = input();
    let op = copy(std::sync::Arc::new(from), x)
        .then(move |(_, x)| again.set(1).map(move |()| (again, x)))
        .then(move |(go, x)| kernels.roots(&go, values, x));
    let graph = op.graph_on(&stream);
    if !has_loops(&graph) {
        return;
    }
    let graph = prepared(graph.unwrap());
    let other = device.new_stream().unwrap();
    for round in 0..4 {
        let stream = if round % 2 == 0 { &stream } else { &other };
        let roots = graph.launch().then(to_host).sync_on(stream).unwrap();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&roots), bits(&expected));
    }
}

/// Three passes of five passes each.
fn loops_nest(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let [outer, inner] = [1, 1].map(|value| condition(value, &stream));
    let nested = |x: Words| {
        let (kernels, inner, outer) = (kernels.clone(), inner.clone(), outer.clone());
        let again = outer.clone();
        let state = (words(3, &stream), words(0, &stream), x);
        repeat_while(&outer, state, move |(rounds, left, x)| {
            let (kernels, inner, again) = (kernels.clone(), inner.clone(), again.clone());
            let begin = inner.set(1);
            let count_down = kernels.count_down.clone();
            fill(left, 5)
                .then(move |left| begin.map(move |()| left))
                .then(move |left| kernels.counted(&inner, left, x))
                .then(move |(left, x)| {
                    let config = LaunchConfig::new(1, 1);
                    // SAFETY: writes two buffers of one element.
                    unsafe { launch(&count_down, config, (again.writable(), rounds)) }
                        .map(move |(_, rounds)| (rounds, left, x))
                })
        })
    };
    let (_, _, x) = nested(words(0, &stream)).sync_on(&stream).unwrap();
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [15]);
    outer.set(1).sync_on(&stream).unwrap();
    let graph = nested(words(0, &stream)).graph_on(&stream);
    if has_loops(&graph) {
        let output = prepared(graph.unwrap()).launch().sync_on(&stream).unwrap();
        assert_eq!(to_host(&output.2).sync_on(&stream).unwrap(), [15]);
    }
}

fn loop_that_gives_other_memory_back_is_an_error(device: &Device) {
    let stream = device.new_stream().unwrap();
    let go = condition(1, &stream);
    let other = |x: Words| zeros::<u32>(1).map(move |y| (x, y).1);
    let op = || repeat_while(&go, words(1, &stream), other);
    for error in [op().sync_on(&stream).map(drop), op().graph_on(&stream).map(drop)] {
        let error = error.unwrap_err();
        assert!(error.to_string().contains("gave other memory back"), "{error}");
    }
    assert_eq!(h2d([1u32]).then(to_host).sync_on(&stream).unwrap(), [1]);
}

#[test]
fn loops_that_nest_too_deeply_are_an_error() {
    for device in own_devices() {
        let stream = device.new_stream().unwrap();
        let go = condition(0, &stream);
        let mut op = value(()).boxed();
        for _ in 0..9 {
            let (go, inner) = (go.clone(), std::sync::Mutex::new(Some(op)));
            op = repeat_while(&go, (), move |()| inner.lock().unwrap().take().unwrap()).boxed();
        }
        let recorded = op.graph_on(&stream).map(drop);
        let error = recorded.unwrap_err();
        let unsupported = matches!(error, Error::Unsupported { .. });
        assert!(
            unsupported
                || error
                    .to_string()
                    .contains("the number of loops inside each other is 9 and must be at most 8"),
            "{error}"
        );
    }
}

#[test]
fn host_slot_inside_a_loop_of_a_graph_is_an_error() {
    for device in own_devices() {
        let stream = device.new_stream().unwrap();
        let go = condition(0, &stream);
        let slot = HostSlot::new(&device, &[1u32; LEN]).unwrap();
        let op = repeat_while(&go, (), move |()| slot.upload().map(drop));
        let error = op.graph_on(&stream).map(drop).unwrap_err();
        let unsupported = matches!(error, Error::Unsupported { .. });
        assert!(unsupported || error.to_string().contains("upload before the loop"), "{error}");
    }
}

/// Slots inside a loop change it: the graph is built again.
#[test]
fn slots_inside_loops_are_replaced() {
    for device in own_devices() {
        let (kernels, stream) = (Kernels::load(&device), device.new_stream().unwrap());
        let go = condition(1, &stream);
        let (left, x) = (words(2, &stream), words(0, &stream));
        let graph = kernels.counted(&go, left, x).graph_on(&stream);
        if !has_loops(&graph) {
            continue;
        }
        let graph = graph.unwrap();
        graph.upload().unwrap();
        let output = graph.launch().sync_on(&stream).unwrap();
        assert_eq!(to_host(&output.1).sync_on(&stream).unwrap(), [2]);
        let [left, x] = [&output.0, &output.1].map(|buffer| graph.slot(buffer).unwrap());
        for count in [4, 9] {
            go.set(1).sync_on(&stream).unwrap();
            left.replace(words(count, &stream)).unwrap();
            let x = x.replace(words(10, &stream)).unwrap();
            graph.launch().sync_on(&stream).unwrap();
            assert_eq!(to_host(x).sync_on(&stream).unwrap(), [10 + count]);
        }
    }
}

/// A profile runs the nodes one by one, which a loop cannot do. Preparing the graph does not change that.
fn profile_of_a_loop_is_refused_for_its_own_reason(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let go = condition(0, &stream);
    let graph = kernels.counted(&go, words(7, &stream), words(5, &stream)).graph_on(&stream);
    if !has_loops(&graph) {
        return;
    }
    let graph = graph.unwrap();
    let before = profile_error(&graph, &stream);
    assert!(before.contains("only with the whole graph") && !before.contains("upload"), "{before}");
    let graph = prepared(graph);
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(profile_error(&graph, &stream), before);
}

fn profile_error<T: Send + Sync>(graph: &CudaGraph<T>, stream: &Stream) -> String {
    graph.profile().sync_on(stream).map(drop).unwrap_err().to_string()
}

/// A plan allocates no memory and runs nothing, also in the body of a loop.
fn plan_of_a_loop_has_the_nodes_of_a_pass(device: &Device) {
    let stream = device.new_stream().unwrap();
    let (kernels, go) = (Kernels::load(device), condition(1, &stream));
    let zeroed = || zeros::<u32>(1);
    let op = zip!(zeroed(), zeroed()).then(move |(left, x)| kernels.counted(&go, left, x));
    let plan = op.plan_on(device);
    if has_loops(&plan) {
        let plan = plan.unwrap();
        let work: Vec<_> = plan.nodes().iter().map(PlanNode::work).collect();
        assert!(matches!(work[..], [.., PlanWork::Loop { nodes: 2 }]), "{work:?}");
    }
}
