//! Names, plans and profiles.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cuda_async::{
    BoxedOp, Device, Error, LaunchConfig, Op,
    graph::{CudaGraph, Plan, PlanNode, PlanWork, Profile, record},
    join_all,
    memory::{copy, fill, read_back, upload_into},
    prelude::*,
    script, to_pinned,
};

use crate::{
    kernels::{Floats, Kernels},
    modules::prepared,
    on_every_device,
    polling::own_devices,
};

on_every_device! {
    names_of_nodes_nest
    names_of_branches_do_not_mix
    names_do_not_change_the_order
    errors_name_the_operation
    host_data_errors_name_operation_and_step
    pending_steps_are_named
    plan_names_kernels_and_shapes
    plan_allocates_nothing
    memory_of_a_plan_is_an_error_outside
    plan_of_a_graph_and_of_its_operation_agree
    profile_measures_every_node
    profile_has_the_effects_of_a_launch
    profile_of_an_empty_graph_is_empty
    profile_needs_a_run_that_waits
}

const LEN: usize = 64;

fn names(plan: &Plan) -> Vec<Option<&str>> {
    plan.nodes().iter().map(PlanNode::name).collect()
}

fn names_of_nodes_nest(device: &Device) {
    let inner = |x| fill(x, 1u8).named("read").then(|x| fill(x, 2));
    let op = zeros::<u8>(8).then(move |x| inner(x).named("attention")).then(|x| fill(x, 3));
    let expected = [None, Some("attention/read"), Some("attention"), None];
    let graph = record(op, device).unwrap();
    assert_eq!(names(&Plan::from(graph.recording())), expected);
}

/// Branches are recorded through several streams, one after the other.
fn names_of_branches_do_not_mix(device: &Device) {
    let branch = |name| zeros::<u8>(8).then(|x| fill(x, 1)).named(name);
    let both = zip!(branch("a"), zeros::<u8>(4), branch("b")).named("both");
    let plan = both.then(|(a, ..)| fill(a, 7)).plan_on(device).unwrap();
    let [a, b] = [Some("both/a"), Some("both/b")];
    let expected = [a, a, Some("both"), b, b, Some("both"), None];
    assert_eq!(names(&plan), expected);
    let shared = zeros::<u8>(1).named("table").shared();
    let uses = |name| shared.clone().then(|_| zeros::<u8>(2)).named(name);
    let plan = join_all([uses("first"), uses("second")]).plan_on(device).unwrap();
    let expected = [Some("first/table"), Some("first"), Some("second"), Some("second"), None];
    assert_eq!(names(&plan), expected, "{plan}");
}

fn names_do_not_change_the_order(device: &Device) {
    let plain = zip!(zeros::<u8>(4), zeros::<u8>(4)).then(|(a, b)| copy(a, b));
    let name = |op: BoxedOp<'static, _>| op.named("x").boxed();
    let named = zip!(name(zeros::<u8>(4).boxed()), name(zeros::<u8>(4).boxed()))
        .named("both")
        .then(|(a, b)| copy(a, b).named("copy"));
    let after =
        |plan: Plan| plan.nodes().iter().map(|node| node.after().to_vec()).collect::<Vec<_>>();
    let [plain, named] = [plain.plan_on(device).unwrap(), named.plan_on(device).unwrap()];
    assert_eq!(after(plain), after(named));
}

fn errors_name_the_operation(device: &Device) {
    let stream = device.new_stream().unwrap();
    let refused = || zeros::<u8>(2).then(|x| upload_into(x, [1u8]).named("upload")).named("layer");
    let check = |error: Error| {
        assert!(matches!(error.root(), Error::OutOfRange { .. }), "{error}");
        assert_eq!(error.operation(), Some("layer/upload"));
        assert!(
            error.to_string().starts_with("operation \"layer/upload\": an upload: "),
            "{error}"
        );
    };
    check(refused().sync_on(&stream).map(drop).unwrap_err());
    check(record(refused(), device).map(drop).unwrap_err());
    // Also an error that is found only after the first poll.
    let late = || Err::<BoxedOp<'static, ()>, _>(Error::OutsideScript);
    let op = h2d([1u8]).then(to_host).then(move |_| late()).named("late");
    let expected = Error::OutsideScript.in_operation("late");
    assert_eq!(op.error_of_executor(&stream), expected);
    // An error without a name is the error itself.
    let plain = value(()).then(move |()| late()).sync_on(&stream).unwrap_err();
    assert_eq!((plain.operation(), &plain), (None, &Error::OutsideScript));
}

trait RunInExecutor: DeviceOp {
    /// The error of a run in an executor.
    fn error_of_executor(self, stream: &cuda_async::Stream) -> Error {
        let policy = cuda_async::policy::SingleStream::from(stream.clone());
        futures::executor::block_on(self.schedule(&policy)).map(drop).unwrap_err()
    }
}

impl<O: DeviceOp> RunInExecutor for O {}

fn host_data_errors_name_operation_and_step(device: &Device) {
    fn refused<O: DeviceOp>(op: O, device: &Device) -> Error {
        let error = record(op, device).map(drop).unwrap_err();
        assert!(matches!(error, Error::NeedsHostData { .. }), "{error}");
        error
    }
    let x = || zeros::<u32>(4);
    let cases = [
        (refused(x().then(to_host), device), "to_host"),
        (refused(x().then(to_pinned), device), "to_pinned"),
        (refused(x().then(read_back), device), "read_back"),
        (refused(x().settled(), device), "settled"),
        (refused(x().timed(), device), "timed"),
        (refused(x().or_else(|_| x()), device), "or_else"),
        (refused(x().timeout(Duration::from_secs(1)), device), "timeout"),
    ];
    for (error, step) in cases {
        let begin = format!("operation \"{step}\" waits for host data, so");
        assert!(error.to_string().starts_with(&begin), "{error}");
        assert_eq!(error, Error::needs_host_data(step));
    }
    let named = refused(x().then(|x| to_host(x).named("read")).named("attention"), device);
    let text = named.to_string();
    let begin = "operation \"attention/read\" waits for host data (step `to_host`), so";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("graph.launch().then(to_host)"), "{text}");
}

/// A step that returns `Pending` does not state its kind.
fn pending_steps_are_named(device: &Device) {
    let stream = device.new_stream().unwrap();
    let waits = || script(async |_| std::future::pending::<cuda_async::Result<()>>().await);
    let error = record(waits().named("steps"), device).map(drop).unwrap_err();
    assert_eq!(error, Error::needs_host_data("script").in_operation("steps"));
    use cuda_async::op::{Submit, Submitted};
    struct Never;
    impl Submit for Never {
        type Output = ();
        fn submit(
            self,
            _: &mut std::task::Context<'_>,
            _: &cuda_async::ExecutionContext,
        ) -> cuda_async::Result<Submitted<Self>> {
            Ok(Submitted::Pending(self))
        }
    }
    let expected = Error::needs_host_data("a step that waits");
    let unnamed = record(Op::new(Never), device).map(drop).unwrap_err();
    assert_eq!(unnamed, expected);
    // SAFETY: submits nothing.
    let detached = unsafe { Op::new(Never).named("inner").named("outer").async_on(&stream) };
    assert_eq!(detached, Err(expected.in_operation("outer/inner")));
}

/// `x = 1; x + x; x * 2`.
fn doubled(kernels: &Kernels) -> impl DeviceOp<Output = Floats> + use<> {
    let (add, scale) = (kernels.clone(), kernels.clone());
    let x = zeros::<f32>(LEN).then(|x| fill(x, 1.0)).named("input");
    let sum = x.map(Arc::new).then(move |x| add.add(x.clone(), x).named("sum"));
    sum.then(move |x| scale.scale(x, 2.0)).named("model")
}

fn plan_names_kernels_and_shapes(device: &Device) {
    let plan = doubled(&Kernels::load(device)).plan_on(device).unwrap();
    let config = LaunchConfig::for_num_elems(LEN);
    let launch = |kernel: &str| PlanWork::Launch {
        kernel: kernel.into(),
        grid: config.grid,
        block: config.block,
        shared_bytes: 0,
    };
    let bytes = 4 * LEN as u64;
    let work: Vec<_> = plan.nodes().iter().map(|node| node.work().clone()).collect();
    let fill = || PlanWork::Fill { bytes };
    assert_eq!(work, [fill(), fill(), fill(), launch("vecadd"), launch("scale")]);
    let [input, sum] = [Some("model/input"), Some("model/sum")];
    assert_eq!(names(&plan), [input, input, sum, sum, Some("model")]);
    assert_eq!(plan.nodes()[3].after(), [1, 2]);
    assert!(plan.nodes().iter().all(|node| node.time().is_none()));
    let upload = h2d([1u8, 2]).plan_on(device).unwrap();
    assert_eq!(upload.nodes()[0].work(), &PlanWork::Upload { bytes: 2 });
}

/// The memory is larger than that of any device.
fn plan_allocates_nothing(device: &Device) {
    let plan = zeros::<u8>(1 << 55).then(|x| fill(x, 1)).plan_on(device).unwrap();
    assert_eq!((plan.len(), plan.edges()), (2, 1));
    assert_eq!(plan.nodes()[1].work(), &PlanWork::Fill { bytes: 1 << 55 });
}

fn memory_of_a_plan_is_an_error_outside(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut kept = None;
    zeros::<u8>(8).map(|x| kept = Some(Arc::new(x))).plan_on(device).unwrap();
    let x = kept.unwrap();
    let check =
        |error: Error| assert!(error.to_string().contains("allocated by a plan"), "{error}");
    check(to_host(x.clone()).sync_on(&stream).map(drop).unwrap_err());
    check(
        record(copy(x.clone(), zeros::<u8>(8).sync_on(&stream).unwrap()), device)
            .map(drop)
            .unwrap_err(),
    );
    // Another plan may use it.
    let y = zeros::<u8>(8);
    let plan = y.then(|y| copy(x.clone(), y)).plan_on(device).unwrap();
    assert_eq!(plan.len(), 2);
    drop(x);
    assert_eq!(h2d([1u8]).then(to_host).sync_on(&stream).unwrap(), [1]);
}

fn graph(device: &Device) -> CudaGraph<Floats> {
    let stream = device.new_stream().unwrap();
    doubled(&Kernels::load(device)).graph_on(&stream).unwrap()
}

fn plan_of_a_graph_and_of_its_operation_agree(device: &Device) {
    let graph = graph(device);
    let plan = doubled(&Kernels::load(device)).plan_on(device).unwrap();
    assert_eq!((graph.plan(), graph.plan().len()), (plan, graph.len()));
}

fn times(profile: &Profile) -> HashMap<Option<&str>, Duration> {
    profile.plan().nodes().iter().map(|node| (node.name(), node.time().unwrap())).collect()
}

fn profile_measures_every_node(device: &Device) {
    let stream = device.new_stream().unwrap();
    let kernels = Kernels::load(device);
    // The fast kernel, too, runs for longer than a tick of the device's clock.
    let spin = |iterations| {
        let kernels = kernels.clone();
        cuda_async::uninitialized::<u32>(LEN).then(move |x| kernels.spin(x, iterations))
    };
    let op = zip!(spin(30_000).named("fast"), spin(300_000).named("slow"));
    let graph = op.graph_on(&stream).unwrap();
    // Work of other tests delays single nodes, so a profile in which the fast one took longer is measured again.
    let profile = (0..20)
        .map(|_| graph.profile().sync_on(&stream).unwrap())
        .find(|profile| times(profile)[&Some("slow")] > times(profile)[&Some("fast")])
        .expect("slow");
    let times = times(&profile);
    assert_eq!((times.len(), profile.plan().len()), (3, 3));
    assert_eq!(times[&None], Duration::ZERO, "the join");
    assert!(!times[&Some("fast")].is_zero());
    assert_eq!(profile.total(), times.values().sum::<Duration>());
    let order: Vec<_> =
        profile.by_time().iter().map(|(index, node)| (*index, node.name())).collect();
    assert_eq!(order, [(1, Some("slow")), (0, Some("fast")), (2, None)]);
    // The sum is about the time of a whole launch in sequence.
    let (_, whole) = graph.profile().timed().sync_on(&stream).unwrap();
    assert!(profile.total() < 20 * whole, "{:?} of {whole:?}", profile.total());
    let table = profile.to_string();
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("profile: 3 nodes, "), "{table}");
    assert!(lines[1].contains("#1     launch spin              slow"), "{table}");
    assert!(lines[2].contains("#0     launch spin              fast"), "{table}");
    assert!(lines[3].trim_start().starts_with("0.00 us   0.0 %  #2     join"), "{table}");
}

/// Each run of the graph goes on from the result of the last one.
fn profile_has_the_effects_of_a_launch(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let x = zeros::<f32>(LEN).sync_on(&stream).unwrap();
    let graph = prepared(kernels.add_scalar(x, 1.0).graph_on(&stream).unwrap());
    graph.launch().sync_on(&stream).unwrap();
    for _ in 0..2 {
        graph.profile().sync_on(&stream).unwrap();
    }
    let x = graph.take_output().unwrap();
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [3.0; LEN]);
}

fn profile_of_an_empty_graph_is_empty(device: &Device) {
    let stream = device.new_stream().unwrap();
    let graph = value(7).graph_on(&stream).unwrap();
    let profile = graph.profile().sync_on(&stream).unwrap();
    assert_eq!((profile.total(), profile.plan().len()), (Duration::ZERO, 0));
    assert_eq!(profile.to_string(), "profile: 0 nodes, 0.00 us in sequence");
}

fn profile_needs_a_run_that_waits(device: &Device) {
    let stream = device.new_stream().unwrap();
    let graph = graph(device);
    // SAFETY: submits nothing.
    let refused = unsafe { graph.profile().async_on(&stream) };
    assert_eq!(refused, Err(Error::needs_host_data("profile")));
    let [other, _] = own_devices();
    let refused = graph.profile().sync_on(&other.new_stream().unwrap()).unwrap_err();
    assert!(matches!(refused, Error::WrongDevice { .. }), "{refused}");
}
