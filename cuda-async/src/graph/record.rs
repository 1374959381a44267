//! `record`: records an operation.

use cuda_core::{Device, Result, Stream, Ticket, internals::Recording};

use crate::{op::IntoDeviceOp, run::blocking};

/// Records an operation: runs its closures once, now, and keeps its work to be [replayed](Recorded::replay). Nothing
/// runs on the device before the first replay.
///
/// - Every replay uses again the buffers that the operation uses and those that it allocates. The recording keeps them
///   alive. Buffers that the operation allocates have unspecified contents before the first replay.
/// - Uploads keep a copy of their bytes, which every replay uploads again.
/// - Branches of `zip!` and `join_all`, and work without common data, have no order among them in the recording.
///   Kernels of modules that declare variables keep the order of their branch, because they may share these or print.
/// - A `shared` operation that has already run is an input. A `shared` operation that first runs here runs only in
///   replays, so its clones return an error outside the recording.
///
/// Pins host memory for uploads if no idle memory is left, so this call may block while the driver pins memory.
///
/// ```
/// use cuda_async::{graph::record, memory::fill, open_blocking, prelude::*};
/// let device = open_blocking("cpu")?;
/// let stream = device.new_stream()?;
/// let mut x = zeros::<u32>(4).sync_on(&stream)?;
/// let (_, recording) = record(fill(&mut x, 7), &device)?.into_parts();
/// assert_eq!(to_host(&x).sync_on(&stream)?, [0; 4]);
/// recording.replay(&stream)?;
/// assert_eq!(to_host(&x).sync_on(&stream)?, [7; 4]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::NeedsHostData`](crate::Error::NeedsHostData) if a step waits for the device, as `to_host` and `settled` do;
/// [`Error::Unsupported`](crate::Error::Unsupported) for foreign submissions if the device is not a GPU of this
/// process, and for loops on a device without loops; [`Error::OutOfRange`](crate::Error::OutOfRange) beyond the limits
/// of a recording; otherwise the error of a step.
pub fn record<O: IntoDeviceOp>(op: O, device: &Device) -> Result<Recorded<O::Output>> {
    let stream = Recording::start(device, None)?;
    let output = blocking::submit_only(op.into_op().into_steps(), stream.clone())?;
    let recording = Recording::end(&stream)?;
    Ok(Recorded { output, recording })
}

/// A recorded operation: its work, and the output that it gave while it was recorded.
#[derive(Debug)]
pub struct Recorded<T> {
    output: T,
    recording: Recording,
}

impl<T> Recorded<T> {
    /// The output. Device memory in it holds its values after a [`replay`](Self::replay).
    pub fn output(&self) -> &T {
        &self.output
    }

    /// The recorded work.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// The output and the recorded work. Each replay writes the memory of the output again.
    pub fn into_parts(self) -> (T, Recording) {
        (self.output, self.recording)
    }

    /// Submits the recorded work to `stream` and returns without waiting. To wait, run an operation that uses the
    /// memory of the output, such as `to_host(recorded.output())`, or synchronize the stream. Other uses of the same
    /// memory, on every stream and through every handle, are ordered before or after the whole replay.
    ///
    /// # Errors
    /// The errors of [`Recording::replay`].
    pub fn replay(&self, stream: &Stream) -> Result<Ticket> {
        self.recording.replay(stream)
    }
}
