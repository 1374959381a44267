//! The texts of nodes.

use std::time::Duration;

use crate::graph::plan::nodes::{PlanNode, PlanWork};

/// The first line of a node: the kind of work, and the kernel.
pub(in crate::graph) fn title(work: &PlanWork) -> String {
    match work {
        PlanWork::Join => "join".into(),
        PlanWork::Upload { .. } => "upload".into(),
        PlanWork::Copy { .. } => "copy".into(),
        PlanWork::Fill { .. } => "fill".into(),
        PlanWork::Timestamp => "timestamp".into(),
        PlanWork::Launch { kernel, .. } => format!("launch {}", printable(kernel)),
        PlanWork::Loop { .. } => "loop".into(),
        PlanWork::Other => "other work".into(),
    }
}

/// The numbers of a node: bytes, or grid and block. Empty for work without numbers.
pub(super) fn detail(work: &PlanWork) -> String {
    match work {
        PlanWork::Upload { bytes } | PlanWork::Copy { bytes } | PlanWork::Fill { bytes } => {
            bytes_text(*bytes)
        }
        PlanWork::Launch { grid, block, shared_bytes, .. } => {
            let shape = format!("grid {}, block {}", dimensions(*grid), dimensions(*block));
            match shared_bytes {
                0 => shape,
                bytes => format!("{shape}, shared {}", bytes_text(u64::from(*bytes))),
            }
        }
        PlanWork::Loop { nodes } => format!("{} a pass", counted(*nodes, "node")),
        PlanWork::Join | PlanWork::Timestamp | PlanWork::Other => String::new(),
    }
}

/// The lines of the box of a node.
pub(super) fn lines(index: usize, node: &PlanNode) -> Vec<String> {
    let mut lines = vec![format!("#{index} {}", title(node.work()))];
    let detail = detail(node.work());
    if !detail.is_empty() {
        lines.push(detail);
    }
    lines.extend(node.time().map(duration));
    lines
}

/// A time with three or more digits.
pub(in crate::graph) fn duration(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        ..1e3 => format!("{micros:.2} us"),
        ..1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// A count and its noun, in the plural unless the count is 1.
pub(in crate::graph) fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// A text of at least `width` characters.
pub(in crate::graph) fn padded(text: &str, width: usize) -> String {
    format!("{text:<width$}")
}

/// The text in one line: control characters become spaces.
pub(in crate::graph) fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Leaves out the dimensions that are 1, except the first.
fn dimensions([x, y, z]: [u32; 3]) -> String {
    match (y, z) {
        (1, 1) => x.to_string(),
        (y, 1) => format!("{x}x{y}"),
        (y, z) => format!("{x}x{y}x{z}"),
    }
}

fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10) as usize;
    format!("{:.1} {}", bytes as f64 / (1u64 << (10 * power)) as f64, UNITS[power - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        let bytes = [0, 1023, 1024, 1536, 1 << 30, u64::MAX].map(bytes_text);
        assert_eq!(bytes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 GiB", "16.0 EiB"]);
        let shapes = [[7, 1, 1], [7, 2, 1], [7, 1, 3]].map(dimensions);
        assert_eq!(shapes, ["7", "7x2", "7x1x3"]);
        let times = [0, 1_500, 2_500_000, 61_000_000_000].map(Duration::from_nanos).map(duration);
        assert_eq!(times, ["0.00 us", "1.50 us", "2.50 ms", "61.00 s"]);
        assert_eq!([0, 1, 2].map(|count| counted(count, "node")), ["0 nodes", "1 node", "2 nodes"]);
    }

    #[test]
    fn printable_text_is_one_line() {
        assert_eq!(printable("a\nb\r\u{0}c\u{1b}"), "a b  c ");
    }
}
