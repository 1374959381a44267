//! The auto traits of every public type, which are part of the API.

use std::sync::Arc;

use cuda_async::{
    BoxedOp, Device, DeviceBuffer, DeviceFuture, Error, ExecutionContext, Function, LaunchConfig,
    Module, Op, PinnedBuffer, Retry, SchedulingPolicy, Stream,
    cuda_core::{DeviceInfo, Event, Fault, FaultKind, FaultSite, SourceLine},
    cuda_cpu::{Checks, CpuOptions, Profile, Schedule},
    kernel::{self, ByValue},
    memory,
    ops::{self, ScriptContext},
    policy::{Devices, LeastLoaded, Priorities, SingleStream, StreamPoolRoundRobin},
    run::RunBuffered,
};
use cuda_core::{
    Access, Allocation, Arguments, Backend, Download, EntryInfo, Loading, MemoryInfo, MemoryWaiter,
    NoticeSink, Pending as Reply, Pinning, Provider, Ticket, Waiter,
    protocol::{Capabilities, Control, HostBlock, Notice, Request, Submission, Work},
};

fn send<T: Send + ?Sized>() {}

fn send_sync<T: Send + Sync + ?Sized>() {}

fn unpin<T: Unpin>() {}

#[test]
fn handles_are_send_sync_and_unpin() {
    send_sync::<Device>();
    send_sync::<Stream>();
    send_sync::<Event>();
    send_sync::<Module>();
    send_sync::<Function>();
    send_sync::<Allocation>();
    send_sync::<DeviceBuffer<f32>>();
    send_sync::<PinnedBuffer<f32>>();
    send_sync::<Download<f32>>();
    send::<ExecutionContext>();
    send_sync::<Arguments>();
    send_sync::<HostBlock>();
    send_sync::<Waiter>();
    send_sync::<Pinning<f32>>();
    send::<Loading>();
    send::<Reply<()>>();
    send_sync::<MemoryWaiter>();
    send_sync::<SingleStream>();
    send_sync::<StreamPoolRoundRobin>();
    send_sync::<LeastLoaded>();
    send_sync::<Priorities>();
    send_sync::<Devices>();
    send_sync::<Retry>();
    send_sync::<ScriptContext>();
    send_sync::<Arc<dyn SchedulingPolicy>>();
    send_sync::<dyn Backend>();
    send_sync::<dyn Provider>();
    send_sync::<dyn NoticeSink>();
}

#[test]
fn plain_data_is_send_sync_and_unpin() {
    send_sync::<Error>();
    send_sync::<Fault>();
    send_sync::<FaultKind>();
    send_sync::<FaultSite>();
    send_sync::<SourceLine>();
    send_sync::<CpuOptions>();
    send_sync::<Checks>();
    send_sync::<Schedule>();
    send_sync::<Profile>();
    send_sync::<DeviceInfo>();
    send_sync::<LaunchConfig>();
    send_sync::<Work<'static>>();
    send_sync::<Submission<'static>>();
    send_sync::<Control>();
    send_sync::<Capabilities>();
    send_sync::<Request>();
    send_sync::<Notice>();
    send_sync::<EntryInfo>();
    send_sync::<MemoryInfo>();
    send_sync::<Access>();
    send_sync::<Ticket>();
    send_sync::<ByValue<[f32; 2]>>();
}

/// Operations and futures are `Send`. `Sync` is not promised, because their contents may not be shareable.
#[test]
fn operations_are_send() {
    type Buffer = DeviceBuffer<f32>;
    type Pending = std::future::Pending<Result<u8, Error>>;
    send::<BoxedOp<'static, u8>>();
    send::<Op<ops::Value<u8>>>();
    send::<Op<memory::Allocate<f32>>>();
    send::<Op<memory::Upload<Vec<f32>>>>();
    send::<Op<memory::ToHost<Buffer>>>();
    send::<Op<memory::ToPinned<Arc<Buffer>>>>();
    send::<Op<kernel::LaunchOp<(Buffer, f32)>>>();
    send::<Op<kernel::Prepared<(Buffer, f32)>>>();
    send::<Op<ops::InSequence<cuda_async::op::Ready<Buffer>, memory::Allocate<f32>>>>();
    send::<Op<kernel::LoadPtx<'static>>>();
    send::<Op<memory::ReadBack<Buffer>>>();
    send::<Op<memory::UploadInto<Buffer, Vec<f32>>>>();
    send::<Op<memory::Fill<Buffer>>>();
    send::<Op<memory::Copy<Buffer, Buffer>>>();
    send::<Op<ops::Mapped<ops::Value<u8>, ops::MapOutput<fn(u8) -> u8>>>>();
    send::<Op<ops::Mapped<ops::Value<u8>, ops::InspectOutput<fn(&u8)>>>>();
    send::<Op<ops::Chain<ops::Value<u8>, ops::Plain<fn(u8) -> Op<ops::Value<u8>>>>>>();
    send::<Op<ops::Shared<ops::Value<u8>>>>();
    send::<Op<ops::JoinAll<ops::Value<u8>>>>();
    send::<Op<ops::Zip<(ops::Branch<ops::Value<u8>>, ops::Branch<ops::Value<u8>>)>>>();
    send::<Op<ops::InOrder<std::vec::IntoIter<u8>, ops::Value<u8>>>>();
    send::<Op<ops::Iterate<u8, fn(u8) -> u8, ops::Value<u8>>>>();
    send::<Op<ops::Settled<ops::Value<u8>>>>();
    send::<Op<ops::Mapped<ops::Value<u8>, ops::MapError<fn(Error) -> Error>>>>();
    send::<Op<ops::OrElse<ops::Value<u8>, fn(Error) -> u8, ops::Value<u8>>>>();
    send::<Op<ops::Mapped<ops::Value<Arc<u8>>, ops::UnwrapArc>>>();
    send::<Op<ops::Timeout<memory::Allocate<f32>>>>();
    send::<Op<ops::Race<memory::Allocate<f32>>>>();
    send::<Op<ops::Retrying<fn(&Error) -> bool, fn() -> u8, memory::Allocate<f32>>>>();
    send::<Op<ops::On<memory::Allocate<f32>>>>();
    send::<Op<ops::Allocating<memory::Allocate<f32>, ops::Waiting>>>();
    send::<Op<ops::Allocating<memory::Allocate<f32>, ops::FromPool>>>();
    send::<Op<ops::Script<fn(ScriptContext) -> u8, Pending>>>();
    send::<ops::ScriptRun<memory::Allocate<f32>>>();
    unpin::<ops::ScriptRun<memory::Allocate<f32>>>();
    send::<DeviceFuture<memory::ToHost<Buffer>>>();
    unpin::<DeviceFuture<memory::ToHost<Buffer>>>();
    type Ops = futures::stream::Iter<std::vec::IntoIter<Op<memory::ToHost<Buffer>>>>;
    send::<RunBuffered<Ops>>();
    unpin::<RunBuffered<Ops>>();
}
