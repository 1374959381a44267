//! A plan as text: one line for each node, or the language of Graphviz or Mermaid.

use std::{fmt, time::Duration};

use crate::graph::plan::nodes::{Plan, PlanNode, PlanWork, Step, walk};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, edges) = (counted(self.len(), "node"), counted(self.edges(), "edge"));
        write!(f, "plan: {nodes}, {edges}")?;
        let works: Vec<String> = self.nodes().iter().map(work).collect();
        let width = works.iter().map(|work| work.chars().count()).max().unwrap_or(0);
        let digits = self.len().saturating_sub(1).to_string().len();
        for (index, (node, work)) in self.nodes().iter().zip(&works).enumerate() {
            let mut line = format!("#{index:<digits$} {}", padded(work, width));
            if let Some(name) = node.name() {
                line += &format!("  {}", printable(name));
            }
            if !node.after().is_empty() {
                let after: Vec<_> =
                    node.after().iter().map(|number| format!("#{number}")).collect();
                line += &format!("  after {}", after.join(", "));
            }
            write!(f, "\n{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl Plan {
    /// Returns the plan in DOT, the language of Graphviz. `dot -Tsvg` draws it. Named operations are clusters.
    ///
    /// ```
    /// use cuda_async::{graph::PlanExt, prelude::*};
    /// let dot = zeros::<u32>(4).named("clear").plan()?.to_dot();
    /// assert!(dot.starts_with("digraph plan {") && dot.contains("#0 fill"));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph plan {\n  node [shape=box, fontname=\"monospace\"];\n");
        walk(self, |depth, step| {
            let indent = "  ".repeat(depth + 1);
            dot += &match step {
                Step::Node(index) => {
                    let lines = lines(index, &self.nodes()[index]);
                    let label: Vec<_> = lines.iter().map(|line| escaped(line)).collect();
                    format!("{indent}n{index} [label=\"{}\"];\n", label.join("\\n"))
                }
                Step::Begin { number, name } => {
                    let title = escaped(name);
                    format!("{indent}subgraph cluster_{number} {{\n{indent}  label=\"{title}\";\n")
                }
                Step::End => format!("{indent}}}\n"),
            };
        });
        for (index, node) in self.nodes().iter().enumerate() {
            for before in node.after() {
                dot += &format!("  n{before} -> n{index};\n");
            }
        }
        dot + "}\n"
    }

    /// Returns the plan in the language of Mermaid, which GitHub and many editors draw. Named operations are subgraphs.
    ///
    /// ```
    /// use cuda_async::{graph::PlanExt, prelude::*};
    /// let mermaid = zeros::<u32>(4).named("clear").plan()?.to_mermaid();
    /// assert!(mermaid.starts_with("flowchart TD\n") && mermaid.contains("subgraph g0[\"clear\"]"));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    pub fn to_mermaid(&self) -> String {
        let mut mermaid = String::from("flowchart TD\n");
        walk(self, |depth, step| {
            let indent = "  ".repeat(depth + 1);
            mermaid += &match step {
                Step::Node(index) => {
                    let lines = lines(index, &self.nodes()[index]);
                    let label: Vec<_> = lines.iter().map(|line| entities(line)).collect();
                    format!("{indent}n{index}[\"{}\"]\n", label.join("<br/>"))
                }
                Step::Begin { number, name } => {
                    format!("{indent}subgraph g{number}[\"{}\"]\n", entities(name))
                }
                Step::End => format!("{indent}end\n"),
            };
        });
        for (index, node) in self.nodes().iter().enumerate() {
            for before in node.after() {
                mermaid += &format!("  n{before} --> n{index}\n");
            }
        }
        mermaid
    }
}

fn work(node: &PlanNode) -> String {
    let parts = [Some(title(node.work())), Some(detail(node.work())), node.time().map(duration)];
    let parts: Vec<_> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}

/// A text inside double quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// A text inside double quotes: characters with a meaning become entity codes.
fn entities(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '#' | '&' | '<' | '>' | '`' | '\\' | ';' => {
                escaped += &format!("#{};", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

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
