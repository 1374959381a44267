//! The allocation table: which address belongs to what.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxHashSet;

use super::contents::{Contents, Usage};
use super::error::{AccessError, FreeError, Nearest, OutOfMemory};
use super::room::Room;
use super::storage::{ALIGN, Allocation};

/// The first address given out. Below it lie the windows of the other state spaces, so that one
/// generic address names one byte.
const FIRST_ADDRESS: u64 = 0x10_0000_0000;

/// Unused addresses after every allocation.
const GUARD: u64 = 64 << 10;

/// Freed ranges that are remembered, to tell use after free from out of bounds.
const REMEMBERED_FREES: usize = 1 << 16;

/// Allocations that kernels may have at a time: tiny ones take more of the host than of the device. A GPU's heap, of 8
/// MiB, has room for about as many.
const MAX_BY_KERNELS: usize = 1 << 18;

/// Device memory: see the module for its rules.
#[derive(Debug)]
pub struct Memory {
    contents: Contents,
    /// Whether it is followed which bytes somebody has written.
    tracks: bool,
    /// How many allocations kernels have freed so far.
    frees_by_kernels: AtomicU64,
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    live: BTreeMap<u64, Arc<Allocation>>,
    freed: BTreeMap<u64, u64>,
    freed_order: VecDeque<u64>,
    /// Addresses that a kernel's malloc has given, and not got back.
    by_kernels: FxHashSet<u64>,
    next: u64,
    room: Room,
}

impl Memory {
    /// Memory of `capacity` bytes, with the default [`Contents`].
    pub fn new(capacity: u64) -> Self {
        Self::with_contents(capacity, Contents::default())
    }

    /// Memory of `capacity` bytes whose new allocations hold `contents`.
    pub fn with_contents(capacity: u64, contents: Contents) -> Self {
        let table = Table {
            live: BTreeMap::new(),
            freed: BTreeMap::new(),
            freed_order: VecDeque::new(),
            by_kernels: FxHashSet::default(),
            next: FIRST_ADDRESS,
            room: Room::new(capacity),
        };
        let (frees_by_kernels, table) = (AtomicU64::new(0), RwLock::new(table));
        Self { contents, tracks: false, frees_by_kernels, table }
    }

    /// The same memory, which follows of each byte whether somebody has written it: what
    /// [`Checks::uninitialised`](crate::Checks::uninitialised) needs. It takes an eighth more of the host's memory.
    pub fn tracking(self) -> Self {
        Self { tracks: true, ..self }
    }

    /// Allocates `bytes`, aligned to `align` (a power of two; never less than 256) and returns
    /// the address. No bytes are fine too: the address is unique and nothing can be accessed there.
    /// Large memory is taken from the system page by page, as it is touched: this does not wait for it.
    pub fn alloc(&self, bytes: u64, align: u64) -> Result<u64, OutOfMemory> {
        self.alloc_holding(self.contents, bytes, align)
    }

    /// [`Memory::alloc`] of zeroes, which count as written.
    pub(crate) fn alloc_zeroed(&self, bytes: u64, align: u64) -> Result<u64, OutOfMemory> {
        let address = self.alloc_holding(Contents::Byte(0), bytes, align)?;
        if self.tracks
            && let Ok(allocation) = self.find(address, bytes)
        {
            allocation.mark(address, bytes);
        }
        Ok(address)
    }

    fn alloc_holding(
        &self,
        contents: Contents,
        bytes: u64,
        align: u64,
    ) -> Result<u64, OutOfMemory> {
        let align = align.max(ALIGN).checked_next_power_of_two().unwrap_or(1 << 63);
        let mut table = self.table.write();
        if !table.room.fits_now(bytes) {
            return Err(table.room.full(bytes));
        }
        let base = table.place(bytes, align)?;
        table.room.take(bytes);
        drop(table);
        self.make(base, bytes, contents)?;
        Ok(base)
    }

    /// An address for `bytes` that fit now, or will when all has been freed that was announced. There is
    /// nothing there until [`Memory::fulfil`].
    pub(crate) fn promise(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        let mut table = self.table.write();
        if !table.room.fits_later(bytes) {
            return Err(table.room.full(bytes));
        }
        let base = table.place(bytes, ALIGN)?;
        table.room.take_when_free(base, bytes);
        Ok(base)
    }

    /// Whether what was promised can be fulfilled now.
    pub(crate) fn has_room_for(&self, promised: u64) -> bool {
        !self.table.read().room.is_waiting(promised)
    }

    /// Makes memory that was promised, and for which there is room.
    pub(crate) fn fulfil(&self, promised: u64, bytes: u64) -> Result<(), OutOfMemory> {
        self.make(promised, bytes, self.contents)
    }

    /// Memory of this size will be freed: it counts as free from now on.
    pub(crate) fn announce_free(&self, bytes: u64) {
        self.table.write().room.announce(bytes);
    }

    /// Frees what was announced. It may be gone: freed by hand, or never made.
    pub(crate) fn free_announced(&self, address: u64, bytes: u64) {
        let mut table = self.table.write();
        // Both at once: in between, the memory would count as taken again.
        table.room.announced_leave(bytes);
        let gone = table.remove(address);
        drop(table);
        drop(gone);
    }

    /// The host's allocator is asked with the table unlocked: running kernels look things up there.
    fn make(&self, base: u64, bytes: u64, contents: Contents) -> Result<(), OutOfMemory> {
        let allocation = Allocation::new(base, bytes, contents, self.tracks);
        let mut table = self.table.write();
        let Some(allocation) = allocation else {
            table.room.give_back(bytes);
            return Err(table.room.full(bytes));
        };
        table.live.insert(base, Arc::new(allocation));
        Ok(())
    }

    /// [`Memory::alloc`] for a kernel's malloc.
    pub(crate) fn alloc_by_kernel(&self, bytes: u64, align: u64) -> Result<u64, OutOfMemory> {
        let table = self.table.read();
        if table.by_kernels.len() >= MAX_BY_KERNELS {
            return Err(table.room.full(bytes));
        }
        drop(table);
        let address = self.alloc(bytes, align)?;
        self.table.write().by_kernels.insert(address);
        Ok(address)
    }

    /// [`Memory::free`] by a kernel, of what a kernel's malloc has given.
    pub(crate) fn free_by_kernel(&self, address: u64) -> Result<(), FreeError> {
        let table = self.table.read();
        if !table.by_kernels.contains(&address) {
            return Err(FreeError { address, freed: table.freed.contains_key(&address) });
        }
        drop(table);
        self.free(address)?;
        self.frees_by_kernels.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// How many allocations kernels have freed so far.
    pub(super) fn frees_by_kernels(&self) -> u64 {
        self.frees_by_kernels.load(Ordering::Relaxed)
    }

    /// Drops those that are not in the table any more.
    pub(super) fn retain_live(&self, held: &mut Vec<Arc<Allocation>>) {
        let table = self.table.read();
        held.retain(|allocation| table.live.contains_key(&allocation.base));
    }

    /// Frees the allocation that starts at `address`. Its range stays poisoned.
    pub fn free(&self, address: u64) -> Result<(), FreeError> {
        let mut table = self.table.write();
        let removed = table.remove(address);
        drop(table);
        // The memory goes back (unless a kernel holds it) with the table unlocked.
        removed.map(drop)
    }

    /// How much is in use.
    pub fn usage(&self) -> Usage {
        let table = self.table.read();
        Usage {
            used: table.room.used(),
            peak: table.room.peak(),
            total: table.room.capacity(),
            allocations: table.live.len(),
        }
    }

    /// Address and size of the live allocation that `address` lies in.
    pub fn allocation_of(&self, address: u64) -> Option<(u64, u64)> {
        self.find(address, 0).ok().map(|a| (a.base, a.size))
    }

    /// The allocation that holds these bytes.
    pub(super) fn find(&self, address: u64, bytes: u64) -> Result<Arc<Allocation>, AccessError> {
        let table = self.table.read();
        match table.live.range(..=address).next_back() {
            Some((_, allocation)) if allocation.holds(address, bytes) => Ok(allocation.clone()),
            _ => Err(table.explain(address, bytes)),
        }
    }

    /// What an access to a bad address is told.
    pub(crate) fn explain(&self, address: u64, bytes: u64) -> AccessError {
        self.table.read().explain(address, bytes)
    }
}

impl Table {
    /// Takes the allocation that starts at `address` out, and remembers where it was.
    fn remove(&mut self, address: u64) -> Result<Arc<Allocation>, FreeError> {
        self.by_kernels.remove(&address);
        let Some(allocation) = self.live.remove(&address) else {
            return Err(FreeError { address, freed: self.freed.contains_key(&address) });
        };
        self.room.give_back(allocation.size);
        self.freed.insert(address, allocation.size);
        self.freed_order.push_back(address);
        if self.freed_order.len() > REMEMBERED_FREES
            && let Some(oldest) = self.freed_order.pop_front()
        {
            self.freed.remove(&oldest);
        }
        Ok(allocation)
    }

    /// The next address, which is above all earlier ones.
    fn place(&mut self, bytes: u64, align: u64) -> Result<u64, OutOfMemory> {
        let full = self.room.full(bytes);
        let base = self.next.checked_next_multiple_of(align).ok_or(full)?;
        self.next = base.checked_add(bytes).and_then(|end| end.checked_add(GUARD)).ok_or(full)?;
        Ok(base)
    }

    fn explain(&self, address: u64, bytes: u64) -> AccessError {
        let near = |below: Option<(u64, u64)>, above: Option<(u64, u64)>, freed| {
            [below, above]
                .into_iter()
                .flatten()
                .map(move |(base, size)| describe(base, size, address, freed))
        };
        let live_near = near(
            self.live.range(..=address).next_back().map(|(&b, a)| (b, a.size)),
            self.live.range(address..).next().map(|(&b, a)| (b, a.size)),
            false,
        );
        let freed_near = near(
            self.freed.range(..=address).next_back().map(|(&b, &s)| (b, s)),
            self.freed.range(address..).next().map(|(&b, &s)| (b, s)),
            true,
        );
        let nearest = live_near.chain(freed_near).min_by_key(|n| n.distance.unsigned_abs());
        let freed = nearest.is_some_and(|n| n.freed && n.distance == 0);
        AccessError { address, bytes, freed, nearest }
    }
}

fn describe(base: u64, size: u64, address: u64, freed: bool) -> Nearest {
    let distance = if address < base {
        -(i64::try_from(base - address).unwrap_or(i64::MAX))
    } else if address - base < size {
        0
    } else {
        // From the last byte: an access right at the end is one byte after it.
        i64::try_from(address - base - size).unwrap_or(i64::MAX - 1) + 1
    };
    Nearest { address: base, size, distance, freed }
}
