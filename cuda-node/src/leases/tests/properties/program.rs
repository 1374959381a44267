//! The table, and a model of it that every step is compared with.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::*,
    steps::{Ask, Step},
};

/// The table, and everything that its caller has seen of it.
pub(super) struct Program {
    table: LeaseTable,
    config: TableConfig,
    now: Duration,
    /// All ids of leases, in the order in which they appeared.
    seen: Vec<LeaseId>,
    requests: Vec<RequestId>,
    /// Present leases with slot, charge and class.
    present: BTreeMap<LeaseId, (SlotId, u64, Exclusivity)>,
    /// The number of actions of each kind for a lease: assign, stop, kill.
    steps: BTreeMap<LeaseId, [u32; 3]>,
    /// Ended leases whose memory was not reported as back.
    lost: BTreeMap<LeaseId, (SlotId, u64)>,
    /// Sessions that the caller lets run.
    running: BTreeSet<LeaseId>,
    /// Sessions of an earlier node that may have work in flight.
    unsettled: BTreeSet<LeaseId>,
    /// The lease of a nonce.
    granted: BTreeMap<(u8, u8), LeaseId>,
    /// The number of leases that an earlier node had, and this one does not.
    earlier: u64,
    fences: u64,
}

impl Program {
    pub(super) fn new(preempt: bool) -> Program {
        let config =
            TableConfig { preempt, queue_limit: 5, ended_limit: 10_000, ..TableConfig::default() };
        Program {
            table: Self::table(&config),
            config,
            now: Duration::ZERO,
            seen: Vec::new(),
            requests: Vec::new(),
            present: BTreeMap::new(),
            steps: BTreeMap::new(),
            lost: BTreeMap::new(),
            running: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            granted: BTreeMap::new(),
            earlier: 0,
            fences: 0,
        }
    }

    fn table(config: &TableConfig) -> LeaseTable {
        let cpu = SlotConfig { reserve: 0, ..gpu("cuda:1") };
        let quotas = Quotas::parse("[defaults]\nmax_priority = 3\n").unwrap();
        LeaseTable::new(config.clone(), vec![gpu("cuda:0"), cpu], quotas).unwrap()
    }

    fn lease(&self, of: u8) -> LeaseId {
        let of = usize::from(of);
        match self.seen.len() {
            0 => LeaseId(1_000_000),
            _ if of == 255 => LeaseId(1_000_000),
            // Mostly the last ones, which are present.
            count => self.seen[count - 1 - (of * of / 256) % count],
        }
    }

    pub(super) fn run(&mut self, step: &Step) {
        let mut returned = None;
        let now = self.now;
        match *step {
            Step::Request(ref ask) => self.request(ask),
            Step::Cancel { of } => {
                let index = usize::from(of) % self.requests.len().max(1);
                let request = self.requests.get(index).copied().unwrap_or(RequestId(1_000_000));
                self.table.cancel(now, request);
            }
            Step::Renew { of, generation, secs } => {
                let lease = self.lease(of);
                if let Ok(renewal) = self.table.renew(now, lease, generation, secs) {
                    let view = self.table.lease(lease).unwrap();
                    assert_eq!(view.generation, renewal.generation);
                    assert_eq!(view.remaining, Some(renewal.remaining));
                    assert_eq!(self.table.authorize(now, lease, renewal.generation), Ok(()));
                }
            }
            Step::Authorize { of, generation } => {
                let lease = self.lease(of);
                if self.table.authorize(now, lease, generation).is_ok() {
                    let view = self.table.lease(lease).unwrap();
                    assert_eq!(view.state, LeaseState::Active);
                    assert!([generation, generation + 1].contains(&view.generation));
                }
            }
            Step::Free { of } => drop(self.table.free(now, self.lease(of))),
            Step::Revoke { of, notice } => {
                drop(self.table.revoke(now, self.lease(of), "test", at(notice)));
            }
            Step::Ready { of } => drop(self.table.worker_ready(now, self.lease(of))),
            Step::Died { of } => drop(self.table.worker_died(now, self.lease(of), None)),
            Step::NotStarted { of } => {
                let reason = "test".into();
                self.table.worker_not_started(now, self.lease(of), reason);
            }
            Step::Gone { of, back } => {
                let lease = self.lease(of);
                self.table.worker_gone(now, lease, back);
                returned = back.then_some(lease);
            }
            Step::Busy { of } => drop(self.table.session_busy(now, self.lease(of))),
            Step::Idle { of } => self.idle(self.lease(of)),
            Step::Paused { of } => {
                let lease = self.lease(of);
                if self.table.session_paused(now, lease) {
                    self.running.remove(&lease);
                }
            }
            Step::Disconnected { of } => drop(self.table.disconnected(now, self.lease(of))),
            Step::Reconnected { of } => drop(self.table.reconnected(now, self.lease(of))),
            Step::Fence { slot } => drop(self.table.fence(now, SlotId(slot))),
            Step::Unfence { slot } => {
                let is_ok = self.table.unfence(now, SlotId(slot)).is_ok();
                assert_eq!(is_ok, slot < 2);
                self.lost.retain(|_, (of, _)| *of != SlotId(slot));
            }
            Step::Quotas { max_leases, max_priority } => {
                let quotas = format!(
                    "[defaults]\nmax_leases = {max_leases}\nmax_priority = {max_priority}\n"
                );
                self.table.set_quotas(Quotas::parse(&quotas).unwrap());
            }
            Step::Poll { actions } => {
                for _ in 0..actions {
                    self.poll();
                }
            }
            Step::Obey => self.obey(),
            Step::Wait { millis } => self.now += Duration::from_millis(millis),
            Step::Jump { secs } => self.now += at(secs),
            Step::Back => {
                drop(self.table.authorize(self.now / 2, self.lease(0), 1));
            }
            Step::Restart { secs } => self.restart(at(secs)),
        }
        self.observe(returned);
    }

    /// Replaces the table by that of the next node, which has a record of each lease whose end has not begun and was not
    /// announced. All other workers have ended.
    fn restart(&mut self, elapsed: Duration) {
        let is_kept = |lease: &LeaseView<'_>| lease.announced.is_none();
        let ids = self.table.leases().filter(is_kept).map(|lease| lease.id);
        let kept: Vec<_> = ids.filter_map(|id| self.table.kept(id)).collect();
        let fenced: Vec<_> =
            self.table.slots().filter(|slot| slot.is_fenced).map(|slot| slot.id).collect();
        let earlier = std::mem::replace(&mut self.table, Self::table(&self.config));
        self.now = Duration::ZERO;
        self.table.skip_ids(self.seen.last().map_or(1, |last| last.0 + 1));
        self.steps.clear();
        self.running.clear();
        self.unsettled.clear();
        for kept in &kept {
            let (id, before) = (LeaseId(kept.id), earlier.lease(LeaseId(kept.id)).unwrap());
            let record = serde_json::from_slice(&serde_json::to_vec(kept).unwrap()).unwrap();
            assert_eq!(self.table.restore(self.now, record, elapsed), Some(id));
            let view = self.table.lease(id).unwrap();
            assert_eq!(view.charge, before.charge);
            let left = before.remaining.unwrap().saturating_sub(elapsed);
            assert_eq!(view.remaining, Some(left));
            for generation in [before.generation.saturating_sub(1).max(1), before.generation] {
                let is_active = self.table.authorize(self.now, id, generation).is_ok();
                assert_eq!(is_active, !left.is_zero());
            }
            self.steps.insert(id, [1, 0, 0]);
            if before.class == Exclusivity::Session {
                self.unsettled.insert(id);
            }
        }
        let is_kept = |id: &LeaseId| kept.iter().any(|kept| kept.id == id.0);
        self.present.retain(|id, _| is_kept(id));
        self.granted.retain(|_, id| is_kept(id));
        self.lost.clear();
        self.requests.clear();
        (self.earlier, self.fences) = ((self.seen.len() - kept.len()) as u64, 0);
        for kept in &kept {
            self.table.disconnected(self.now, LeaseId(kept.id));
        }
        for slot in fenced {
            self.table.fence(self.now, slot);
        }
    }

    fn request(&mut self, ask: &Ask) {
        let request = LeaseRequest {
            tenant: Tenant::new(&format!("tenant-{}", ask.tenant)).unwrap(),
            nonce: [ask.nonce; 16],
            min_vram: ask.mib * MIB,
            lease_secs: ask.secs,
            class: ask.class,
            slot: ask.slot.map(|slot| format!("cuda:{slot}")),
            wait: at(ask.wait),
            priority: ask.priority,
        };
        let before = self.table.counters().granted;
        match self.table.request(self.now, request) {
            Ok(Placement::Leased(lease)) => {
                let key = (ask.tenant, ask.nonce);
                let first = *self.granted.entry(key).or_insert(lease);
                assert_eq!(first, lease, "a nonce got a second lease");
                if self.table.counters().granted == before {
                    assert!(self.seen.contains(&lease), "a repetition got an unknown lease");
                }
            }
            Ok(Placement::Queued { request, .. }) => {
                assert!(!self.granted.contains_key(&(ask.tenant, ask.nonce)));
                self.requests.push(request);
            }
            Err(refusal) => assert!(!refusal.message.is_empty()),
        }
    }

    fn idle(&mut self, lease: LeaseId) {
        self.unsettled.remove(&lease);
        if self.table.session_idle(self.now, lease) {
            self.running.remove(&lease);
        }
    }

    fn poll(&mut self) -> Option<Action> {
        let action = self.table.poll(self.now)?;
        self.observe(None);
        if let Some(lease) = action.lease() {
            assert!(self.present.contains_key(&lease), "an action for an ended lease: {action:?}");
        }
        let index = match action {
            Action::AssignWorker { .. } => 0,
            Action::StopAdmission { .. } => 1,
            Action::KillWorker { .. } => 2,
            Action::RunSession { lease } => {
                let (slot, _, class) = self.present[&lease];
                assert_eq!(class, Exclusivity::Session);
                assert!(self.running.insert(lease), "the session runs already");
                let beside = self.running.iter().filter(|other| self.present[other].0 == slot);
                assert_eq!(beside.count(), 1, "two sessions of a slot run");
                let is_of_slot =
                    |id: &LeaseId| self.present.get(id).is_some_and(|(of, ..)| *of == slot);
                assert!(!self.unsettled.iter().any(is_of_slot), "a session runs beside another");
                return Some(action);
            }
            Action::PauseSession { lease } => {
                assert!(self.running.contains(&lease), "a session that does not run is paused");
                return Some(action);
            }
            Action::Fence { .. } => {
                self.fences += 1;
                return Some(action);
            }
            _ => return Some(action),
        };
        let lease = action.lease().unwrap();
        let steps = self.steps.entry(lease).or_default();
        steps[index] += 1;
        assert_eq!(steps[index], 1, "{action:?} was emitted twice");
        assert!(steps[..index].iter().all(|earlier| *earlier == 1), "{action:?} is too early");
        Some(action)
    }

    /// Performs all actions: workers start, sessions pause, and killed workers exit.
    fn obey(&mut self) {
        while let Some(action) = self.poll() {
            match action {
                Action::AssignWorker { lease, .. } => {
                    self.table.worker_ready(self.now, lease);
                }
                Action::PauseSession { lease } => {
                    assert!(self.table.session_paused(self.now, lease));
                    self.running.remove(&lease);
                }
                Action::KillWorker { lease } => {
                    assert!(self.table.worker_gone(self.now, lease, true));
                    self.observe(Some(lease));
                }
                _ => {}
            }
        }
        let next = self.table.next_deadline();
        assert!(next.is_none_or(|at| at > self.now), "an idle table is due at {next:?}");
    }

    /// Compares the table with the model. `returned`: the memory of this lease was reported as back.
    fn observe(&mut self, returned: Option<LeaseId>) {
        let table = &self.table;
        let before = std::mem::take(&mut self.present);
        for view in table.leases() {
            self.present.insert(view.id, (view.slot, view.charge, view.class));
            if !self.seen.contains(&view.id) {
                assert!(self.seen.iter().all(|old| *old < view.id), "a lease id is used again");
                self.seen.push(view.id);
            }
            if view.is_running {
                assert_eq!(view.class, Exclusivity::Session);
            }
        }
        for (id, (slot, charge, _)) in before {
            if self.present.contains_key(&id) {
                continue;
            }
            let steps = self.steps.get(&id).copied().unwrap_or_default();
            assert_eq!(steps, [1, 1, 1], "lease {id} ended before its kill was polled");
            self.running.remove(&id);
            if returned != Some(id) {
                self.lost.insert(id, (slot, charge));
            }
        }
        if let Some(id) = returned {
            // Either it has just ended, or its memory became free late.
            if !self.present.contains_key(&id) {
                self.lost.remove(&id);
            }
        }
        for slot in table.slots() {
            let leases = || self.present.values().filter(|(of, _, _)| *of == slot.id);
            let lost = self.lost.values().filter(|(of, _)| *of == slot.id);
            let charged = leases().map(|(_, charge, _)| charge).chain(lost.map(|(_, bytes)| bytes));
            assert_eq!(slot.used, charged.sum::<u64>(), "bytes of {}", slot.name);
            assert!(slot.used <= slot.capacity);
            assert_eq!(slot.leases, leases().count());
            assert!(slot.leases <= slot.max_leases as usize);
            let first = leases().next().map(|(_, _, class)| *class);
            assert!(leases().all(|(_, _, class)| Some(*class) == first), "classes mix");
            assert!(first != Some(Exclusivity::Device) || slot.leases == 1);
            assert!(slot.is_fenced || !self.lost.values().any(|(of, _)| *of == slot.id));
            assert!(table.leases().filter(|of| of.slot == slot.id && of.is_running).count() <= 1);
        }
        assert!(table.queue_len() <= self.config.queue_limit);
        let ending = table.leases().filter(|of| of.cause.is_some()).count() as u64;
        let counters = table.counters();
        let present = self.present.len() as u64;
        assert_eq!(counters.granted, counters.ended + present);
        assert_eq!(counters.endings(), counters.ended + ending);
        assert_eq!(counters.granted + self.earlier, self.seen.len() as u64);
        let answered = counters.granted + counters.refusals() + counters.cancelled;
        assert_eq!(counters.requests, answered + table.queue_len() as u64);
    }

    /// Lets time pass until everything has ended.
    pub(super) fn finish(mut self) {
        let mut steps = 0;
        loop {
            self.obey();
            let Some(next) = self.table.next_deadline() else { break };
            self.now = next;
            steps += 1;
            // Sessions that alternate cause most of the steps; here they have no more work.
            for lease in self.running.clone() {
                self.idle(lease);
            }
            assert!(steps < 10_000, "the table does not come to an end");
        }
        assert_eq!(self.table.leases().count(), 0);
        assert_eq!(self.table.queue_len(), 0);
        assert!(self.fences <= self.table.counters().fences);
        for slot in 0..2 {
            self.table.unfence(self.now, SlotId(slot)).unwrap();
        }
        assert!(self.table.slots().all(|slot| slot.used == 0 && !slot.is_fenced));
        assert_eq!(self.table.poll(self.now), None);
    }
}
