//! Commands and queries about memory pools.

use std::sync::atomic::Ordering;

use cuda_core::protocol::{Answer, Control, PoolChange, PoolId, PoolSpec, Reply, Request};
use cuda_lease::{
    session::SessionError,
    wire::{Event, QueryReply},
};

use super::{
    Engine,
    state::{State, unknown_reply, violation},
};

/// The maximum number of queries about pools that wait for an answer.
const POOL_QUERY_LIMIT: usize = 256;

impl Engine {
    pub(super) fn create_pool(
        &self,
        state: &mut State,
        id: PoolId,
        spec: PoolSpec,
    ) -> Result<(), SessionError> {
        state.pools.create(id)?;
        let keep = spec.release_threshold.min(self.quota.limit_and_used().0);
        self.control(Control::CreatePool { id, spec: PoolSpec::new(keep) });
        Ok(())
    }

    pub(super) fn change_pool(
        &self,
        state: &mut State,
        id: PoolId,
        change: PoolChange,
    ) -> Result<(), SessionError> {
        state.pools.find(id)?;
        self.control(Control::ChangePool { id, change });
        Ok(())
    }

    pub(super) fn drop_pool(&self, state: &mut State, id: PoolId) -> Result<(), SessionError> {
        if let Some(id) = state.pools.drop(id)? {
            self.control(Control::DropPool { id });
        }
        Ok(())
    }

    /// Returns the free memory of pools to the system. Asks for no reply.
    pub(super) fn trim(&self, pools: Vec<PoolId>) {
        for pool in pools {
            self.backend.request(Request::TrimPool { pool, keep: 0 }, Answer::new(drop));
        }
    }

    /// Passes a query about a pool to the backend.
    ///
    /// # Errors
    /// The pool does not exist, or too many queries wait.
    pub(super) fn query_pool(
        &self,
        state: &mut State,
        id: u64,
        pool: PoolId,
        request: Request,
    ) -> Result<(), SessionError> {
        state.pools.find(pool)?;
        let asked = state.pools.asked.clone();
        if asked.fetch_add(1, Ordering::Relaxed) >= POOL_QUERY_LIMIT {
            return Err(violation(format!(
                "more than {POOL_QUERY_LIMIT} queries about memory pools wait; wait for replies first"
            )));
        }
        let reports = self.reports.clone();
        let answer = Answer::new(move |reply| {
            asked.fetch_sub(1, Ordering::Relaxed);
            let reply = reply.and_then(|reply| match reply {
                Reply::Pool(memory) => Ok(QueryReply::Pool(memory)),
                _ => Err(unknown_reply()),
            });
            reports.outbox.push(&Event::Reply { id, reply });
        });
        self.backend.request(request, answer);
        Ok(())
    }
}
