//! Loops: a recording as the body of a loop inside another recording.

use std::sync::Arc;

use super::recording::Recording;
use crate::{
    handle::{
        memory::ScalarMemory,
        stream::{LoopResources, Operand, Stream},
    },
    protocol::{Access, CONDITION_BYTES, Error, Graph, GraphNode, Repeat, Result, Ticket, Work},
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
            let detail =
                "the stream belongs to no recording; record the loop on a stream of a recording"
                    .into();
            return Err(Error::Misuse { what: "a loop".into(), detail });
        }
        if !device.core().capabilities.loops {
            return Err(Error::unsupported("a loop inside a graph", &device.info().address));
        }
        let depth = body.nodes.iter().map(|it| depth(&it.work)).max().unwrap_or(0);
        if depth >= MAX_LOOP_DEPTH {
            let detail = format!(
                "it is the outermost of {} loops, and {MAX_LOOP_DEPTH} is the limit",
                depth + 1
            );
            return Err(Error::OutOfRange { what: "a loop inside a graph".into(), detail });
        }
        let uploads = || body.kept.uploads.iter().flatten();
        if uploads().any(|it| it.slot.is_some()) {
            let detail = "it is inside a loop of a graph; upload before the loop, and pass the buffer into the loop";
            let what = "an upload from a host slot".into();
            return Err(Error::Misuse { what, detail: detail.into() });
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
