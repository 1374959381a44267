//! A subscriber of `tracing` that keeps the messages of events.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// The lines of one output of a worker, in order.
    pub fn of(&self, output: &str) -> Vec<String> {
        let prefix = format!("{output}: ");
        let lines = self.0.lock().expect("no test panicked with the lock");
        lines.iter().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("cuda_node")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(self));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a Lines);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.0.lock().expect("no test panicked with the lock").push(format!("{value:?}"));
        }
    }
}
