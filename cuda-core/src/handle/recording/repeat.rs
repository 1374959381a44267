//! Loops: a recording as the body of a loop inside another recording.

use std::sync::Arc;

use super::recording::Recording;
use crate::handle::recording::recording::start_plan;
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
            1 + repeat.body.nodes.iter().map(|node| depth(&node.work)).max().unwrap_or(0)
        }
        _ => 0,
    }
}

impl Recording {
    /// Returns a stream of a new recording, for the body of a loop in the recording of `stream`. If that is a stream of
    /// a plan, so is the new one.
    ///
    /// # Errors
    /// An error of the backend.
    pub fn start_body(stream: &Stream) -> Result<Stream> {
        match stream.recorder() {
            Some(recorder) if recorder.is_plan() => Ok(start_plan(stream.device())),
            _ => Self::start(stream.device(), None),
        }
    }

    /// Records a loop on `stream`, which repeats this recording while `condition` is not 0. The device reads the
    /// condition before each pass.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this is not a stream of a recording, or if the body uploads from a host slot.
    /// [`Error::Unsupported`] if the device has no loops. [`Error::OutOfRange`] beyond the limits of a recording.
    pub fn record_repeat(&self, stream: &Stream, condition: &ScalarMemory<u32>) -> Result<Ticket> {
        let device = stream.device();
        if !stream.is_recording() {
            return Err(Misuse::NotRecording.into());
        }
        if !device.core().capabilities.loops {
            return Err(Error::unsupported(Feature::GraphLoop, &device.info().address));
        }
        let depth = self.nodes.iter().map(|node| depth(&node.work)).max().unwrap_or(0);
        let (given, limit) = (depth as u64 + 1, Limit::AtMost(MAX_LOOP_DEPTH as u64));
        limit.check("a loop inside a graph", Quantity::LoopDepth, given)?;
        let uploads = || self.kept.uploads.iter().flatten();
        if uploads().any(|upload| upload.slot.is_some()) {
            return Err(Misuse::HostSlotInLoop.into());
        }
        device.check_same("a buffer", condition.device())?;
        device.check_same("the body of a loop", self.device())?;
        let host = uploads().map(|upload| upload.block.clone()).collect();
        let host_bytes = uploads().map(|upload| upload.retained.host_bytes()).sum();
        let nodes = self.nodes.iter().map(|node| GraphNode {
            work: node.work.clone(),
            after: node.after.to_vec(),
            name: node.name.clone(),
        });
        let word = condition.buffer().allocation();
        let repeat = Repeat {
            condition: condition.as_slice().view().region(),
            body: Arc::new(Graph { nodes: nodes.collect(), host }),
            uses: self.accesses().into(),
        };
        let mut operands = self.operands();
        operands.push(Operand::new(word, 0..CONDITION_BYTES, Access::Read));
        let (held, kernels) = (self.kept.clone(), self.kernels.clone());
        let kept = LoopResources { held, kernels, host_bytes };
        stream
            .ordered()
            .record(|recorder| recorder.append_loop(device, stream.id(), repeat, &operands, kept))
    }
}
