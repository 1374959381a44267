//! The code of modules, on its way from clients to the worker of a session.
//!
//! The worker asks for the code of each module that it loads, by its hash. If the tenant has sent that code before, it
//! is queued for the worker. If not, the client is asked for it, also if it was before, because the client forgets the
//! code of a load that its user cancels. The client ignores requests for code that it is sending.

use std::{
    collections::{HashSet, VecDeque},
    num::NonZeroU32,
    sync::Arc,
};

use bytes::Bytes;
use cuda_lease::{session::SessionError, wire::Hash};
use parking_lot::Mutex;

use crate::supervisor::{blobs::Blobs, rate::Rate};

/// The maximum number of hashes that wait for the client, and of those that wait for the worker.
const LIMIT: usize = 4096;

/// The code that a worker gets per second after a burst of [`BURST`], in KiB. A client may load the same module again and
/// again with a few bytes.
const PER_SECOND: u32 = 64 << 10;

/// The largest burst of code, in KiB: twice as much as the modules of a lease may have at a time.
const BURST: u32 = 512 << 10;

/// The code that a session waits for. One task at a time sends code to the worker.
pub(super) struct ModuleCode {
    blobs: Arc<Blobs>,
    rate: Rate,
    state: Mutex<State>,
}

/// The hash tables have a secret: workers and clients make up hashes, and choose ones that collide otherwise.
#[derive(Default)]
struct State {
    /// Hashes that the client was asked for.
    wanted: HashSet<Hash>,
    /// Hashes whose code the worker gets next. A hash occurs once.
    queue: VecDeque<Hash>,
    queued: HashSet<Hash>,
    /// Whether a task sends the queue.
    is_sending: bool,
}

/// The step that follows a request for code.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CodeStep {
    /// The code is on its way.
    Nothing,
    /// Ask the client for the code.
    Ask,
    /// Start the task that sends code to the worker.
    Send,
}

/// The code that a task sends next.
pub(super) enum Next {
    Code(Hash, Bytes),
    /// The code was dropped from the tenant's blobs meanwhile. Ask the client for it.
    Ask(Hash),
}

impl ModuleCode {
    pub(super) fn new(blobs: Arc<Blobs>) -> Self {
        Self { blobs, rate: Rate::with_burst(PER_SECOND, BURST), state: Mutex::default() }
    }

    /// The worker needs code.
    ///
    /// # Errors
    /// More than [`LIMIT`] modules wait for their code.
    pub(super) fn request(&self, hash: Hash) -> Result<CodeStep, SessionError> {
        let is_known = self.blobs.get(&hash).is_some();
        let mut state = self.state.lock();
        let has_asked = if is_known { &state.queued } else { &state.wanted }.contains(&hash);
        // A hash of one moves to the other whatever that has, so both together have at most twice as many.
        if !has_asked && (state.wanted.len() >= LIMIT || state.queue.len() >= LIMIT) {
            let message = format!("more than {LIMIT} modules wait for their code");
            return Err(SessionError::Command(message));
        }
        if is_known {
            return Ok(state.enqueue(hash));
        }
        state.wanted.insert(hash);
        Ok(CodeStep::Ask)
    }

    /// The client has sent code.
    pub(super) fn arrived(&self, hash: Hash, code: Bytes) -> CodeStep {
        self.blobs.insert(hash, code);
        let mut state = self.state.lock();
        if state.wanted.remove(&hash) { state.enqueue(hash) } else { CodeStep::Nothing }
    }

    /// The hashes that the client was asked for.
    pub(super) fn wanted(&self) -> Vec<Hash> {
        self.state.lock().wanted.iter().copied().collect()
    }

    /// Waits until the worker may get this code.
    pub(super) async fn may_send(&self, code: &Bytes) {
        let kibibytes = u32::try_from(code.len() >> 10).unwrap_or(u32::MAX);
        self.rate.wait(NonZeroU32::new(kibibytes).unwrap_or(NonZeroU32::MIN)).await;
    }

    /// Takes the code to send next. At the end of the queue the sending task ends.
    pub(super) fn next(&self) -> Option<Next> {
        let mut state = self.state.lock();
        let Some(hash) = state.queue.pop_front() else {
            state.is_sending = false;
            return None;
        };
        state.queued.remove(&hash);
        if let Some(code) = self.blobs.get(&hash) {
            return Some(Next::Code(hash, code));
        }
        state.wanted.insert(hash);
        Some(Next::Ask(hash))
    }
}

impl State {
    fn enqueue(&mut self, hash: Hash) -> CodeStep {
        if self.queued.insert(hash) {
            self.queue.push_back(hash);
        }
        if std::mem::replace(&mut self.is_sending, true) {
            CodeStep::Nothing
        } else {
            CodeStep::Send
        }
    }
}

#[cfg(test)]
mod tests {
    use cuda_lease::authority::Tenant;

    use super::*;
    use crate::supervisor::blobs::BlobStore;

    fn blobs() -> Arc<Blobs> {
        Arc::<BlobStore>::default().of(&Tenant::local())
    }

    fn hash(number: usize) -> Hash {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    #[test]
    fn code_is_asked_for_until_it_arrives_and_queued_once() {
        let code = ModuleCode::new(blobs());
        assert_eq!(code.request(hash(1)).unwrap(), CodeStep::Ask);
        assert_eq!(code.request(hash(1)).unwrap(), CodeStep::Ask);
        assert_eq!(code.arrived(hash(1), Bytes::from_static(b"code")), CodeStep::Send);
        assert_eq!(code.arrived(hash(1), Bytes::from_static(b"code")), CodeStep::Nothing);
        for _ in 0..10_000 {
            assert_eq!(code.request(hash(1)).unwrap(), CodeStep::Nothing);
        }
        assert!(matches!(code.next(), Some(Next::Code(sent, _)) if sent == hash(1)));
        // A request during the sending is served by another one.
        assert_eq!(code.request(hash(1)).unwrap(), CodeStep::Nothing);
        assert!(matches!(code.next(), Some(Next::Code(..))) && code.next().is_none());
        assert_eq!(code.request(hash(1)).unwrap(), CodeStep::Send);
    }

    #[test]
    fn modules_that_wait_for_code_are_limited() {
        let code = ModuleCode::new(blobs());
        assert!((0..LIMIT).all(|index| code.request(hash(index)).is_ok()));
        for index in LIMIT..2 * LIMIT {
            let refused = code.request(hash(index)).unwrap_err();
            assert!(refused.to_string().contains("wait for their code"), "{refused}");
        }
        assert_eq!(code.wanted().len(), LIMIT);
        assert_eq!(code.request(hash(0)).unwrap(), CodeStep::Ask);
    }

    #[test]
    fn code_that_was_dropped_meanwhile_is_asked_for_again() {
        let code = ModuleCode::new(blobs());
        assert_eq!(code.request(hash(1)).unwrap(), CodeStep::Ask);
        assert_eq!(code.arrived(hash(1), Bytes::from_static(b"code")), CodeStep::Send);
        code.blobs.insert(hash(2), Bytes::from(vec![0; 256 << 20]));
        assert!(matches!(code.next(), Some(Next::Ask(asked)) if asked == hash(1)));
        assert_eq!(code.arrived(hash(1), Bytes::from_static(b"code")), CodeStep::Nothing);
        assert!(matches!(code.next(), Some(Next::Code(..))));
    }

    #[test]
    fn collisions_of_hashes_cannot_be_foreseen() {
        use std::hash::BuildHasher;
        let hashed = || {
            let State { wanted, queued, .. } = State::default();
            [wanted.hasher().hash_one(hash(1)), queued.hasher().hash_one(hash(1))]
        };
        let ([wanted, queued], others) = (hashed(), hashed());
        assert!(wanted != others[0] && queued != others[1]);
    }
}
