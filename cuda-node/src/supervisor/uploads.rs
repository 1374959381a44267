//! The memory of blobs that are arriving.
//!
//! An upload reserves all of its memory before its first byte is read, so each upload that has begun can complete. A
//! tenant that sends slowly would keep the memory from others. So the oldest upload of the tenant that has the most memory
//! gives way to a tenant that has less: the node refuses it, and frees its memory.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cuda_lease::authority::Tenant;
use rustc_hash::FxHashMap;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::memory_budget::{MemoryBudget, Reserved};

/// The maximum number of bytes of a tenant's blobs that are arriving.
const OF_TENANT: u64 = 128 << 20;

/// The maximum number of bytes of all blobs that are arriving.
const OF_ALL: u64 = 512 << 20;

/// The bytes of arriving blobs that a tenant has beside [`OF_ALL`], so that uploads of others do not delay its small
/// blobs.
const ASSURED: u64 = 8 << 20;

/// The time that each upload has before it may have to give way. It also has the time for its bytes at [`FAST`].
const UNDISTURBED: Duration = Duration::from_secs(2);

/// The rate, in bytes per second, at which an upload completes before it may have to give way.
const FAST: u64 = 8 << 20;

/// The uploads of all tenants.
pub(super) struct Uploads {
    memory: MemoryBudget,
    shares: watch::Sender<Shares>,
    /// The number of the last upload that got its memory, or waits for it.
    last: AtomicU64,
}

/// The tenants that have memory of [`Uploads`], or wait for it.
#[derive(Default)]
struct Shares(FxHashMap<Tenant, Held>);

/// The memory that a tenant has, and that it waits for.
#[derive(Default)]
struct Held {
    bytes: u64,
    /// The numbers of its uploads.
    uploads: BTreeSet<u64>,
    /// The bytes of each upload that waits, and its number.
    waiting: BTreeSet<(u64, u64)>,
}

/// The uploads of one tenant.
pub(super) struct TenantUploads {
    all: Arc<Uploads>,
    tenant: Tenant,
    own: MemoryBudget,
    assured: MemoryBudget,
}

/// An upload that has its memory, until it is dropped.
pub(super) struct Upload {
    _own: Option<Reserved>,
    _memory: Option<Reserved>,
    /// Its part of the memory of all tenants.
    share: Option<Share>,
}

/// A part of the memory of all tenants.
struct Share {
    all: Arc<Uploads>,
    tenant: Tenant,
    number: u64,
    bytes: u64,
    /// The time from which on it may have to give way.
    undisturbed: Instant,
}

/// An upload that waits for its part of the memory of all tenants.
struct Waiting<'a> {
    all: &'a Uploads,
    tenant: &'a Tenant,
    upload: (u64, u64),
}

impl Default for Uploads {
    fn default() -> Self {
        let (shares, last) = Default::default();
        Self { memory: MemoryBudget::new(OF_ALL), shares, last }
    }
}

impl Uploads {
    /// Returns the uploads of a tenant.
    pub(super) fn of(self: &Arc<Self>, tenant: &Tenant) -> TenantUploads {
        let [own, assured] = [OF_TENANT, ASSURED].map(MemoryBudget::new);
        TenantUploads { all: self.clone(), tenant: tenant.clone(), own, assured }
    }

    fn next_number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Changes what a tenant has and waits for. Wakes the uploads only if another one of them has to give way now: a client
    /// may have a thousand, and change this with each packet.
    fn change(&self, tenant: &Tenant, change: impl FnOnce(&mut Held)) {
        self.shares.send_if_modified(|shares| {
            let before = shares.gives_way();
            let held = shares.0.entry(tenant.clone()).or_default();
            change(held);
            if held.uploads.is_empty() && held.waiting.is_empty() {
                shares.0.remove(tenant);
            }
            let now = shares.gives_way();
            now.is_some() && now != before
        });
    }
}

impl TenantUploads {
    /// Waits until there is memory for a blob of `bytes` bytes, before its bytes are read.
    pub(super) async fn begin(&self, bytes: u64) -> Upload {
        let own = self.own.reserve(bytes).await;
        let assured = if bytes <= ASSURED { self.assured.try_reserve(bytes) } else { None };
        if assured.is_some() {
            return Upload { _own: own, _memory: assured, share: None };
        }
        let memory = self.reserve_shared(bytes).await;
        let share = Share::new(&self.all, &self.tenant, bytes);
        Upload { _own: own, _memory: memory, share: Some(share) }
    }

    async fn reserve_shared(&self, bytes: u64) -> Option<Reserved> {
        if let Some(memory) = self.all.memory.try_reserve(bytes) {
            return Some(memory);
        }
        let _waiting = Waiting::new(&self.all, &self.tenant, bytes);
        self.all.memory.reserve(bytes).await
    }
}

impl Upload {
    /// Waits until the upload has to end: it is slow and the oldest one of the tenant that has the most memory, and a
    /// tenant with less waits.
    pub(super) async fn gives_way(&self) {
        let Some(share) = &self.share else { return std::future::pending().await };
        sleep_until(share.undisturbed).await;
        let mut shares = share.all.shares.subscribe();
        // The sender lives as long as the share.
        _ = shares.wait_for(|shares| shares.gives_way() == Some(share.number)).await;
    }
}

impl Shares {
    /// The upload that has to end if it is slow: the oldest one of the tenant that has the most memory. `None` unless a
    /// tenant waits that will have less, with the upload that waits.
    fn gives_way(&self) -> Option<u64> {
        let oldest = |held: &Held| held.uploads.first().copied();
        let most = self.0.values().max_by_key(|held| (held.bytes, Reverse(oldest(held))))?;
        let has_less = |held: &Held| {
            held.waiting.first().is_some_and(|(bytes, _)| held.bytes + bytes < most.bytes)
        };
        let is_more = self.0.values().any(has_less);
        if is_more { oldest(most) } else { None }
    }
}

impl Share {
    fn new(all: &Arc<Uploads>, tenant: &Tenant, bytes: u64) -> Self {
        let number = all.next_number();
        all.change(tenant, |held| {
            held.bytes += bytes;
            held.uploads.insert(number);
        });
        let undisturbed = Instant::now() + UNDISTURBED + Duration::from_secs(bytes / FAST);
        Self { all: all.clone(), tenant: tenant.clone(), number, bytes, undisturbed }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.change(&self.tenant, |held| {
            held.bytes -= self.bytes;
            held.uploads.remove(&self.number);
        });
    }
}

impl<'a> Waiting<'a> {
    fn new(all: &'a Uploads, tenant: &'a Tenant, bytes: u64) -> Self {
        let upload = (bytes, all.next_number());
        all.change(tenant, |held| _ = held.waiting.insert(upload));
        Self { all, tenant, upload }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.all.change(self.tenant, |held| _ = held.waiting.remove(&self.upload));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::AtomicUsize,
        task::{Context, Poll, Wake, Waker},
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Polls a future once. Returns whether it is complete.
    fn ended(future: impl Future) -> bool {
        let task = &mut Context::from_waker(Waker::noop());
        matches!(pin!(future).poll(task), Poll::Ready(_))
    }

    fn tenants(count: u32) -> Vec<TenantUploads> {
        let all = Arc::<Uploads>::default();
        (0..count).map(|of| all.of(&Tenant::new(&format!("t{of}")).unwrap())).collect()
    }

    /// Begins uploads of four tenants, which take all memory.
    async fn fill(tenants: &[TenantUploads]) -> Vec<Upload> {
        let mut uploads = Vec::new();
        for of in tenants[..4].iter().chain(&tenants[..4]) {
            uploads.push(of.begin(OF_TENANT / 2).await);
        }
        uploads
    }

    #[tokio::test]
    async fn slow_uploads_of_others_do_not_keep_small_modules_out() {
        let tenants = tenants(5);
        let _slow = fill(&tenants).await;
        let other = &tenants[4];
        assert!(!ended(other.begin(ASSURED + 1)));
        assert!(ended(other.begin(ASSURED)));
        assert!(ended(other.begin(1)));
    }

    /// Returns the indices of the uploads that have to end.
    fn give_way(uploads: &[Upload]) -> Vec<usize> {
        let gives_way = |of: &usize| ended(uploads[*of].gives_way());
        (0..uploads.len()).filter(gives_way).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn slow_upload_gives_way_to_a_tenant_that_has_less() {
        let tenants = tenants(5);
        let mut slow = fill(&tenants).await;
        tokio::time::advance(LONG).await;
        assert!(give_way(&slow).is_empty());
        let mut waiting = Box::pin(tenants[4].begin(OF_TENANT / 2 + 1));
        assert!(!ended(waiting.as_mut()));
        assert_eq!(give_way(&slow), [0]);
        // Its memory is not enough, and other tenants have more now.
        slow.remove(0);
        assert!(!ended(waiting.as_mut()));
        assert_eq!(give_way(&slow), [0]);
        slow.remove(0);
        let uploads = [waiting.await];
        assert!(give_way(&slow).is_empty() && give_way(&uploads).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn upload_gives_way_to_no_tenant_that_has_as_much() {
        let tenants = tenants(5);
        let slow = fill(&tenants).await;
        tokio::time::advance(LONG).await;
        let mut waiting = Box::pin(tenants[4].begin(OF_TENANT));
        assert!(!ended(waiting.as_mut()));
        assert!(give_way(&slow).is_empty());
    }

    /// Otherwise a tenant that waits with many uploads at once would end those of tenants that have less than it.
    #[tokio::test(start_paused = true)]
    async fn upload_gives_way_to_what_the_tenant_that_waits_has_by_now() {
        const MIB: u64 = 1 << 20;
        let tenants = tenants(9);
        let mut slow = Vec::new();
        for of in &tenants[..8] {
            slow.push(of.begin(63 * MIB).await);
        }
        tokio::time::advance(LONG).await;
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(tenants[8].begin(30 * MIB))).collect();
        assert!(!waiting.iter_mut().any(|waiting| ended(waiting.as_mut())));
        assert_eq!(give_way(&slow), [0]);
        slow.remove(0);
        let _uploads = [waiting.remove(0).await, waiting.remove(0).await];
        assert!(!waiting.iter_mut().any(|waiting| ended(waiting.as_mut())));
        assert!(give_way(&slow).is_empty());
    }

    /// Otherwise two tenants could end each upload of a third one with a slow network.
    #[tokio::test(start_paused = true)]
    async fn upload_of_the_tenant_with_the_most_gives_way() {
        let tenants = tenants(6);
        let mut slow = Vec::new();
        for (of, parts) in [(4, 1), (3, 3), (0, 4), (1, 4), (2, 4)] {
            slow.push(tenants[of].begin(OF_TENANT / 4 * parts).await);
        }
        tokio::time::advance(LONG).await;
        let mut small = Box::pin(tenants[5].begin(OF_TENANT / 8));
        assert!(!ended(small.as_mut()));
        assert_eq!(give_way(&slow), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn upload_has_the_time_of_a_fast_one() {
        let tenants = tenants(5);
        let slow = fill(&tenants).await;
        let mut waiting = Box::pin(tenants[4].begin(ASSURED + 1));
        assert!(!ended(waiting.as_mut()));
        let began = Instant::now();
        slow[0].gives_way().await;
        assert!(began.elapsed() >= Duration::from_secs(2 + (OF_TENANT / 2) / FAST));
        // The other one waits no longer.
        drop(waiting);
        assert!(give_way(&slow).is_empty());
    }

    /// Counts the times that a task is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Otherwise each of a thousand small uploads costs the node the time of all others.
    #[tokio::test(start_paused = true)]
    async fn upload_is_woken_only_if_another_one_has_to_end() {
        let tenants = tenants(5);
        let slow = tenants[0].begin(OF_TENANT).await;
        tokio::time::advance(LONG).await;
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(wakes.clone());
        let mut gives_way = pin!(slow.gives_way());
        assert!(gives_way.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let count = || wakes.0.load(Ordering::Relaxed);
        for _ in 0..100 {
            drop(tenants[4].begin(ASSURED + 1).await);
        }
        assert_eq!(count(), 0);
        let mut others = Vec::new();
        for of in &tenants[1..4] {
            others.push(of.begin(OF_TENANT).await);
        }
        // An upload of a tenant that will have as much waits.
        for _ in 0..100 {
            // The runtime lets a task poll about 100 times.
            tokio::task::yield_now().await;
            assert!(!ended(tenants[4].begin(OF_TENANT)));
        }
        assert_eq!(count(), 0);
        assert!(!ended(tenants[4].begin(ASSURED + 1)) && count() > 0);
    }

    #[tokio::test]
    async fn arriving_bytes_are_limited() {
        let tenants = tenants(1);
        let of = &tenants[0];
        let (first, second) = (of.begin(OF_TENANT / 2).await, of.begin(1).await);
        let mut third = Box::pin(of.begin(OF_TENANT));
        assert!(!ended(third.as_mut()));
        drop((first, second));
        drop(third.await);
        drop(of.begin(u64::MAX).await);
    }
}
