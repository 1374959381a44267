//! A plan in the language of Graphviz.

use crate::graph::plan::{
    groups::{self, Group, Member},
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
        let mut dot = Dot { plan: self, text: String::from("digraph plan {\n"), clusters: 0 };
        dot.text += "  node [shape=box, fontname=\"monospace\"];\n";
        dot.members(&groups::of(self), 1);
        for (index, node) in self.nodes().iter().enumerate() {
            for before in node.after() {
                dot.text += &format!("  n{before} -> n{index};\n");
            }
        }
        dot.text + "}\n"
    }
}

struct Dot<'a> {
    plan: &'a Plan,
    text: String,
    clusters: usize,
}

impl Dot<'_> {
    fn members(&mut self, group: &Group, depth: usize) {
        let indent = "  ".repeat(depth);
        for member in &group.members {
            match member {
                Member::Node(index) => {
                    let lines = lines(*index, &self.plan.nodes()[*index]);
                    let label: Vec<_> = lines.iter().map(|it| escaped(it)).collect();
                    self.text += &format!("{indent}n{index} [label=\"{}\"];\n", label.join("\\n"));
                }
                Member::Group(inner) => {
                    self.text += &format!("{indent}subgraph cluster_{} {{\n", self.clusters);
                    self.text += &format!("{indent}  label=\"{}\";\n", escaped(&inner.name));
                    self.clusters += 1;
                    self.members(inner, depth + 1);
                    self.text += &format!("{indent}}}\n");
                }
            }
        }
    }
}

/// A text inside double quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
