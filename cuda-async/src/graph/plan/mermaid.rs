//! A plan in the language of Mermaid.

use crate::graph::plan::{
    groups::{self, Step},
    label::lines,
    nodes::Plan,
};

impl Plan {
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
        groups::walk(self, |depth, step| {
            let indent = "  ".repeat(depth + 1);
            mermaid += &match step {
                Step::Node(index) => {
                    let lines = lines(index, &self.nodes()[index]);
                    let label: Vec<_> = lines.iter().map(|line| escaped(line)).collect();
                    format!("{indent}n{index}[\"{}\"]\n", label.join("<br/>"))
                }
                Step::Begin { number, name } => {
                    format!("{indent}subgraph g{number}[\"{}\"]\n", escaped(name))
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

/// A text inside double quotes: characters with a meaning become entity codes.
fn escaped(text: &str) -> String {
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
