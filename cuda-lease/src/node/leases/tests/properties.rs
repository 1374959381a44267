//! Random programs: clients, operators, workers and clocks in any order, with invariants after each step.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// A step. `of` selects one of the ids that were ever seen, or an id that never was.
#[derive(Debug, Clone)]
enum Step {
    Request(Ask),
    Cancel {
        of: u8,
    },
    Renew {
        of: u8,
        generation: u64,
        secs: u32,
    },
    Authorize {
        of: u8,
        generation: u64,
    },
    Free {
        of: u8,
    },
    Revoke {
        of: u8,
        notice: u64,
    },
    Ready {
        of: u8,
    },
    Died {
        of: u8,
    },
    Gone {
        of: u8,
        back: bool,
    },
    Busy {
        of: u8,
    },
    Idle {
        of: u8,
    },
    Paused {
        of: u8,
    },
    Disconnected {
        of: u8,
    },
    Reconnected {
        of: u8,
    },
    Fence {
        slot: usize,
    },
    Unfence {
        slot: usize,
    },
    Quotas {
        max_leases: u32,
        max_priority: i32,
    },
    Poll {
        actions: usize,
    },
    /// Performs all actions as a supervisor does.
    Obey,
    Wait {
        millis: u64,
    },
    Jump {
        secs: u64,
    },
    /// A clock that goes back, for one step.
    Back,
}

#[derive(Debug, Clone)]
struct Ask {
    tenant: u8,
    nonce: u8,
    mib: u64,
    secs: u32,
    class: Exclusivity,
    slot: Option<u8>,
    wait: u64,
    priority: i32,
}

fn ask() -> impl Strategy<Value = Ask> {
    let class = prop_oneof![
        3 => Just(Exclusivity::Shared),
        3 => Just(Exclusivity::Session),
        1 => Just(Exclusivity::Device),
    ];
    let slot = prop_oneof![4 => Just(None), 2 => (0u8..2).prop_map(Some), 1 => Just(Some(9))];
    let wait = prop_oneof![1 => Just(0u64), 3 => 1u64..100];
    (0u8..3, 0u8..40, 0u64..1000, 0u32..100, class, slot, wait, 0i32..4).prop_map(
        |(tenant, nonce, mib, secs, class, slot, wait, priority)| Ask {
            tenant,
            nonce,
            // Many small leases, few large ones.
            mib: if mib.is_multiple_of(3) { mib } else { mib / 10 },
            secs,
            class,
            slot,
            wait,
            priority,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let of = any::<u8>;
    let others = prop_oneof![
        of().prop_map(|of| Step::Cancel { of }),
        (of(), 0u64..4, 0u32..4000).prop_map(|(of, generation, secs)| Step::Renew {
            of,
            generation,
            secs
        }),
        (of(), 0u64..4).prop_map(|(of, generation)| Step::Authorize { of, generation }),
        of().prop_map(|of| Step::Free { of }),
        (of(), 0u64..20).prop_map(|(of, notice)| Step::Revoke { of, notice }),
        of().prop_map(|of| Step::Died { of }),
        (of(), any::<bool>()).prop_map(|(of, back)| Step::Gone { of, back }),
        of().prop_map(|of| Step::Disconnected { of }),
        of().prop_map(|of| Step::Reconnected { of }),
        Just(Step::Back),
    ];
    let rare = prop_oneof![
        (2u32..20, 0i32..4)
            .prop_map(|(max_leases, max_priority)| Step::Quotas { max_leases, max_priority }),
        (0usize..3).prop_map(|slot| Step::Fence { slot }),
        (0usize..3).prop_map(|slot| Step::Unfence { slot }),
        (1u64..100_000).prop_map(|secs| Step::Jump { secs }),
    ];
    let sessions = prop_oneof![
        4 => of().prop_map(|of| Step::Busy { of }),
        1 => of().prop_map(|of| Step::Idle { of }),
        2 => of().prop_map(|of| Step::Paused { of }),
    ];
    prop_oneof![
        8 => ask().prop_map(Step::Request),
        4 => of().prop_map(|of| Step::Ready { of }),
        4 => sessions,
        4 => (1usize..5).prop_map(|actions| Step::Poll { actions }),
        6 => Just(Step::Obey),
        3 => (0u64..3000).prop_map(|millis| Step::Wait { millis }),
        4 => others,
        1 => rare,
    ]
}

/// The table, and everything that its caller has seen of it.
struct Program {
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
    /// The lease of a nonce.
    granted: BTreeMap<(u8, u8), LeaseId>,
    fences: u64,
}

impl Program {
    fn new(preempt: bool) -> Program {
        let config =
            TableConfig { preempt, queue_limit: 5, ended_limit: 10_000, ..TableConfig::default() };
        let cpu = SlotConfig { reserve: 0, ..gpu("cuda:1") };
        let slots = vec![gpu("cuda:0"), cpu];
        let quotas = Quotas::parse("[defaults]\nmax_priority = 3\n").unwrap();
        Program {
            table: LeaseTable::new(config.clone(), slots, quotas).unwrap(),
            config,
            now: Duration::ZERO,
            seen: Vec::new(),
            requests: Vec::new(),
            present: BTreeMap::new(),
            steps: BTreeMap::new(),
            lost: BTreeMap::new(),
            running: BTreeSet::new(),
            granted: BTreeMap::new(),
            fences: 0,
        }
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

    fn run(&mut self, step: &Step) {
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
            Step::Died { of } => drop(self.table.worker_died(now, self.lease(of))),
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
        }
        self.observe(returned);
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

    /// Performs all actions: workers start, sessions pause, and killed workers are gone.
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
            if view.has_turn {
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
            // Either it has just ended, or its memory came back late.
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
            assert!(table.leases().filter(|of| of.slot == slot.id && of.has_turn).count() <= 1);
        }
        assert!(table.queue_len() <= self.config.queue_limit);
        let ending = table.leases().filter(|of| of.cause.is_some()).count() as u64;
        let counters = table.counters();
        let present = self.present.len() as u64;
        assert_eq!(counters.granted, counters.ended + present);
        assert_eq!(counters.endings(), counters.ended + ending);
        assert_eq!(counters.granted, self.seen.len() as u64);
        let answered = counters.granted + counters.refusals() + counters.cancelled;
        assert_eq!(counters.requests, answered + table.queue_len() as u64);
    }

    /// Lets time pass until everything has ended.
    fn finish(mut self) {
        let mut steps = 0;
        loop {
            self.obey();
            let Some(next) = self.table.next_deadline() else { break };
            self.now = next;
            steps += 1;
            // Sessions that take turns cause most of the steps; here they have no more work.
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_keep_the_invariants(
        preempt in any::<bool>(),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut program = Program::new(preempt);
        for step in &steps {
            program.run(step);
        }
        program.finish();
    }
}
