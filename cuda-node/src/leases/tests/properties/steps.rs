//! The steps of random programs.

use proptest::prelude::*;

use crate::leases::Exclusivity;

/// A step. `of` selects one of the ids that were ever seen, or an id that never was.
#[derive(Debug, Clone)]
pub(super) enum Step {
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
    NotStarted {
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
    /// The node ends, and the next one has the leases that it has left.
    Restart {
        secs: u64,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) tenant: u8,
    pub(super) nonce: u8,
    pub(super) mib: u64,
    pub(super) secs: u32,
    pub(super) class: Exclusivity,
    pub(super) slot: Option<u8>,
    pub(super) wait: u64,
    pub(super) priority: i32,
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

pub(super) fn step() -> impl Strategy<Value = Step> {
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
        of().prop_map(|of| Step::NotStarted { of }),
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
        (0u64..40).prop_map(|secs| Step::Restart { secs }),
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
