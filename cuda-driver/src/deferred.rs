//! Deferrable submissions: the windows of the streams, and the calls that flush them.

use std::sync::Arc;

use cuda_core::{
    internals::sync::atomic::Ordering,
    protocol::{Error, HostBlock, ModuleId, Result, StreamId, Submission, Ticket},
};

use super::{
    backend::CudaBackend,
    context::Bound,
    graphs::Executable,
    streams::DriverStream,
    windows::{Due, Next, Shape, Window},
    work::{self, Place},
};

impl CudaBackend {
    /// Submits work that a window may hold.
    ///
    /// # Safety
    /// As for `Backend::submit_deferrable`.
    #[inline]
    pub(super) unsafe fn submit_to_window(
        &self,
        shape: Shape,
        submission: &Submission<'_>,
        host: &[Arc<HostBlock>],
    ) -> Result<()> {
        self.primary.alive()?;
        let Ticket { stream, number } = submission.ticket;
        // SAFETY: the caller retires no stream that the submission names until this returns.
        let stream = unsafe { self.streams.get(stream) }?;
        let place = Place { names: self.names(), stream };
        let mut window = stream.window();
        if window.begins_again(shape) {
            drop(window);
            self.end_part(stream)?;
            window = stream.window();
        }
        if window.is_empty() {
            stream.set_windowed(true);
            if stream.take_idle() {
                window.restart();
            }
        }
        match window.advance(shape) {
            Next::Hold(step) => {
                // SAFETY: no thread unloads the module of the launch before its ticket is complete.
                let node = unsafe { work::checked_node(place.names, submission.work, host) };
                let node = node.inspect_err(|_| window.leave())?;
                window.hold(step, node, number, submission.work);
            }
            Next::Submit => {
                let bound = &self.primary.bind()?;
                if window.holds_work() {
                    self.flush_window(stream, &mut window, bound)?;
                }
                // SAFETY: until this returns, no thread retires the stream, drops the graph or unloads the module that
                // the submission names. The blocks in `host` stay valid until the work is accepted or complete, and the
                // kernel stays inside the memory of its relocations.
                unsafe { work::enqueue(place, submission.work, host, bound) }?;
                stream.set_submitted(number);
            }
        }
        if window.is_full() {
            drop(window);
            return self.end_part(stream);
        }
        Ok(())
    }

    /// Records that no caller waits for these submissions. Those that are not held are not affected.
    pub(super) fn cancel_held(&self, stream: StreamId, first: u64, last: u64) {
        if let Ok(stream) = self.streams.find(stream)
            && stream.is_windowed()
        {
            stream.window().cancel(first, last);
        }
    }

    /// Ends a part of the window of a stream.
    fn end_part(&self, stream: &DriverStream) -> Result<()> {
        let bound = &self.primary.bind()?;
        self.flush_then(stream, bound, |window| window.end_part(self.primary, bound))
    }

    /// Ends the window of a stream.
    pub(super) fn end_window(&self, stream: &DriverStream, bound: &Bound) -> Result<()> {
        self.flush_then(stream, bound, |window| {
            window.end_part(self.primary, bound);
            stream.set_windowed(false);
        })
    }

    /// Passes the held work of a stream to the driver. The window of the stream stays open.
    pub(super) fn flush_held(&self, stream: &DriverStream, bound: &Bound) -> Result<()> {
        self.flush_then(stream, bound, |_| {})
    }

    /// Passes held work to the driver, up to a submission.
    #[inline]
    pub(super) fn flush_to(&self, stream: &DriverStream, number: u64, bound: &Bound) -> Result<()> {
        if stream.submitted() < number && stream.is_windowed() {
            return self.flush_held(stream, bound);
        }
        Ok(())
    }

    /// Passes the held work of every stream to the driver.
    pub(super) fn flush_all(&self, bound: &Bound) -> Result<()> {
        let streams = self.streams.all();
        let mut windowed = streams.iter().filter(|stream| stream.is_windowed());
        windowed.try_for_each(|stream| self.flush_held(stream, bound))
    }

    /// Forgets the windows with launches of a module, which is to be unloaded. Passes held work to the driver first: no
    /// launch of the module is held, because all of them are complete, but other work may be.
    pub(super) fn forget_windows_of(&self, module: ModuleId) {
        let bound = self.primary.bind();
        for stream in self.streams.all() {
            let Ok(bound) = &bound else { continue };
            // An error can only mean that the device is lost.
            _ = self.flush_then(&stream, bound, |window| window.forget_module(module));
        }
    }

    /// Flushes the held work of a stream, and then changes its window.
    fn flush_then(
        &self,
        stream: &DriverStream,
        bound: &Bound,
        then: impl FnOnce(&mut Window),
    ) -> Result<()> {
        let mut window = stream.window();
        let passed = if window.holds_work() {
            self.flush_window(stream, &mut window, bound)
        } else {
            Ok(())
        };
        then(&mut window);
        let frees = window.take_frees();
        drop(window);
        passed?;
        frees.into_iter().try_for_each(|free| self.free_now(stream, free, bound))
    }

    /// Passes the held work to the driver, or discards it if nothing can see its results.
    fn flush_window(
        &self,
        stream: &DriverStream,
        window: &mut Window,
        bound: &Bound,
    ) -> Result<()> {
        let number = window.last();
        let is_unseen = window.is_unseen()
            && !window.launched().any(|f| self.modules.may_have_other_effects(f));
        let flushed = if is_unseen {
            window.discard();
            Ok(None)
        } else {
            // SAFETY: frees of this stream are held, and frees of others come after a flush. So the memory that the
            // nodes name is alive. The modules are loaded (rule 4), and the caller holds the stream.
            unsafe { window.flush(stream.raw, self.primary, bound) }
        };
        match flushed {
            Ok(due) => {
                stream.set_submitted(number);
                if let Some(number) = window.take_report() {
                    // No caller waits for this report yet.
                    let stream = self.streams.find(stream.id);
                    _ = stream.and_then(|stream| self.reporter.want(&stream, number, bound));
                }
                due.map_or(Ok(()), |due| self.build(due))
            }
            Err(error) => Err(self.primary.lose_held(error)),
        }
    }

    /// Builds the graph of a window on the helper thread.
    fn build(&self, due: Due) -> Result<()> {
        let Due { nodes, modules, slot, has_built } = due;
        let held = modules.into_iter().map(|module| self.modules.hold(module));
        let (held, primary) = (held.collect::<Result<Vec<_>>>()?, self.primary);
        let unbuilt = (slot.clone(), has_built.clone());
        let build = move || {
            slot.end(Executable::new(primary, nodes));
            drop(held);
            has_built.store(true, Ordering::Release);
        };
        if let Err(error) = self.helper.run(build) {
            let (slot, has_built) = unbuilt;
            slot.end(Err(Error::host(
                "failed to start the helper thread that builds graphs",
                &error,
            )));
            has_built.store(true, Ordering::Release);
        }
        Ok(())
    }
}
