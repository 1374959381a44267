//! A plan as text, one line for each node.

use std::fmt;

use crate::graph::plan::{
    label::{counted, detail, duration, padded, printable, title},
    nodes::{Plan, PlanNode},
};

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

fn work(node: &PlanNode) -> String {
    let parts = [Some(title(node.work())), Some(detail(node.work())), node.time().map(duration)];
    let parts: Vec<_> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}
