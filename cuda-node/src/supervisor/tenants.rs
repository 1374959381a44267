//! Limits for each tenant in the supervisor itself: connections, requests, and memory for frames that no lease is
//! charged with.

use std::sync::{Arc, atomic::AtomicU32};

use cuda_core::protocol::Status;
use cuda_lease::wire::FRAME_LIMIT;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::{MutexGuard, Semaphore, SemaphorePermit};

use super::{
    counted::Counted,
    memory_budget::{MemoryBudget, Reserved},
    rate::Rate,
    streams::Refusal,
    wide_connections::WideConnections,
};
use crate::quotas::{Quotas, Tenant};

/// The maximum number of connections at a time.
const CONNECTIONS: u32 = 1024;

/// The connections beyond [`CONNECTIONS`] for tenants that have a lease. Each takes as many of them as it has leases, and one
/// more for a client that connects again before its earlier connection has ended.
const RESERVED_CONNECTIONS: u32 = 128;

/// The connections beyond its limit that a tenant may have that wait for their refusal, or were refused and whose memory is
/// not free.
const REFUSALS: usize = 256;

/// The memory of a tenant for the first frames of its streams, in bytes.
const FRAMES: u64 = 16 << 20;

/// The accounts that stay although their tenant has no connection.
const IDLE_ACCOUNTS: usize = 1024;

/// The accounts of all tenants.
#[derive(Default)]
pub(super) struct Tenants {
    accounts: Mutex<Accounts>,
    /// The connections of all tenants, and those that have ended and keep their places.
    connections: Arc<AtomicU32>,
}

#[derive(Default)]
struct Accounts {
    quotas: Quotas,
    accounts: FxHashMap<Tenant, Arc<Account>>,
}

/// The account of one tenant.
pub(super) struct Account {
    tenant: Tenant,
    connections: Arc<AtomicU32>,
    /// The number of its connections that have reserved places of the node.
    reserved: Arc<AtomicU32>,
    /// The connections that have ended, and whose memory is not free.
    ended: Arc<AtomicU32>,
    limits: Mutex<AccountLimits>,
    pub(super) wide: WideConnections,
    frames: MemoryBudget,
    refusals: Semaphore,
    /// Held by the request that is the next one.
    turn: tokio::sync::Mutex<()>,
    /// Held while a record of one of its leases is written or waits for the disk.
    record: tokio::sync::Mutex<()>,
}

struct AccountLimits {
    max_connections: u32,
    requests: Rate,
    submits: Rate,
}

impl Tenants {
    pub(super) fn new(quotas: Quotas) -> Self {
        let accounts = Mutex::new(Accounts { quotas, accounts: FxHashMap::default() });
        Self { accounts, connections: Arc::default() }
    }

    /// Returns the account of a tenant.
    pub(super) fn account(&self, tenant: &Tenant) -> Arc<Account> {
        let Accounts { quotas, accounts } = &mut *self.accounts.lock();
        if let Some(account) = accounts.get(tenant) {
            return account.clone();
        }
        // An account that is dropped forgets the rates of the last second.
        if accounts.len() >= IDLE_ACCOUNTS {
            accounts.retain(|_, account| Arc::strong_count(account) > 1);
        }
        let account = Arc::new(Account::new(tenant.clone(), quotas));
        accounts.insert(tenant.clone(), account.clone());
        account
    }

    /// Replaces the quotas. A rate that changes begins a new second.
    pub(super) fn set_quotas(&self, quotas: Quotas) {
        let mut accounts = self.accounts.lock();
        for account in accounts.accounts.values() {
            account.limits.lock().set(&account.tenant, &quotas);
        }
        accounts.quotas = quotas;
    }

    /// Counts a connection until the returned value is dropped. `leases` returns the number of the tenant's leases.
    ///
    /// # Errors
    /// [`Status::QuotaExceeded`] if the tenant has as many connections as it may have, and
    /// [`Status::CapacityExceeded`] if the node has.
    pub(super) fn connect(
        &self,
        account: &Account,
        leases: impl FnOnce() -> usize,
    ) -> Result<ConnectionPlace, Refusal> {
        let limit = account.limits.lock().max_connections;
        let of_tenant = Counted::below(&account.connections, limit).ok_or_else(|| {
            let tenant = &account.tenant;
            let detail = format!(
                "tenant {tenant} has {limit} connections, open or just ended, which is its limit (max_connections); close one, or \
                 use one connection for several requests"
            );
            (Status::QuotaExceeded, detail)
        })?;
        let of_node = Counted::below(&self.connections, CONNECTIONS);
        let of_node = of_node.map(|of_node| (of_node, None)).or_else(|| {
            let of_leases = leases().try_into().unwrap_or(u32::MAX);
            let limit = if of_leases == 0 { 0 } else { of_leases.saturating_add(1) };
            let reserved = Counted::below(&account.reserved, limit)?;
            let of_node = Counted::below(&self.connections, CONNECTIONS + RESERVED_CONNECTIONS)?;
            Some((of_node, Some(reserved)))
        });
        let (of_node, reserved) = of_node.ok_or_else(|| {
            let detail = format!(
                "the node has {CONNECTIONS} connections, which is its limit, except for as many of a tenant as it has \
                 leases, and one more; try again later"
            );
            (Status::CapacityExceeded, detail)
        })?;
        Ok(ConnectionPlace { _of_tenant: of_tenant, _of_node: of_node, _reserved: reserved })
    }
}

/// The place of a connection in the counts of its tenant and of the node.
pub(super) struct ConnectionPlace {
    _of_tenant: Counted,
    _of_node: Counted,
    /// `Some` if the place of the node is a reserved one.
    _reserved: Option<Counted>,
}

/// The place of a connection that has ended.
pub(super) enum EndedPlace {
    /// Among those that have ended.
    Ended(#[expect(dead_code, reason = "it counts until it is dropped")] Counted),
    /// The one that it had.
    Connection(#[expect(dead_code, reason = "it counts until it is dropped")] ConnectionPlace),
}

impl Account {
    fn new(tenant: Tenant, quotas: &Quotas) -> Self {
        let quota = quotas.of(&tenant);
        let limits = Mutex::new(AccountLimits {
            max_connections: quota.max_connections,
            requests: Rate::new(quota.requests_per_second.get()),
            submits: Rate::new(quota.submits_per_second),
        });
        let (frames, refusals) = (MemoryBudget::new(FRAMES), Semaphore::new(REFUSALS));
        let (connections, reserved, ended, wide, turn, record) = Default::default();
        Self { tenant, connections, reserved, ended, limits, wide, frames, refusals, turn, record }
    }

    /// Counts a connection that has ended, until its memory is free. Its place is for the next one, unless the tenant has as
    /// many that have ended as it may have connections: then it keeps the place.
    pub(super) fn end_connection(&self, place: ConnectionPlace) -> EndedPlace {
        let limit = self.limits.lock().max_connections;
        match Counted::below(&self.ended, limit) {
            Some(ended) => EndedPlace::Ended(ended),
            None => EndedPlace::Connection(place),
        }
    }

    /// Waits before a connection is refused. So a client that connects again and again does so at the rate of its
    /// requests. The returned place counts until the memory of the connection is free.
    pub(super) async fn refuse_connection(&self) -> Option<SemaphorePermit<'_>> {
        let place = self.refusals.try_acquire().ok()?;
        self.request().await;
        Some(place)
    }

    /// Waits until the tenant may make another request. Requests that wait have the order of their arrival.
    pub(super) async fn request(&self) {
        // Only one of them has a timer: thousands that wake up for each request would take the processors from other
        // tenants.
        let _turn = self.turn.lock().await;
        loop {
            let wait = match self.limits.lock().requests.admit() {
                Ok(()) => return,
                Err(wait) => wait,
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts a stateless submit whose image the node has.
    ///
    /// # Errors
    /// The tenant has submitted too much within the last second.
    pub(super) fn submit(&self) -> Result<(), Refusal> {
        let limits = self.limits.lock();
        if limits.submits.admit().is_ok() {
            return Ok(());
        }
        let (tenant, limit) = (&self.tenant, limits.submits.limit());
        let detail = format!(
            "tenant {tenant} has reached its limit (submits_per_second = {limit}); submit later"
        );
        Err((if limit == 0 { Status::TooLarge } else { Status::QuotaExceeded }, detail))
    }

    /// Waits until no other record of the tenant waits for the disk. So a tenant with many requests does not keep others
    /// from a slow disk.
    pub(super) async fn record_place(&self) -> MutexGuard<'_, ()> {
        self.record.lock().await
    }

    /// Waits until there is memory for a frame.
    pub(super) async fn frame_memory(&self) -> Option<Reserved> {
        self.frames.reserve(FRAME_LIMIT.into()).await
    }
}

impl AccountLimits {
    fn set(&mut self, tenant: &Tenant, quotas: &Quotas) {
        let quota = quotas.of(tenant);
        self.max_connections = quota.max_connections;
        self.requests.set(quota.requests_per_second.get());
        self.submits.set(quota.submits_per_second);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, sync::atomic::Ordering, time::Duration};

    use super::*;

    fn quotas(text: &str) -> Quotas {
        Quotas::parse(text).unwrap()
    }

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    #[test]
    fn tenant_has_its_own_rate_of_submits() {
        // The next one is allowed after half a second.
        let tenants = Tenants::new(quotas("[defaults]\nsubmits_per_second = 2\n"));
        let (a, b) = (tenants.account(&tenant("a")), tenants.account(&tenant("b")));
        assert!([&a, &a, &b].iter().all(|account| account.submit().is_ok()));
        let (status, detail) = a.submit().unwrap_err();
        assert_eq!(status, Status::QuotaExceeded);
        assert!(detail.contains("submits_per_second = 2"), "{detail}");
        tenants.set_quotas(quotas("[tenants.a]\nsubmits_per_second = 0\n"));
        assert_eq!(a.submit().unwrap_err().0, Status::TooLarge);
        tenants.set_quotas(quotas("[tenants.a]\nsubmits_per_second = 4294967295\n"));
        assert!((0..100_000).all(|_| a.submit().is_ok()));
    }

    #[tokio::test]
    async fn requests_above_the_rate_wait() {
        let tenants = Tenants::new(quotas("[defaults]\nrequests_per_second = 1\n"));
        let account = tenants.account(&tenant("a"));
        let started = std::time::Instant::now();
        account.request().await;
        account.request().await;
        // The rate belongs to the tenant, and outlives its connections.
        drop(account);
        tenants.account(&tenant("a")).request().await;
        assert!(started.elapsed() >= Duration::from_millis(1900));
    }

    #[tokio::test]
    async fn requests_that_wait_wake_up_for_their_own_turn_only() {
        let tenants = Tenants::new(quotas("[defaults]\nrequests_per_second = 100\n"));
        let (account, polls) = (tenants.account(&tenant("a")), Arc::<AtomicU32>::default());
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..1000 {
            let (account, polls) = (account.clone(), polls.clone());
            waiting.spawn(async move {
                let mut request = pin!(account.request());
                poll_fn(|cx| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    request.as_mut().poll(cx)
                })
                .await;
            });
        }
        // 100 at once, and as many one after the other.
        for _ in 0..200 {
            waiting.join_next().await.unwrap().unwrap();
        }
        let polls = polls.load(Ordering::Relaxed);
        assert!(polls < 2000, "they were polled {polls} times");
    }

    #[test]
    fn connections_of_a_tenant_are_limited() {
        let tenants = Tenants::new(quotas("[tenants.a]\nmax_connections = 2\n"));
        let account = tenants.account(&tenant("a"));
        let connect = || tenants.connect(&account, || 1);
        let (first, _second) = (connect().unwrap(), connect().unwrap());
        let (status, detail) = connect().err().unwrap();
        assert_eq!(status, Status::QuotaExceeded);
        assert!(detail.contains("2 connections") && detail.contains("max_connections"), "{detail}");
        drop(first);
        assert!(connect().is_ok());
    }

    /// Otherwise one tenant with a lease takes all of them, and a client of another one that loses its connection loses
    /// its lease.
    #[test]
    fn last_connections_of_a_node_are_for_tenants_with_leases() {
        let tenants = Tenants::new(quotas("[defaults]\nmax_connections = 4000\n"));
        let stranger = tenants.account(&tenant("stranger"));
        let connect = |account: &Account, leases| tenants.connect(account, || leases);
        let mut open: Vec<_> = (0..CONNECTIONS).map(|_| connect(&stranger, 0).unwrap()).collect();
        assert_eq!(connect(&stranger, 0).err().unwrap().0, Status::CapacityExceeded);
        // Each takes as many as it has leases, and one more.
        for number in 0..RESERVED_CONNECTIONS / 4 {
            let known = tenants.account(&tenant(&format!("known-{number}")));
            open.extend((0..4).map(|_| connect(&known, 3).unwrap()));
            let (status, detail) = connect(&known, 3).err().unwrap();
            assert!(status == Status::CapacityExceeded && detail.contains("leases"), "{detail}");
            open.pop();
            open.push(connect(&known, 3).unwrap());
        }
        let last = tenants.account(&tenant("last"));
        assert_eq!(connect(&last, 3).err().unwrap().0, Status::CapacityExceeded);
        drop(open);
        assert!(connect(&stranger, 0).is_ok());
    }

    #[test]
    fn accounts_without_connections_are_limited() {
        let tenants = Tenants::default();
        let kept = tenants.account(&tenant("kept"));
        for number in 0..2 * IDLE_ACCOUNTS {
            tenants.account(&tenant(&format!("tenant-{number}")));
        }
        assert!(tenants.accounts.lock().accounts.len() <= IDLE_ACCOUNTS);
        assert!(Arc::ptr_eq(&kept, &tenants.account(&tenant("kept"))));
    }
}
