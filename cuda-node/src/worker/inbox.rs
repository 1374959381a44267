//! The incoming half of a lane: checks the numbers of the client's frames, and acknowledges them.

use std::sync::Arc;

use cuda_lease::{
    session::{Incoming, SessionError},
    wire::{Ack, Frame},
};

use super::{messages::Resume, outbox::Outbox};

/// The opcodes of messages between supervisor and worker.
const OF_SUPERVISOR: std::ops::Range<u16> = 0x0700..0x0800;

/// The frames that arrive on a lane.
pub(super) struct Inbox {
    /// `None` until the first connection of the client.
    incoming: Option<Incoming>,
    outbox: Arc<Outbox>,
}

impl Inbox {
    pub(super) fn new(outbox: Arc<Outbox>) -> Self {
        Self { incoming: None, outbox }
    }

    /// Takes a frame of the client or of the supervisor. Returns whether the caller carries it out: it is not for the
    /// lane itself, and has not arrived before.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub(super) fn take(&mut self, frame: &Frame<'_>) -> Result<bool, SessionError> {
        match frame.header.opcode {
            Resume::OPCODE => {
                let resume = Resume::decode(frame.body)?;
                let incoming = self.incoming.get_or_insert_with(|| Incoming::new(resume.epoch));
                self.outbox.resume(resume, incoming.received());
                Ok(false)
            }
            Ack::OPCODE => {
                self.outbox.acknowledge(Ack::decode(frame.body)?.received)?;
                Ok(false)
            }
            opcode if OF_SUPERVISOR.contains(&opcode) => Ok(true),
            _ => {
                let incoming = self.incoming.as_mut();
                let no_connection = || SessionError::Command("the lane is not attached".into());
                incoming.ok_or_else(no_connection)?.accept(&frame.header)
            }
        }
    }

    /// Acknowledges the frames that have arrived, if they are enough.
    pub(super) fn acknowledge(&mut self) {
        let incoming = self.incoming.as_mut();
        if let Some(received) = incoming.and_then(Incoming::acknowledgement) {
            self.outbox.push_acknowledgement(received);
        }
    }
}
