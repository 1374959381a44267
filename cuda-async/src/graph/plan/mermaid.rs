//! A plan in the language of Mermaid.

use crate::graph::plan::{
    groups::{self, Group, Member},
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
        let mut mermaid = Mermaid { plan: self, text: String::from("flowchart TD\n"), groups: 0 };
        mermaid.members(&groups::of(self), 1);
        for (index, node) in self.nodes().iter().enumerate() {
            for before in node.after() {
                mermaid.text += &format!("  n{before} --> n{index}\n");
            }
        }
        mermaid.text
    }
}

struct Mermaid<'a> {
    plan: &'a Plan,
    text: String,
    groups: usize,
}

impl Mermaid<'_> {
    fn members(&mut self, group: &Group, depth: usize) {
        let indent = "  ".repeat(depth);
        for member in &group.members {
            match member {
                Member::Node(index) => {
                    let lines = lines(*index, &self.plan.nodes()[*index]);
                    let label: Vec<_> = lines.iter().map(|it| escaped(it)).collect();
                    self.text += &format!("{indent}n{index}[\"{}\"]\n", label.join("<br/>"));
                }
                Member::Group(inner) => {
                    let title = escaped(&inner.name);
                    self.text += &format!("{indent}subgraph g{}[\"{title}\"]\n", self.groups);
                    self.groups += 1;
                    self.members(inner, depth + 1);
                    self.text += &format!("{indent}end\n");
                }
            }
        }
    }
}

/// A text inside double quotes: characters with a meaning become entity codes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '"' | '#' | '&' | '<' | '>' | '`' | '\\' | ';' => {
                escaped += &format!("#{};", u32::from(it));
            }
            it => escaped.push(it),
        }
    }
    escaped
}
