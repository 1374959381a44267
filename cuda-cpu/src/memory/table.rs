//! The table of allocations by address.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxHashSet;

use super::accounting::{Accounting, Usage};
use super::error::{AccessError, FreeError, Nearest, OutOfMemory};
use super::storage::{ALIGN, Allocation, Contents};

/// The first address of an allocation. The windows of the other state spaces lie below it, so a generic address is
/// unambiguous.
const FIRST_ADDRESS: u64 = 0x10_0000_0000;

/// The number of unused addresses after each allocation.
const GUARD: u64 = 64 << 10;

/// The number of freed ranges that are kept to distinguish use after free from out of bounds.
const REMEMBERED_FREES: usize = 1 << 16;

/// The maximum size of an allocation: no host has more addresses.
const MAX_BYTES: u64 = 1 << 48;

/// The maximum number of live allocations by kernels. Small allocations take more memory of the host than of the
/// device. The 8 MiB heap of a GPU holds about as many.
const MAX_BY_KERNELS: usize = 1 << 18;

/// The memory of a device: allocations with checked accesses.
#[derive(Debug)]
pub struct Memory {
    contents: Contents,
    /// Whether allocations record which bytes were written.
    tracks: bool,
    /// The number of allocations that kernels have freed so far.
    frees_by_kernels: AtomicU64,
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    live: BTreeMap<u64, Arc<Allocation>>,
    freed: BTreeMap<u64, u64>,
    freed_order: VecDeque<u64>,
    /// Addresses of live allocations by a kernel's malloc.
    by_kernels: FxHashSet<u64>,
    next: u64,
    accounting: Accounting,
}

impl Memory {
    /// Creates a memory of `capacity` bytes, with the default [`Contents`].
    pub fn new(capacity: u64) -> Self {
        Self::with_contents(capacity, Contents::default())
    }

    /// Creates a memory of `capacity` bytes whose new allocations hold `contents`.
    pub fn with_contents(capacity: u64, contents: Contents) -> Self {
        let table = Table {
            live: BTreeMap::new(),
            freed: BTreeMap::new(),
            freed_order: VecDeque::new(),
            by_kernels: FxHashSet::default(),
            next: FIRST_ADDRESS,
            accounting: Accounting::new(capacity),
        };
        let (frees_by_kernels, table) = (AtomicU64::new(0), RwLock::new(table));
        Self { contents, tracks: false, frees_by_kernels, table }
    }

    /// Records for each byte whether it was written, as [`Checks::uninitialized`](crate::Checks::uninitialized)
    /// requires. This takes an eighth more host memory.
    pub fn tracking(self) -> Self {
        Self { tracks: true, ..self }
    }

    /// Allocates `bytes`, aligned to `align` and at least to 256, and returns the address. An `align` that is not a
    /// power of two is rounded up. An allocation of 0 bytes has a unique address, at which nothing can be accessed. The
    /// system provides the pages of large allocations at their first access, so allocating them is fast.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the device or the host is out of memory.
    pub fn alloc(&self, bytes: u64, align: u64) -> Result<u64, OutOfMemory> {
        self.alloc_holding(self.contents, bytes, align)
    }

    /// Allocates memory that fits now, as [`Memory::alloc`] does. Returns `None` if it does not fit.
    pub(crate) fn alloc_if_free(&self, bytes: u64) -> Result<Option<u64>, OutOfMemory> {
        self.try_alloc(self.contents, bytes, ALIGN)
    }

    /// Allocates as [`Memory::alloc`] does. The memory is zero and counts as written.
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
        let allocated = self.try_alloc(contents, bytes, align)?;
        allocated.ok_or_else(|| self.table.read().accounting.out_of_memory(bytes))
    }

    /// Allocates host memory before it takes an address and counts the bytes, so an error changes nothing. The table is
    /// not locked meanwhile, because running kernels read it.
    fn try_alloc(
        &self,
        contents: Contents,
        bytes: u64,
        align: u64,
    ) -> Result<Option<u64>, OutOfMemory> {
        if !self.table.read().accounting.fits_now(bytes) {
            return Ok(None);
        }
        let refused = || self.table.read().accounting.no_host_memory(bytes);
        let made = Allocation::new(bytes, contents, self.tracks).ok_or_else(refused)?;
        let mut table = self.table.write();
        // Another thread may have taken the bytes.
        let fits = table.accounting.fits_now(bytes);
        let base = if fits { table.place(bytes, align) } else { None };
        let Some(base) = base else {
            let error = table.accounting.no_host_memory(bytes);
            drop(table);
            return if fits { Err(error) } else { Ok(None) };
        };
        table.accounting.take(bytes);
        table.live.insert(base, Arc::new(made.at(base)));
        Ok(Some(base))
    }

    /// Reserves an address for `bytes` that fit now or after all announced frees. The memory exists only after
    /// [`Memory::fulfill`].
    pub(crate) fn promise(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        let mut table = self.table.write();
        if !table.accounting.fits_later(bytes) {
            return Err(table.accounting.out_of_memory(bytes));
        }
        let base = if bytes <= MAX_BYTES { table.place(bytes, ALIGN) } else { None };
        let base = base.ok_or_else(|| table.accounting.no_host_memory(bytes))?;
        table.accounting.take_when_free(base, bytes);
        Ok(base)
    }

    /// Whether `bytes` fit now or after all announced frees.
    pub(crate) fn has_bytes(&self, bytes: u64) -> bool {
        self.table.read().accounting.fits_later(bytes)
    }

    /// Whether a promise can be fulfilled now.
    pub(crate) fn has_room_for(&self, promised: u64) -> bool {
        !self.table.read().accounting.is_waiting(promised)
    }

    /// Allocates promised memory, which must be available.
    pub(crate) fn fulfill(&self, promised: u64, bytes: u64) -> Result<(), OutOfMemory> {
        let made = Allocation::new(bytes, self.contents, self.tracks);
        let mut table = self.table.write();
        let Some(made) = made else {
            table.accounting.release(bytes);
            return Err(table.accounting.no_host_memory(bytes));
        };
        table.live.insert(promised, Arc::new(made.at(promised)));
        Ok(())
    }

    /// Announces a free of this size. The memory counts as free from now on.
    pub(crate) fn announce_free(&self, bytes: u64) {
        self.table.write().accounting.announce_release(bytes);
    }

    /// Frees memory whose free was announced. The allocation may be missing: freed by hand, or never allocated.
    pub(crate) fn free_announced(&self, address: u64, bytes: u64) {
        let mut table = self.table.write();
        // Both steps are under one lock: in between, the memory would count as in use again.
        table.accounting.complete_announced(bytes);
        let gone = table.remove(address);
        drop(table);
        drop(gone);
    }

    /// Reserves addresses for an allocation that grows up to `most` bytes. None of them may be used yet, and no device
    /// memory is taken.
    pub(crate) fn reserve(&self, most: u64) -> Result<u64, OutOfMemory> {
        // The host memory comes first: an address that was taken is never given back.
        let made = Allocation::new(most, self.contents, self.tracks);
        let empty = made.and_then(|memory| memory.grown(0));
        let mut table = self.table.write();
        let placed = empty.and_then(|empty| Some((table.place(most, ALIGN)?, empty)));
        let (base, empty) = placed.ok_or_else(|| table.accounting.no_host_memory(most))?;
        table.live.insert(base, Arc::new(empty.at(base)));
        Ok(base)
    }

    /// Promises `more` bytes to an allocation that was [reserved](Memory::reserve), and that will have `bytes` bytes.
    /// Returns an address that stands for the promise in [`has_room_for`](Memory::has_room_for).
    pub(crate) fn promise_growth(
        &self,
        base: u64,
        bytes: u64,
        more: u64,
    ) -> Result<u64, OutOfMemory> {
        let mut table = self.table.write();
        let full = table.accounting.out_of_memory(more);
        table.live.get(&base).and_then(|live| live.grown(bytes)).ok_or(full)?;
        if !table.accounting.fits_later(more) {
            return Err(full);
        }
        let token = table.place(0, ALIGN).ok_or(full)?;
        table.accounting.take_when_free(token, more);
        Ok(token)
    }

    /// Lets an allocation use `bytes` bytes, which were promised and are available. Kernels that run see this at the
    /// next launch.
    pub(crate) fn grow(&self, base: u64, bytes: u64) {
        let mut table = self.table.write();
        let grown = table.live.get(&base).and_then(|live| live.grown(bytes));
        if let Some(grown) = grown {
            table.live.insert(base, Arc::new(grown));
        }
    }

    /// Allocates for a kernel's malloc.
    pub(crate) fn alloc_by_kernel(&self, bytes: u64, align: u64) -> Result<u64, OutOfMemory> {
        let table = self.table.read();
        if table.by_kernels.len() >= MAX_BY_KERNELS {
            return Err(table.accounting.out_of_memory(bytes));
        }
        drop(table);
        let address = self.alloc(bytes, align)?;
        self.table.write().by_kernels.insert(address);
        Ok(address)
    }

    /// Frees, for a kernel, an allocation of a kernel's malloc.
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

    /// Returns the number of allocations that kernels have freed so far.
    pub(super) fn frees_by_kernels(&self) -> u64 {
        self.frees_by_kernels.load(Ordering::Relaxed)
    }

    /// Drops the allocations that are no longer in the table.
    pub(super) fn retain_live(&self, held: &mut Vec<Arc<Allocation>>) {
        let table = self.table.read();
        held.retain(|allocation| table.live.contains_key(&allocation.base));
    }

    /// Frees the allocation that starts at `address`. Later accesses to its range are reported as uses after free.
    ///
    /// # Errors
    /// [`FreeError`] if no live allocation starts at `address`.
    pub fn free(&self, address: u64) -> Result<(), FreeError> {
        let mut table = self.table.write();
        let removed = table.remove(address);
        drop(table);
        // The host memory is freed with the table unlocked, unless a kernel still holds it.
        removed.map(drop)
    }

    /// Returns the usage of the memory.
    pub fn usage(&self) -> Usage {
        let table = self.table.read();
        Usage {
            used: table.accounting.used(),
            peak: table.accounting.peak(),
            total: table.accounting.capacity(),
            allocations: table.live.len(),
        }
    }

    /// Returns the address and size of the live allocation that contains `address`.
    pub fn allocation_of(&self, address: u64) -> Option<(u64, u64)> {
        self.find(address, 0).ok().map(|a| (a.base, a.size))
    }

    /// Returns the allocation that contains the range.
    pub(super) fn find(&self, address: u64, bytes: u64) -> Result<Arc<Allocation>, AccessError> {
        let table = self.table.read();
        match table.live.range(..=address).next_back() {
            Some((_, allocation)) if allocation.holds(address, bytes) => Ok(allocation.clone()),
            _ => Err(table.explain(address, bytes)),
        }
    }

    /// Returns the error for an access to an invalid range.
    pub(crate) fn explain(&self, address: u64, bytes: u64) -> AccessError {
        self.table.read().explain(address, bytes)
    }
}

impl Table {
    /// Removes the allocation that starts at `address`, and keeps its range for messages.
    fn remove(&mut self, address: u64) -> Result<Arc<Allocation>, FreeError> {
        self.by_kernels.remove(&address);
        let Some(allocation) = self.live.remove(&address) else {
            return Err(FreeError { address, freed: self.freed.contains_key(&address) });
        };
        self.accounting.release(allocation.size);
        self.freed.insert(address, allocation.size);
        self.freed_order.push_back(address);
        if self.freed_order.len() > REMEMBERED_FREES
            && let Some(oldest) = self.freed_order.pop_front()
        {
            self.freed.remove(&oldest);
        }
        Ok(allocation)
    }

    /// Takes the next address, which is above all earlier ones and is never given back. Returns `None`, and takes
    /// nothing, if there are too few addresses.
    fn place(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let base = self.next.checked_next_multiple_of(align)?;
        self.next = base.checked_add(bytes)?.checked_add(GUARD)?;
        Some(base)
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
        // The distance is counted from the last byte: an access right after the end is one byte after it.
        i64::try_from(address - base - size).unwrap_or(i64::MAX - 1) + 1
    };
    Nearest { address: base, size, distance, freed }
}
