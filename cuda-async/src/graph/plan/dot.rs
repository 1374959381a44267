//! A plan in the language of Graphviz.

use crate::graph::plan::{
    groups::{self, Step},
    label::lines,
    nodes::Plan,
};

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
        groups::walk(self, |depth, step| {
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
}

/// A text inside double quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
