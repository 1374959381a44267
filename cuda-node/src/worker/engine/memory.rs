//! The memory of a session: its allocations, which of their contents are lost, and its pools.
//!
//! The quota of the lease counts the bytes in use, in all pools. Pools also keep freed memory. The node's driver
//! reserves at most the peak of a pool's bytes in use, so the sum of the peaks stays within the quota too: before it
//! would exceed it, the other pools are trimmed, and their peaks begin again. Memory is in use until its free is
//! complete. A pool that is dropped exists until then, and is trimmed: the driver may destroy it late. The driver trims
//! later than it is asked to, so allocations wait for it.

use std::{
    collections::hash_map::Entry,
    sync::{Arc, atomic::AtomicUsize},
};

use cuda_core::{
    Error,
    internals::IdMap,
    order::{Poison, uses_of},
    protocol::{AllocId, ModuleId, PoolId, Use, Work},
};
use cuda_lease::{session::SessionError, wire::features::MAX_POOLS};

use super::state::violation;
use crate::worker::{
    graphs::NodeAccess,
    modules::Ready,
    quota::{Charge, Quota},
};

/// The maximum number of allocations, of modules, and of named variables that a session may have.
pub(super) const OBJECT_LIMIT: usize = 1 << 20;

/// The maximum number of pools that exist: those of the client, and dropped ones whose last frees are not complete.
const POOL_LIMIT: usize = 1024;

/// Allocations and named variables. Contents of others are not recorded as lost, so a client cannot fill this memory
/// with ids that it makes up.
#[derive(Default)]
pub(super) struct Objects {
    known: IdMap<AllocId, Object>,
    /// The variables of each module. They end with it, so no other object has one of these ids meanwhile.
    variables: IdMap<ModuleId, Vec<AllocId>>,
    /// The write sets of submissions that were refused.
    poison: Poison,
    /// The number of times that all memory was lost, and the error of the last one. Each object gets the loss at its next
    /// use: a client may have a million, and lose them with each command.
    losses: u64,
    last_loss: Option<Error>,
}

/// The memory of an allocation.
pub(in crate::worker) struct Memory {
    pub(in crate::worker) of_lease: Charge,
    pub(in crate::worker) of_pool: Option<Charge>,
}

/// An allocation or a named variable.
enum Object {
    /// An allocation that was announced and is neither made nor refused, with its memory or the error that it will be
    /// refused with.
    Pending(Result<Charge, Error>),
    /// With the number of the losses of all memory that came before it, or that it has.
    Made(Memory, u64),
    Refused(Error),
    /// A variable, also one that the backend does not have, with the same number.
    Variable(u64),
}

impl Objects {
    /// Adds an allocation that will be made, with its memory or the error that it will be refused with.
    ///
    /// # Errors
    /// It exists, or there are too many.
    pub(super) fn announce(
        &mut self,
        id: AllocId,
        charge: Result<Charge, Error>,
    ) -> Result<(), SessionError> {
        self.add(id, Object::Pending(charge))
    }

    fn add(&mut self, id: AllocId, object: Object) -> Result<(), SessionError> {
        if self.known.len() >= OBJECT_LIMIT {
            return Err(violation(format!("more than {OBJECT_LIMIT} allocations exist")));
        }
        match self.known.entry(id) {
            Entry::Vacant(entry) => _ = entry.insert(object),
            Entry::Occupied(_) => {
                return Err(violation(format!("the id of allocation {} is already in use", id.0)));
            }
        }
        Ok(())
    }

    /// Adds a variable, which exists as long as its module.
    ///
    /// # Errors
    /// As [`announce`](Self::announce).
    pub(super) fn name(&mut self, module: ModuleId, variable: AllocId) -> Result<(), SessionError> {
        self.add(variable, Object::Variable(self.losses))?;
        self.variables.entry(module).or_default().push(variable);
        Ok(())
    }

    /// The memory of an allocation that will be made. `None` if it will be refused.
    pub(super) fn pending(&self, id: AllocId) -> Option<&Charge> {
        match self.known.get(&id) {
            Some(Object::Pending(charge)) => charge.as_ref().ok(),
            _ => None,
        }
    }

    /// Takes the memory of an allocation that is made now.
    ///
    /// # Errors
    /// It is refused: its contents are lost.
    pub(super) fn make(&mut self, id: AllocId) -> Result<Charge, Error> {
        match self.known.remove(&id) {
            Some(Object::Pending(charge)) => charge.inspect_err(|error| self.refuse(id, error)),
            _ => Err(Error::no_such_object("allocation", id.0)),
        }
    }

    /// Records that an allocation was refused: its contents are lost.
    pub(super) fn refuse(&mut self, id: AllocId, error: &Error) {
        self.known.insert(id, Object::Refused(error.clone()));
        self.spread_over(id, error);
    }

    /// Records that an allocation was made.
    pub(super) fn made(&mut self, id: AllocId, memory: Memory) {
        self.known.insert(id, Object::Made(memory, self.losses));
    }

    /// Whether an allocation will be made later.
    pub(super) fn is_pending(&self, id: AllocId) -> bool {
        matches!(self.known.get(&id), Some(Object::Pending(_)))
    }

    /// Records that the free of an allocation has arrived. It may have to wait.
    pub(super) fn free(&mut self, id: AllocId) {
        match self.known.get_mut(&id) {
            Some(Object::Pending(Ok(charge))) => charge.free(),
            Some(Object::Made(memory, _)) => memory.of_lease.free(),
            _ => {}
        }
    }

    /// Whether this is a variable, which only the end of its module frees.
    pub(super) fn is_variable(&self, id: AllocId) -> bool {
        matches!(self.known.get(&id), Some(Object::Variable(_)))
    }

    /// Removes an allocation, which is not pending. Returns its memory. Returns `None` for any other id: the backend has
    /// no allocation to free.
    pub(super) fn remove(&mut self, id: AllocId) -> Option<Memory> {
        if self.is_variable(id) {
            return None;
        }
        self.poison.forget(id);
        match self.known.remove(&id) {
            Some(Object::Made(memory, _)) => Some(memory),
            _ => None,
        }
    }

    /// Removes the variables of a module.
    pub(super) fn unload(&mut self, module: ModuleId) {
        for variable in self.variables.remove(&module).unwrap_or_default() {
            self.poison.forget(variable);
            self.known.remove(&variable);
        }
    }

    /// Returns the error for work that reads lost contents.
    #[inline]
    pub(super) fn check(&mut self, work: &Work<'_>) -> Option<Error> {
        if self.has_lost_nothing() {
            return None;
        }
        let uses = uses_of(work);
        self.lose(&uses);
        self.refused(&uses).or_else(|| self.poison.check(&uses, work.overwrites()))
    }

    /// Returns the error for work that uses an allocation that was refused. To overwrite it does not end the loss.
    pub(super) fn refused(&self, uses: &[Use]) -> Option<Error> {
        uses.iter().find_map(|of| match self.known.get(&of.base) {
            Some(Object::Refused(error)) => Some(error.clone().poison()),
            _ => None,
        })
    }

    /// Returns the error for a graph with a node that reads lost contents. A node that overwrites them ends the loss
    /// for the nodes behind it.
    pub(super) fn check_nodes(&mut self, nodes: &[NodeAccess]) -> Option<Error> {
        if self.has_lost_nothing() {
            return None;
        }
        nodes.iter().for_each(|node| self.lose(&node.uses));
        let refused = nodes.iter().find_map(|node| self.refused(&node.uses));
        let check = |node: &NodeAccess| self.poison.check(&node.uses, node.overwrites);
        refused.or_else(|| nodes.iter().find_map(check))
    }

    /// As [`Poison::spread`].
    pub(super) fn spread(&mut self, uses: &[Use], error: &Error) {
        self.lose(uses);
        for of in uses.iter().filter(|used| self.known.contains_key(&used.base)) {
            self.poison.spread(std::slice::from_ref(of), error);
        }
    }

    /// As [`Poison::spread_over`].
    pub(super) fn spread_over(&self, id: AllocId, error: &Error) {
        if self.known.contains_key(&id) {
            self.poison.spread_over(id, error);
        }
    }

    /// Poisons all memory that work can use now.
    pub(super) fn spread_over_all(&mut self, error: &Error) {
        self.losses += 1;
        self.last_loss = Some(error.clone());
    }

    pub(super) fn has_lost_nothing(&self) -> bool {
        self.last_loss.is_none() && self.poison.is_empty()
    }

    /// Poisons the memory of these uses that was lost with all other memory.
    fn lose(&mut self, uses: &[Use]) {
        let Some(error) = &self.last_loss else { return };
        for of in uses {
            if let Some(Object::Made(_, losses) | Object::Variable(losses)) =
                self.known.get_mut(&of.base)
                && *losses < self.losses
            {
                *losses = self.losses;
                self.poison.spread_over(of.base, error);
            }
        }
    }
}

/// The memory pools of a session, with the pool of each allocation.
pub(super) struct Pools {
    table: IdMap<PoolId, Pool>,
    /// The pools of allocations that exist or will be made, without those of the default pool.
    of: IdMap<AllocId, PoolId>,
    /// The trims that the backend has not carried out.
    trims: Vec<Arc<Ready>>,
    /// The number of queries that wait.
    pub(super) asked: Arc<AtomicUsize>,
}

/// A memory pool of a session.
pub(super) struct Pool {
    /// The allocations that exist or will be made.
    live: usize,
    /// Counts the bytes in use, without a limit.
    in_use: Arc<Quota>,
    /// The peak of the bytes in use since the last trim.
    peak: u64,
    is_dropped: bool,
}

impl Default for Pool {
    fn default() -> Self {
        let in_use = Arc::new(Quota::new("", u64::MAX));
        Self { live: 0, in_use, peak: 0, is_dropped: false }
    }
}

impl Pool {
    fn used(&self) -> u64 {
        self.in_use.limit_and_used().1
    }
}

impl Default for Pools {
    fn default() -> Self {
        let table = IdMap::from_iter([(PoolId::DEFAULT, Pool::default())]);
        Self { table, of: IdMap::default(), trims: Vec::new(), asked: Arc::default() }
    }
}

impl Pools {
    pub(super) fn create(&mut self, id: PoolId) -> Result<(), SessionError> {
        let own =
            self.table.iter().filter(|(id, pool)| **id != PoolId::DEFAULT && !pool.is_dropped);
        if own.count() >= MAX_POOLS as usize || self.table.len() > POOL_LIMIT {
            return Err(violation(format!(
                "more than {MAX_POOLS} memory pools exist, or more than {POOL_LIMIT} with dropped ones whose memory is \
                 not freed"
            )));
        }
        if self.table.contains_key(&id) {
            return Err(violation(format!("the id of memory pool {} is already in use", id.0)));
        }
        self.table.insert(id, Pool::default());
        Ok(())
    }

    pub(super) fn find(&mut self, id: PoolId) -> Result<&mut Pool, SessionError> {
        let pool = self.table.get_mut(&id).filter(|pool| !pool.is_dropped);
        pool.ok_or_else(|| violation(format!("memory pool {} does not exist", id.0)))
    }

    /// Records an allocation that will be made.
    ///
    /// # Errors
    /// The pool does not exist.
    pub(super) fn announce(&mut self, id: PoolId, alloc: AllocId) -> Result<(), SessionError> {
        if id != PoolId::DEFAULT {
            self.find(id)?.live += 1;
            self.of.insert(alloc, id);
        }
        Ok(())
    }

    /// Returns the other pools that have to be trimmed before an allocation, so that at most `quota` bytes are reserved.
    pub(super) fn exceeding(&mut self, id: PoolId, bytes: u64, quota: u64) -> Vec<PoolId> {
        let peak = |(of, pool): (&PoolId, &Pool)| {
            let more = if *of == id { bytes } else { 0 };
            pool.peak.max(pool.used() + more)
        };
        if self.table.len() == 1 || self.table.iter().map(peak).sum::<u64>() <= quota {
            return Vec::new();
        }
        let others =
            self.table.iter_mut().filter(|(other, pool)| **other != id && pool.peak > pool.used());
        let trimmed = others.map(|(other, pool)| {
            pool.peak = pool.used();
            *other
        });
        trimmed.collect()
    }

    /// Adds a trim, which allocations wait for.
    pub(super) fn trims(&mut self, trim: Arc<Ready>) {
        self.trims.push(trim);
    }

    /// Whether a trim is not carried out.
    pub(super) fn is_trimming(&mut self) -> bool {
        self.trims.retain(|trim| !trim.has_ended());
        !self.trims.is_empty()
    }

    /// Records that an allocation is made. Returns its memory.
    pub(super) fn made(&mut self, id: PoolId, bytes: u64) -> Option<Charge> {
        let pool = self.table.get_mut(&id)?;
        let charge = pool.in_use.charge(bytes).ok();
        pool.peak = pool.peak.max(pool.used());
        charge
    }

    /// The pool of an allocation.
    pub(super) fn of(&self, alloc: AllocId) -> PoolId {
        self.of.get(&alloc).copied().unwrap_or(PoolId::DEFAULT)
    }

    /// Records that an allocation is freed.
    pub(super) fn freed(&mut self, alloc: AllocId) {
        let id = self.of.remove(&alloc).unwrap_or(PoolId::DEFAULT);
        if let Some(pool) = self.table.get_mut(&id) {
            pool.live = pool.live.saturating_sub(1);
        }
    }

    /// Records that a pool is dropped.
    pub(super) fn drop(&mut self, id: PoolId) -> Result<(), SessionError> {
        if id == PoolId::DEFAULT {
            return Err(violation("the default memory pool cannot be dropped"));
        }
        self.find(id)?.is_dropped = true;
        Ok(())
    }

    /// Takes out the dropped pools that have no allocation and whose frees are complete.
    pub(super) fn ended(&mut self) -> Vec<PoolId> {
        let has_ended =
            |_: &PoolId, pool: &mut Pool| pool.is_dropped && pool.live == 0 && pool.used() == 0;
        self.table.extract_if(has_ended).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use cuda_core::protocol::{Access, Region};

    use super::*;

    fn charge() -> Result<Charge, Error> {
        Arc::new(Quota::new("", 1)).charge(1)
    }

    fn whole(id: u64) -> Use {
        Use { base: AllocId(id), range: 0..u64::MAX, access: Access::Write }
    }

    #[test]
    fn contents_are_lost_only_of_allocations_that_exist() {
        let mut objects = Objects::default();
        objects.announce(AllocId(1), charge()).unwrap();
        objects.name(ModuleId(9), AllocId(2)).unwrap();
        let error = Error::OutOfHostMemory { requested: 1 };
        objects.spread(&[whole(1), whole(2), whole(3)], &error);
        objects.spread_over(AllocId(3), &error);
        let copy = |id| {
            let region = |alloc| Region { alloc: AllocId(alloc), offset: 0 };
            Work::Copy { from: region(id), to: region(8), bytes: 4 }
        };
        let is_lost = |objects: &mut Objects, id| objects.check(&copy(id)).is_some();
        assert!(is_lost(&mut objects, 1) && is_lost(&mut objects, 2));
        assert!(!is_lost(&mut objects, 3));
        objects.unload(ModuleId(9));
        let of_lease = objects.make(AllocId(1)).unwrap();
        objects.made(AllocId(1), Memory { of_lease, of_pool: None });
        assert!(objects.remove(AllocId(1)).is_some());
        assert!(!is_lost(&mut objects, 1) && !is_lost(&mut objects, 2));
        assert!(objects.announce(AllocId(2), charge()).is_ok());
    }

    #[test]
    fn all_memory_that_exists_is_lost_until_it_is_overwritten() {
        let mut objects = Objects::default();
        let make = |objects: &mut Objects, id| {
            objects.announce(AllocId(id), charge()).unwrap();
            let of_lease = objects.make(AllocId(id)).unwrap();
            objects.made(AllocId(id), Memory { of_lease, of_pool: None });
        };
        let region = |alloc| Region { alloc: AllocId(alloc), offset: 0 };
        let copy = |from, to| Work::Copy { from: region(from), to: region(to), bytes: 4 };
        let fill = |to| {
            let pattern = cuda_core::protocol::Pattern::Byte(0);
            Work::Fill { to: region(to), pattern, count: 4 }
        };
        make(&mut objects, 1);
        objects.name(ModuleId(9), AllocId(2)).unwrap();
        objects.announce(AllocId(3), charge()).unwrap();
        let error = Error::OutOfHostMemory { requested: 1 };
        for _ in 0..2 {
            objects.spread_over_all(&error);
            make(&mut objects, 4);
            for lost in [1, 2] {
                assert_eq!(objects.check(&copy(lost, 4)), Some(error.clone().poison()));
                assert_eq!(objects.check(&fill(lost)), None);
                assert_eq!(objects.check(&copy(lost, 4)), None);
            }
            assert_eq!(objects.check(&copy(3, 4)), None);
            objects.remove(AllocId(4));
        }
    }

    /// Else its end would free an allocation that has the id meanwhile.
    #[test]
    fn variable_keeps_its_id_until_its_module_ends() {
        let mut objects = Objects::default();
        objects.name(ModuleId(9), AllocId(1)).unwrap();
        assert!(objects.remove(AllocId(1)).is_none());
        assert!(objects.announce(AllocId(1), charge()).is_err());
        assert!(objects.is_variable(AllocId(1)));
        objects.unload(ModuleId(9));
        assert!(objects.variables.is_empty() && objects.announce(AllocId(1), charge()).is_ok());
    }

    const A: PoolId = PoolId(2);

    #[test]
    fn client_has_at_most_the_limit_of_pools() {
        let mut pools = Pools::default();
        let ids = || (2..2 + u64::from(MAX_POOLS)).map(PoolId);
        ids().for_each(|id| pools.create(id).unwrap());
        assert!(pools.create(PoolId(1000)).is_err());
        pools.drop(A).unwrap();
        assert!(pools.drop(A).is_err() && pools.announce(A, AllocId(1)).is_err());
        assert_eq!(pools.ended(), [A]);
        pools.create(PoolId(1000)).unwrap();
        assert!(pools.create(PoolId(3)).is_err() && pools.drop(PoolId::DEFAULT).is_err());
    }

    #[test]
    fn dropped_pool_ends_with_the_free_of_its_last_allocation() {
        let mut pools = Pools::default();
        pools.create(A).unwrap();
        pools.announce(A, AllocId(1)).unwrap();
        pools.announce(A, AllocId(2)).unwrap();
        let memory = pools.made(A, 70);
        pools.drop(A).unwrap();
        // One was never made.
        pools.freed(AllocId(1));
        pools.freed(AllocId(2));
        assert_eq!(pools.ended(), []);
        drop(memory);
        assert_eq!((pools.ended(), pools.ended()), (vec![A], vec![]));
    }

    #[test]
    fn sum_of_the_peaks_stays_within_the_quota() {
        let mut pools = Pools::default();
        pools.create(A).unwrap();
        pools.announce(A, AllocId(1)).unwrap();
        let made = |pools: &mut Pools, id, bytes| {
            let trimmed = pools.exceeding(id, bytes, 100);
            (pools.made(id, bytes).unwrap(), trimmed)
        };
        let (first, trimmed) = made(&mut pools, A, 70);
        assert_eq!(trimmed, []);
        pools.freed(AllocId(1));
        let (_second, trimmed) = made(&mut pools, PoolId::DEFAULT, 30);
        assert_eq!(trimmed, []);
        // The free is not complete, so nothing can be trimmed.
        let (third, trimmed) = made(&mut pools, PoolId::DEFAULT, 1);
        assert_eq!(trimmed, []);
        drop((first, third));
        let (_third, trimmed) = made(&mut pools, PoolId::DEFAULT, 1);
        assert_eq!(trimmed, [A]);
        let (_fourth, trimmed) = made(&mut pools, PoolId::DEFAULT, 69);
        assert_eq!(trimmed, []);
    }
}
