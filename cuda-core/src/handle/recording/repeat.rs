//! Loops: a recording as the body of a loop inside another recording.

use std::sync::Arc;

use super::recording::Recording;
use crate::{
    handle::{
        memory::ScalarMemory,
        stream::{LoopResources, Operand, Stream},
    },
    protocol::{
        Access, CONDITION_BYTES, Error, Feature, Graph, GraphNode, Limit, Misuse, Quantity, Repeat,
        Result, Ticket, Work,
    },
};

/// The maximum number of loops of a graph that are inside each other.
pub const MAX_LOOP_DEPTH: usize = 8;

/// The number of loops that are inside each other in a node.
fn depth(work: &Work<'_>) -> usize {
    match work {
        Work::Repeat(repeat) => {
            1 + repeat.body.nodes.iter().map(|it| depth(&it.work)).max().unwrap_or(0)
        }
        _ => 0,
    }
}

impl Stream {
    /// Returns a stream of a new recording, for the body of a loop in the recording of this stream. If this is a stream
    /// of a plan, the new recording is a plan too.
    ///
    /// # Errors
    /// An error of the backend.
    #[doc(hidden)]
    pub fn start_body(&self) -> Result<Stream> {
        match self.recorder() {
            Some(recorder) if recorder.is_plan() => Ok(self.device().start_plan()),
            _ => self.device().start_recording(),
        }
    }

    /// Records a loop, which repeats the work of `body` while `condition` is not 0. The device reads the condition
    /// before each pass.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this is not a stream of a recording, or if the body uploads from a host slot.
    /// [`Error::Unsupported`] if the device has no loops. [`Error::OutOfRange`] beyond the limits of a recording.
    #[doc(hidden)]
    pub fn record_repeat(&self, condition: &ScalarMemory<u32>, body: &Recording) -> Result<Ticket> {
        let device = self.device();
        if !self.is_recording() {
            return Err(Misuse::NotRecording.into());
        }
        if !device.core().capabilities.loops {
            return Err(Error::unsupported(Feature::GraphLoop, &device.info().address));
        }
        let depth = body.nodes.iter().map(|it| depth(&it.work)).max().unwrap_or(0);
        let (given, limit) = (depth as u64 + 1, Limit::AtMost(MAX_LOOP_DEPTH as u64));
        limit.check("a loop inside a graph", Quantity::LoopDepth, given)?;
        let uploads = || body.kept.uploads.iter().flatten();
        if uploads().any(|it| it.slot.is_some()) {
            return Err(Misuse::HostSlotInLoop.into());
        }
        device.check_same("a buffer", condition.device())?;
        device.check_same("the body of a loop", body.device())?;
        let host = uploads().map(|it| it.block.clone()).collect();
        let host_bytes = uploads().map(|it| it.lease.host_bytes()).sum();
        let nodes = body.nodes.iter().map(|it| GraphNode {
            work: it.work.clone(),
            after: it.after.to_vec(),
            name: it.name.clone(),
        });
        let word = condition.buffer().allocation();
        let repeat = Repeat {
            condition: condition.as_slice().view().region(),
            body: Arc::new(Graph { nodes: nodes.collect(), host }),
            uses: body.accesses().into(),
        };
        let mut operands = body.operands();
        operands.push(Operand::new(word, 0..CONDITION_BYTES, Access::Read));
        let (held, kernels) = (body.kept.clone(), body.kernels.clone());
        self.record_loop(repeat, &operands, LoopResources { held, kernels, host_bytes })
    }
}
