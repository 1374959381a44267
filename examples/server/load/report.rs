//! The report in Markdown.

use std::fmt::{Display, Formatter, Result};

use crate::{
    target::value,
    work::{Kind, Measured, Together},
};

pub(crate) struct Report {
    pub(crate) alone: Measured,
    pub(crate) together: Together,
}

impl Report {
    /// Whether all valid requests got status 200 with the same answers, and all malformed ones a status of 4xx.
    pub(crate) fn is_good(&self) -> bool {
        let good = |measured: &Measured| {
            let expected = |(kind, status): &(Kind, u16)| match kind {
                Kind::Valid => *status == 200,
                Kind::Malformed => (400..500).contains(status),
            };
            measured.statuses.keys().all(expected) && measured.changed == 0 && measured.lost == 0
        };
        good(&self.alone) && good(&self.together.measured)
    }
}

fn latencies(f: &mut Formatter<'_>, name: &str, measured: &Measured) -> Result {
    let Some(times) = &measured.latencies else { return Ok(()) };
    let ms = |micros: u64| micros as f64 / 1000.0;
    let [p50, p99, max] =
        [times.value_at_quantile(0.5), times.value_at_quantile(0.99), times.max()].map(ms);
    let (count, seconds) = (times.len(), measured.took.as_secs_f64());
    let rate = count as f64 / seconds;
    writeln!(f, "| {name} | {count} | {seconds:.1} | {rate:.0} | {p50:.2} | {p99:.2} | {max:.2} |")
}

fn statuses(f: &mut Formatter<'_>, name: &str, measured: &Measured) -> Result {
    for ((kind, status), count) in &measured.statuses {
        let kind = match kind {
            Kind::Valid => "valid",
            Kind::Malformed => "malformed",
        };
        writeln!(f, "| {name} | {kind} | {status} | {count} |")?;
    }
    if measured.cancelled > 0 {
        writeln!(f, "| {name} | cancelled by the client | none | {} |", measured.cancelled)?;
    }
    writeln!(f, "| {name} | failed without a response | none | {} |", measured.lost)?;
    writeln!(f, "| {name} | valid, with another answer than before | | {} |", measured.changed)
}

fn memory(f: &mut Formatter<'_>, name: &str, [early, late]: [Option<u64>; 2]) -> Result {
    let (Some(early), Some(late)) = (early, late) else {
        return writeln!(f, "| {name} | not readable | | |");
    };
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let more = kib(late) - kib(early);
    writeln!(f, "| {name} | {:.1} | {:.1} | {more:+.1} |", kib(early), kib(late))
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Together { measured, connections, memory: [early, late], disconnected, metrics } =
            &self.together;
        let (alone, together) =
            ("one at a time".to_owned(), format!("from {connections} connections"));
        writeln!(f, "| valid requests | number | s | per s | p50 ms | p99 ms | max ms |")?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---:|")?;
        latencies(f, &alone, &self.alone)?;
        latencies(f, &together, measured)?;
        writeln!(f, "\n| requests | kind | status | number |\n|---|---|---|---:|")?;
        statuses(f, &alone, &self.alone)?;
        statuses(f, &together, measured)?;
        writeln!(
            f,
            "\n| memory, KiB | after 10% | after 100% | difference |\n|---|---:|---:|---:|"
        )?;
        memory(f, "resident, of the server's process", [early.resident, late.resident])?;
        memory(f, "of the device", [early.device, late.device])?;
        writeln!(f, "\n| server | |\n|---|---:|")?;
        writeln!(f, "| disconnections of the client that never reads | {disconnected} |")?;
        let count = |name: &str| value(metrics, name).unwrap_or_default();
        let batches = count("digits_batch_requests_count");
        let mean = count("digits_batch_requests_sum") / batches.max(1.0);
        writeln!(f, "| batches | {batches} |")?;
        writeln!(f, "| requests in a batch, mean | {mean:.1} |")?;
        let cancelled = count("digits_requests_total{outcome=\"cancelled\"}");
        writeln!(f, "| requests that were cancelled after their handler began | {cancelled} |")?;
        let dropped = count("digits_dropped_total");
        writeln!(f, "| requests dropped from a batch before the device | {dropped} |")
    }
}
