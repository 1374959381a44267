//! The bytes of a frame: little-endian numbers, an opcode first, lengths before what is variable.

use cuda_core::{
    Access, Error, FunctionAttributes, LaunchConfig, MemoryInfo, Occupancy, Ticket,
    protocol::{
        AllocId, Control, FunctionId, HostId, HostRegion, Launch, LaunchAttributes, ModuleId,
        ModuleImage, Notice, Pattern, PoolChange, PoolId, PoolMemory, PoolSpec, Region, Relocation,
        Reply, Request, StreamId, TransferId, Use, Work,
    },
};

use super::errors::{get_error, put_error};

/// From client to node, after the number of round trips that it depends on.
pub enum Call {
    /// The bytes of an upload travel with it.
    Submit {
        ticket: Ticket,
        after: Vec<Ticket>,
        work: Work<'static>,
        bytes: Vec<u8>,
    },
    Control(Control),
    Request {
        id: u64,
        request: Request,
    },
}

/// From node to client.
pub enum Answer {
    /// The bytes of a download. Sent before the progress that covers it.
    Landed {
        ticket: Ticket,
        bytes: Vec<u8>,
    },
    Notice(Notice),
    Reply {
        id: u64,
        reply: Result<Reply, Error>,
    },
}

#[derive(Default)]
pub struct Writer(Vec<u8>);

pub struct Reader<'a>(&'a [u8]);

macro_rules! numbers {
    ($($put:ident $get:ident $ty:ty;)*) => {
        impl Writer {
            $(pub fn $put(&mut self, x: $ty) -> &mut Self {
                self.0.extend_from_slice(&x.to_le_bytes());
                self
            })*
        }
        impl Reader<'_> {
            $(pub fn $get(&mut self) -> $ty {
                <$ty>::from_le_bytes(self.take(size_of::<$ty>()).try_into().unwrap())
            })*
        }
    };
}

numbers! { u8 get_u8 u8; u32 get_u32 u32; u64 get_u64 u64; i32 get_i32 i32; }

impl Writer {
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn list<T>(&mut self, items: &[T], put: impl Fn(&mut Self, &T)) -> &mut Self {
        self.u64(items.len() as u64);
        items.iter().for_each(|item| put(self, item));
        self
    }

    pub fn option<T>(&mut self, item: Option<T>, put: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.u8(item.is_some().into());
        if let Some(item) = item {
            put(self, item);
        }
        self
    }

    fn ticket(&mut self, ticket: Ticket) -> &mut Self {
        self.u64(ticket.stream.0).u64(ticket.number)
    }

    fn region(&mut self, region: Region) -> &mut Self {
        self.u64(region.alloc.0).u64(region.offset)
    }

    fn host(&mut self, region: HostRegion) -> &mut Self {
        self.u64(region.block.0).u64(region.offset)
    }

    pub fn dims(&mut self, dims: [u32; 3]) -> &mut Self {
        dims.iter().for_each(|x| _ = self.u32(*x));
        self
    }
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let count = self.get_u64() as usize;
        self.take(count).to_vec()
    }

    pub fn text(&mut self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    pub fn list<T>(&mut self, get: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.get_u64()).map(|_| get(self)).collect()
    }

    pub fn option<T>(&mut self, get: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.get_u8() == 1).then(|| get(self))
    }

    fn ticket(&mut self) -> Ticket {
        Ticket { stream: StreamId(self.get_u64()), number: self.get_u64() }
    }

    fn access(&mut self) -> Access {
        if self.get_u8() == 1 { Access::Write } else { Access::Read }
    }

    fn region(&mut self) -> Region {
        Region { alloc: AllocId(self.get_u64()), offset: self.get_u64() }
    }

    fn host(&mut self) -> HostRegion {
        HostRegion { block: HostId(self.get_u64()), offset: self.get_u64() }
    }

    pub fn dims(&mut self) -> [u32; 3] {
        [self.get_u32(), self.get_u32(), self.get_u32()]
    }

    pub fn config(&mut self) -> LaunchConfig {
        let ([gx, gy, gz], [x, y, z]) = (self.dims(), self.dims());
        let shape = LaunchConfig::new(gx, x).grid(gx, gy, gz).block(x, y, z);
        let shape = shape.shared_bytes(self.get_u32());
        let attributes = LaunchAttributes::from_bytes(self.get_u32().to_le_bytes()).unwrap();
        LaunchConfig { attributes, ..shape }
    }
}

pub fn encode_call(trips: u64, call: &Call) -> Vec<u8> {
    let mut w = Writer::default();
    w.u64(trips);
    match call {
        Call::Submit { ticket, after, work, bytes } => {
            w.u8(1).ticket(*ticket).list(after, |w, it| _ = w.ticket(*it));
            put_work(&mut w, work);
            w.bytes(bytes);
        }
        Call::Control(control) => {
            w.u8(2);
            put_control(&mut w, control);
        }
        Call::Request { id, request } => {
            w.u8(3).u64(*id);
            match request {
                Request::Loaded { module } => w.u8(1).u64(module.0),
                Request::Memory => w.u8(2),
                Request::Reach { address } => w.u8(3).bytes(address.as_bytes()),
                Request::Reset => w.u8(4),
                Request::Occupancy { function, config } => {
                    let LaunchConfig { grid, block, shared_bytes, attributes } = config;
                    w.u8(5).u64(function.module.0).u32(function.entry);
                    w.dims(*grid).dims(*block).u32(*shared_bytes);
                    w.u32(u32::from_le_bytes(attributes.to_bytes()))
                }
                Request::PoolMemory { pool } => w.u8(6).u64(pool.0),
                Request::TrimPool { pool, keep } => w.u8(7).u64(pool.0).u64(*keep),
                other => unreachable!("{other:?}"),
            };
        }
    }
    w.0
}

pub fn decode_call(bytes: &[u8]) -> (u64, Call) {
    let mut r = Reader::new(bytes);
    let trips = r.get_u64();
    let call = match r.get_u8() {
        1 => Call::Submit {
            ticket: r.ticket(),
            after: r.list(Reader::ticket),
            work: get_work(&mut r),
            bytes: r.bytes(),
        },
        2 => Call::Control(get_control(&mut r)),
        _ => Call::Request {
            id: r.get_u64(),
            request: match r.get_u8() {
                1 => Request::Loaded { module: ModuleId(r.get_u64()) },
                2 => Request::Memory,
                3 => Request::Reach { address: r.text() },
                5 => Request::Occupancy {
                    function: FunctionId { module: ModuleId(r.get_u64()), entry: r.get_u32() },
                    config: r.config(),
                },
                6 => Request::PoolMemory { pool: PoolId(r.get_u64()) },
                7 => Request::TrimPool { pool: PoolId(r.get_u64()), keep: r.get_u64() },
                _ => Request::Reset,
            },
        },
    };
    (trips, call)
}

fn put_work(w: &mut Writer, work: &Work<'_>) {
    match work {
        Work::Join => w.u8(0),
        Work::Upload { from, to, bytes } => w.u8(1).host(*from).region(*to).u64(*bytes),
        Work::Download { from, to, bytes } => w.u8(2).region(*from).host(*to).u64(*bytes),
        Work::Copy { from, to, bytes } => w.u8(3).region(*from).region(*to).u64(*bytes),
        Work::Fill { to, pattern, count } => {
            let (kind, value) = match pattern {
                Pattern::Byte(x) => (1, u32::from(*x)),
                Pattern::Half(x) => (2, u32::from(*x)),
                Pattern::Word(x) => (4, *x),
            };
            w.u8(4).region(*to).u8(kind).u32(value).u64(*count)
        }
        Work::Send { from, transfer, bytes } => w.u8(5).region(*from).u64(transfer.0).u64(*bytes),
        Work::Timestamp { to } => w.u8(7).region(*to),
        Work::Launch(launch) => {
            let LaunchConfig { grid, block, shared_bytes, attributes } = launch.config;
            w.u8(6).u64(launch.function.module.0).u32(launch.function.entry);
            w.dims(grid)
                .dims(block)
                .u32(shared_bytes)
                .u32(u32::from_le_bytes(attributes.to_bytes()));
            w.bytes(&launch.params);
            w.list(&launch.relocations, |w, it| {
                w.u32(it.at)
                    .region(it.region)
                    .u64(it.bytes)
                    .u8((it.access == Access::Write).into());
            });
            w.list(&launch.variables, |w, it| {
                w.u64(it.base.0)
                    .u64(it.range.start)
                    .u64(it.range.end)
                    .u8((it.access == Access::Write).into());
            })
        }
        other => unreachable!("{other:?}"),
    };
}

fn get_work(r: &mut Reader<'_>) -> Work<'static> {
    match r.get_u8() {
        0 => Work::Join,
        1 => Work::Upload { from: r.host(), to: r.region(), bytes: r.get_u64() },
        2 => Work::Download { from: r.region(), to: r.host(), bytes: r.get_u64() },
        3 => Work::Copy { from: r.region(), to: r.region(), bytes: r.get_u64() },
        4 => {
            let (to, kind, value) = (r.region(), r.get_u8(), r.get_u32());
            let pattern = match kind {
                1 => Pattern::Byte(value as u8),
                2 => Pattern::Half(value as u16),
                _ => Pattern::Word(value),
            };
            Work::Fill { to, pattern, count: r.get_u64() }
        }
        5 => {
            let (from, transfer) = (r.region(), TransferId(r.get_u64()));
            Work::Send { from, transfer, bytes: r.get_u64() }
        }
        7 => Work::Timestamp { to: r.region() },
        _ => Work::Launch(Launch {
            function: FunctionId { module: ModuleId(r.get_u64()), entry: r.get_u32() },
            config: r.config(),
            params: r.bytes().into(),
            relocations: r
                .list(|r| Relocation {
                    at: r.get_u32(),
                    region: r.region(),
                    bytes: r.get_u64(),
                    access: r.access(),
                })
                .into(),
            variables: r
                .list(|r| Use {
                    base: AllocId(r.get_u64()),
                    range: r.get_u64()..r.get_u64(),
                    access: r.access(),
                })
                .into(),
        }),
    }
}

fn put_control(w: &mut Writer, control: &Control) {
    match control {
        Control::CreateStream { id, priority } => w.u8(1).u64(id.0).i32(*priority),
        Control::RetireStream { id } => w.u8(2).u64(id.0),
        Control::Allocate { id, bytes, at } => w.u8(3).u64(id.0).u64(*bytes).ticket(*at),
        Control::Free { id, stream, after } => {
            w.u8(4).u64(id.0).u64(stream.0).list(after, |w, it| _ = w.ticket(*it))
        }
        Control::LoadModule { id, image } => {
            let (kind, bytes) = match image {
                ModuleImage::Ptx(text) => (0, text.as_bytes()),
                ModuleImage::Cubin(image) => (1, image.as_slice()),
                other => unreachable!("{other:?}"),
            };
            w.u8(5).u64(id.0).u8(kind).bytes(bytes)
        }
        Control::UnloadModule { id } => w.u8(6).u64(id.0),
        Control::Receive { transfer, to, bytes } => w.u8(7).u64(transfer.0).region(*to).u64(*bytes),
        Control::Want { ticket } => w.u8(8).ticket(*ticket),
        Control::NameVariable { id, module, name, bytes } => {
            w.u8(9).u64(id.0).u64(module.0).bytes(name.as_bytes()).u64(*bytes)
        }
        Control::AllocateIn { pool, id, bytes, at } => {
            w.u8(10).u64(pool.0).u64(id.0).u64(*bytes).ticket(*at)
        }
        Control::CreatePool { id, spec } => w.u8(11).u64(id.0).u64(spec.release_threshold),
        Control::ChangePool { id, change: PoolChange::ReleaseThreshold(bytes) } => {
            w.u8(12).u64(id.0).u64(*bytes)
        }
        Control::ChangePool { id, change: PoolChange::ResetPeak } => w.u8(13).u64(id.0),
        Control::DropPool { id } => w.u8(14).u64(id.0),
        other => unreachable!("{other:?}"),
    };
}

fn get_control(r: &mut Reader<'_>) -> Control {
    match r.get_u8() {
        1 => Control::CreateStream { id: StreamId(r.get_u64()), priority: r.get_i32() },
        2 => Control::RetireStream { id: StreamId(r.get_u64()) },
        3 => Control::Allocate { id: AllocId(r.get_u64()), bytes: r.get_u64(), at: r.ticket() },
        4 => Control::Free {
            id: AllocId(r.get_u64()),
            stream: StreamId(r.get_u64()),
            after: r.list(Reader::ticket),
        },
        5 => {
            let (id, kind) = (ModuleId(r.get_u64()), r.get_u8());
            let image =
                if kind == 0 { ModuleImage::Ptx(r.text()) } else { ModuleImage::Cubin(r.bytes()) };
            Control::LoadModule { id, image }
        }
        6 => Control::UnloadModule { id: ModuleId(r.get_u64()) },
        7 => {
            let (transfer, to) = (TransferId(r.get_u64()), r.region());
            Control::Receive { transfer, to, bytes: r.get_u64() }
        }
        8 => Control::Want { ticket: r.ticket() },
        10 => Control::AllocateIn {
            pool: PoolId(r.get_u64()),
            id: AllocId(r.get_u64()),
            bytes: r.get_u64(),
            at: r.ticket(),
        },
        11 => Control::CreatePool { id: PoolId(r.get_u64()), spec: PoolSpec::new(r.get_u64()) },
        12 => {
            let (id, bytes) = (PoolId(r.get_u64()), r.get_u64());
            Control::ChangePool { id, change: PoolChange::ReleaseThreshold(bytes) }
        }
        13 => Control::ChangePool { id: PoolId(r.get_u64()), change: PoolChange::ResetPeak },
        14 => Control::DropPool { id: PoolId(r.get_u64()) },
        _ => Control::NameVariable {
            id: AllocId(r.get_u64()),
            module: ModuleId(r.get_u64()),
            name: r.text(),
            bytes: r.get_u64(),
        },
    }
}

pub fn encode_answer(trips: u64, answer: &Answer) -> Vec<u8> {
    let mut w = Writer::default();
    w.u64(trips);
    match answer {
        Answer::Landed { ticket, bytes } => _ = w.u8(1).ticket(*ticket).bytes(bytes),
        Answer::Notice(Notice::Progress { stream, accepted, complete }) => {
            w.u8(2).u64(stream.0).u64(*accepted).u64(*complete);
        }
        Answer::Notice(Notice::Failed { ticket, error }) => {
            w.u8(3).ticket(*ticket);
            put_error(&mut w, error);
        }
        Answer::Notice(Notice::Faulted { error }) => put_error(w.u8(4), error),
        Answer::Notice(Notice::Lost { error }) => put_error(w.u8(5), error),
        Answer::Notice(Notice::Output { text }) => _ = w.u8(8).bytes(text.as_bytes()),
        Answer::Notice(other) => unreachable!("{other:?}"),
        Answer::Reply { id, reply } => {
            w.u8(6).u64(*id);
            match reply {
                Err(error) => put_error(w.u8(0), error),
                Ok(Reply::Loaded { max_threads, log, .. }) => {
                    w.u8(1).list(max_threads, |w, it| _ = w.u32(*it)).bytes(log.as_bytes());
                }
                Ok(Reply::Memory(MemoryInfo { used, free, total })) => {
                    w.u8(2).u64(*used).u64(*free).u64(*total);
                }
                Ok(Reply::Pool(PoolMemory { reserved, reserved_peak, release_threshold })) => {
                    w.u8(6).u64(*reserved).u64(*reserved_peak).u64(*release_threshold);
                }
                Ok(Reply::Reached(reached)) => _ = w.u8(3).u8((*reached).into()),
                Ok(Reply::Reset { lost }) => {
                    w.u8(4).option(lost.as_ref(), put_error);
                }
                Ok(Reply::Occupancy(it)) => {
                    w.u8(5).u32(it.blocks_per_multiprocessor).u32(it.max_cooperative_blocks);
                    w.u32(it.max_cluster_blocks).u32(it.suggested_block);
                    w.u32(it.kernel.registers).u32(it.kernel.local_bytes);
                    w.u32(it.kernel.static_shared_bytes).u32(it.kernel.max_threads);
                }
                Ok(other) => unreachable!("{other:?}"),
            }
        }
    }
    w.0
}

pub fn decode_answer(bytes: &[u8]) -> (u64, Answer) {
    let mut r = Reader::new(bytes);
    let trips = r.get_u64();
    let answer = match r.get_u8() {
        1 => Answer::Landed { ticket: r.ticket(), bytes: r.bytes() },
        2 => Answer::Notice(Notice::Progress {
            stream: StreamId(r.get_u64()),
            accepted: r.get_u64(),
            complete: r.get_u64(),
        }),
        3 => Answer::Notice(Notice::Failed { ticket: r.ticket(), error: get_error(&mut r) }),
        4 => Answer::Notice(Notice::Faulted { error: get_error(&mut r) }),
        5 => Answer::Notice(Notice::Lost { error: get_error(&mut r) }),
        8 => Answer::Notice(Notice::Output { text: r.text() }),
        _ => Answer::Reply {
            id: r.get_u64(),
            reply: match r.get_u8() {
                0 => Err(get_error(&mut r)),
                1 => {
                    let (max_threads, log) = (r.list(Reader::get_u32), r.text());
                    Ok(Reply::Loaded { max_threads, log, entries: Vec::new() })
                }
                2 => {
                    let (used, free, total) = (r.get_u64(), r.get_u64(), r.get_u64());
                    Ok(Reply::Memory(MemoryInfo { used, free, total }))
                }
                3 => Ok(Reply::Reached(r.get_u8() == 1)),
                5 => Ok(Reply::Occupancy(Occupancy {
                    blocks_per_multiprocessor: r.get_u32(),
                    max_cooperative_blocks: r.get_u32(),
                    max_cluster_blocks: r.get_u32(),
                    suggested_block: r.get_u32(),
                    kernel: FunctionAttributes {
                        registers: r.get_u32(),
                        local_bytes: r.get_u32(),
                        static_shared_bytes: r.get_u32(),
                        max_threads: r.get_u32(),
                    },
                })),
                6 => Ok(Reply::Pool(PoolMemory {
                    reserved: r.get_u64(),
                    reserved_peak: r.get_u64(),
                    release_threshold: r.get_u64(),
                })),
                _ => Ok(Reply::Reset { lost: r.option(get_error) }),
            },
        },
    };
    (trips, answer)
}
