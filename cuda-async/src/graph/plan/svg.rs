//! A plan as a picture.

use std::fmt::Write;

use crate::graph::plan::{
    layout::{GAP_Y, GroupBox, Layout, NodeSize, is_implied},
    nodes::{Plan, PlanNode, PlanWork, tree_of},
    text::{lines, printable},
};

/// The height of a line of text, in pixels.
const LINE: usize = 16;
/// The maximum number of characters of a line in a box. Longer lines end with an ellipsis.
const MAX_CHARS: usize = 44;

impl Plan {
    /// Returns the plan as an SVG picture with a light background. Nodes lie below the nodes that come before them, and
    /// named operations are boxes around theirs. Nodes without predecessors are at the top. Edges that other edges
    /// imply are left out.
    ///
    /// ```
    /// use cuda_async::{graph::PlanExt, prelude::*};
    /// let svg = zeros::<u32>(4).named("clear").plan()?.to_svg();
    /// assert!(svg.starts_with("<svg ") && svg.contains(">clear</text>"));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    pub fn to_svg(&self) -> String {
        let texts: Vec<_> =
            self.nodes().iter().enumerate().map(|(at, node)| lines(at, node)).collect();
        let size = node_size(&texts);
        let layout = Layout::new(self, &tree_of(self), size);
        let mut svg = Svg { text: String::new(), layout: &layout, size };
        svg.begin(self);
        layout.groups.iter().for_each(|group| svg.group(group));
        for (index, node) in self.nodes().iter().enumerate() {
            let before = node.after().iter().map(|before| *before as usize);
            let drawn = before.filter(|before| !is_implied(self, *before, index));
            drawn.for_each(|before| svg.edge(before, index));
        }
        layout.groups.iter().for_each(|group| svg.title(group));
        for (index, (node, lines)) in self.nodes().iter().zip(&texts).enumerate() {
            svg.node(index, node, lines);
        }
        svg.text + "</svg>\n"
    }
}

/// The size that holds the texts of every node.
fn node_size(texts: &[Vec<String>]) -> NodeSize {
    let chars = texts.iter().flatten().map(|line| line.chars().count()).max().unwrap_or(0);
    let lines = texts.iter().map(Vec::len).max().unwrap_or(1);
    // A character of the font is 7.2 pixels wide.
    NodeSize { width: chars.min(MAX_CHARS) * 36 / 5 + 20, height: lines * LINE + 12 }
}

struct Svg<'a> {
    text: String,
    layout: &'a Layout,
    size: NodeSize,
}

impl Svg<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        _ = writeln!(self.text, "{line}");
    }

    fn begin(&mut self, plan: &Plan) {
        let title_width = self.layout.groups.iter().map(right_of_title).max().unwrap_or(0);
        let (width, height) = (self.layout.width.max(title_width), self.layout.height);
        self.line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"12\" fill=\"#1f2328\">"
        ));
        self.line(format_args!(
            "<title>A plan of {} nodes and {} edges</title>",
            plan.len(),
            plan.edges()
        ));
        self.line(format_args!(
            "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
             orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#57606a\"/></marker></defs>"
        ));
        self.line(format_args!("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"));
    }

    fn group(&mut self, group: &GroupBox) {
        let GroupBox { x, y, width, height, .. } = group;
        self.line(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#f6f4ec\" stroke=\"#b3a67d\"/>"
        ));
    }

    /// The title of a group, with a margin that hides the edges behind it.
    fn title(&mut self, group: &GroupBox) {
        let (x, y, name) = (group.x + 8, group.y + 15, escaped(&shortened(&group.name)));
        self.line(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-weight=\"bold\" fill=\"#5f5530\" stroke=\"#f6f4ec\" stroke-width=\"4\" \
             paint-order=\"stroke\">{name}</text>"
        ));
    }

    fn edge(&mut self, from: usize, to: usize) {
        let NodeSize { width, height } = self.size;
        let ((x1, y1), (x2, y2)) = (self.layout.nodes[from], self.layout.nodes[to]);
        let (x1, y1, x2) = (x1 + width / 2, y1 + height, x2 + width / 2);
        let path = match self.layout.lane(from, to) {
            Some(lane) => {
                let (begin, end) = (y1 + GAP_Y, y2 - GAP_Y);
                let out = format!("M{x1} {y1}C{x1} {} {lane} {} {lane} {begin}", y1 + 24, y1 + 10);
                format!("{out}L{lane} {end}C{lane} {} {x2} {} {x2} {y2}", y2 - 10, y2 - 24)
            }
            None => {
                let middle = y1 + (y2 - y1) / 2;
                format!("M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}")
            }
        };
        self.line(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"#57606a\" marker-end=\"url(#arrow)\"/>"
        ));
    }

    fn node(&mut self, index: usize, node: &PlanNode, lines: &[String]) {
        let (x, y) = self.layout.nodes[index];
        let NodeSize { width, height } = self.size;
        let (fill, stroke) = colors(node.work());
        self.line(format_args!("<g><title>{}</title>", escaped(&described(node, lines))));
        self.line(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
        ));
        let above = (height - lines.len() * LINE) / 2;
        for (at, line) in lines.iter().enumerate() {
            let (x, y) = (x + 10, y + above + at * LINE + 12);
            let text = escaped(&shortened(line));
            self.line(format_args!("<text x=\"{x}\" y=\"{y}\">{text}</text>"));
        }
        self.line(format_args!("</g>"));
    }
}

/// The right end of the title of a group, in pixels. A title may be wider than its box.
fn right_of_title(group: &GroupBox) -> usize {
    group.x + group.name.chars().count().min(MAX_CHARS) * 36 / 5 + 24
}

/// The whole text of a node, which viewers show under the pointer.
fn described(node: &PlanNode, lines: &[String]) -> String {
    let text = lines.join(", ");
    node.name().map_or_else(|| text.clone(), |name| format!("{}: {text}", printable(name)))
}

/// The fill and the stroke of the box of a node.
fn colors(work: &PlanWork) -> (&'static str, &'static str) {
    match work {
        PlanWork::Launch { .. } => ("#e7f0fc", "#3b6ea5"),
        PlanWork::Upload { .. } | PlanWork::Copy { .. } | PlanWork::Fill { .. } => {
            ("#e8f5e9", "#4b8152")
        }
        PlanWork::Join | PlanWork::Timestamp => ("#f3f4f6", "#8a9099"),
        PlanWork::Loop { .. } | PlanWork::Other => ("#fdf0e1", "#b0763a"),
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= MAX_CHARS {
        return text.into();
    }
    text.chars().take(MAX_CHARS - 1).chain(['\u{2026}']).collect()
}

/// A text inside an element. Its control characters were replaced before.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
