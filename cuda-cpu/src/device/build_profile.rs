//! Reports a CPU device that was compiled without optimization.

use std::sync::Once;

/// Whether this crate was compiled with `opt-level = 0`, as a debug build does unless its profile says otherwise.
pub(super) const IS_UNOPTIMIZED: bool = cfg!(unoptimized);

static REPORTED: Once = Once::new();

/// Logs a warning if the crate is unoptimized, once in the process.
pub(super) fn report() {
    report_once(IS_UNOPTIMIZED, &REPORTED);
}

fn report_once(is_unoptimized: bool, reported: &Once) {
    if is_unoptimized {
        reported.call_once(|| {
            tracing::warn!(
                "the CPU device was compiled without optimization, and runs kernels up to a hundred times slower; \
                 build with `--release`, or add these lines to the `Cargo.toml` at the root of the workspace: \
                 `[profile.dev.package]`, `cuda-cpu.opt-level = 2`, `cuda-ptx.opt-level = 2`"
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fmt::Debug,
        sync::{Arc, Mutex},
    };

    use tracing::{
        Event, Metadata, Subscriber,
        field::{Field, Visit},
        span::{Attributes, Id, Record},
    };

    use super::*;

    /// Keeps the text of each event.
    #[derive(Clone, Default)]
    struct Events(Arc<Mutex<Vec<String>>>);

    impl Visit for Events {
        fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
            self.0.lock().unwrap_or_else(|held| held.into_inner()).push(format!("{value:?}"));
        }
    }

    impl Subscriber for Events {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// Returns the warnings of two devices that are opened one after the other.
    fn warnings(is_unoptimized: bool) -> Vec<String> {
        let (events, reported) = (Events::default(), Once::new());
        tracing::subscriber::with_default(events.clone(), || {
            report_once(is_unoptimized, &reported);
            report_once(is_unoptimized, &reported);
        });
        let seen = events.0.lock().unwrap_or_else(|held| held.into_inner());
        seen.clone()
    }

    #[test]
    fn unoptimized_build_is_reported_once_with_the_lines_to_add() {
        let warnings = warnings(true);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for line in ["[profile.dev.package]", "cuda-cpu.opt-level = 2", "cuda-ptx.opt-level = 2"] {
            assert!(warnings[0].contains(line), "{warnings:?}");
        }
    }

    #[test]
    fn optimized_build_is_not_reported() {
        assert!(warnings(false).is_empty());
    }
}
