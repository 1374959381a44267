//! Drawings of plans: text, DOT, Mermaid and SVG.

use std::time::{Duration, Instant};

use cuda_async::{
    Device, LaunchConfig,
    cuda_cpu::CpuProvider,
    graph::{CudaGraph, DeviceScalar, Plan, PlanExt, record},
    launch,
    memory::{copy, fill},
    prelude::*,
};

use crate::kernels::Kernels;

fn device() -> Device {
    Device::open(&CpuProvider::default(), 0).unwrap()
}

/// Two inputs are prepared at the same time, and then used together. Its parts have names.
fn fork() -> Plan {
    let prepared = |name, value| zeros::<u8>(1 << 20).then(move |x| fill(x, value)).named(name);
    let both = zip!(prepared("keys", 1), prepared("values", 2)).named("inputs");
    let op = both.then(|(keys, values)| copy(keys, values).named("score")).named("attention");
    op.plan_on(&device()).unwrap()
}

/// The program of the chapter "Plans, names, traces and times" of the book.
fn attention() -> Plan {
    let device = device();
    let kernels = Kernels::load(&device);
    let [add, scale] = [kernels.clone(), kernels];
    let keys = h2d(vec![1.0f32; 4096]).named("keys");
    let values = zeros::<f32>(4096).named("values");
    let scores = zip!(keys, values).named("inputs");
    let scores = scores.then(move |(keys, values)| add.add(keys, values).named("score"));
    let op = scores.then(move |x| scale.scale(x, 0.125).named("scale")).named("attention");
    op.plan_on(&device).unwrap()
}

#[test]
fn fork_is_drawn_as_text() {
    let expected = "\
plan: 6 nodes, 5 edges
#0 fill, 1.0 MiB  attention/inputs/keys
#1 fill, 1.0 MiB  attention/inputs/keys  after #0
#2 fill, 1.0 MiB  attention/inputs/values
#3 fill, 1.0 MiB  attention/inputs/values  after #2
#4 join           attention/inputs  after #1, #3
#5 copy, 1.0 MiB  attention/score  after #4";
    assert_eq!(fork().to_string(), expected);
}

#[test]
fn fork_is_drawn_as_dot() {
    let expected = r##"digraph plan {
  node [shape=box, fontname="monospace"];
  subgraph cluster_0 {
    label="attention";
    subgraph cluster_1 {
      label="inputs";
      subgraph cluster_2 {
        label="keys";
        n0 [label="#0 fill\n1.0 MiB"];
        n1 [label="#1 fill\n1.0 MiB"];
      }
      subgraph cluster_3 {
        label="values";
        n2 [label="#2 fill\n1.0 MiB"];
        n3 [label="#3 fill\n1.0 MiB"];
      }
      n4 [label="#4 join"];
    }
    subgraph cluster_4 {
      label="score";
      n5 [label="#5 copy\n1.0 MiB"];
    }
  }
  n0 -> n1;
  n2 -> n3;
  n1 -> n4;
  n3 -> n4;
  n4 -> n5;
}
"##;
    assert_eq!(fork().to_dot(), expected);
}

#[test]
fn fork_is_drawn_as_mermaid() {
    let expected = r##"flowchart TD
  subgraph g0["attention"]
    subgraph g1["inputs"]
      subgraph g2["keys"]
        n0["#35;0 fill<br/>1.0 MiB"]
        n1["#35;1 fill<br/>1.0 MiB"]
      end
      subgraph g3["values"]
        n2["#35;2 fill<br/>1.0 MiB"]
        n3["#35;3 fill<br/>1.0 MiB"]
      end
      n4["#35;4 join"]
    end
    subgraph g4["score"]
      n5["#35;5 copy<br/>1.0 MiB"]
    end
  end
  n0 --> n1
  n2 --> n3
  n1 --> n4
  n3 --> n4
  n4 --> n5
"##;
    assert_eq!(fork().to_mermaid(), expected);
}

/// The first program of the chapter "Graphs" of the book: a graph with a fork.
fn graph_with_a_fork() -> Plan {
    let stream = device().new_stream().unwrap();
    let kernels = Kernels::load(stream.device());
    let scaled = |value: f32, factor| {
        let kernels = kernels.clone();
        h2d(vec![value; 1024]).then(move |x| kernels.scale(x, factor))
    };
    let both = zip!(scaled(1.0, 2.0).named("left"), scaled(10.0, 0.5).named("right"));
    let sum = both.then(|(a, b)| kernels.add(a, b).named("sum"));
    sum.graph_on(&stream).unwrap().plan()
}

/// A step of the last program of that chapter, which decodes tokens.
fn step_of_a_decoder() -> Plan {
    let stream = device().new_stream().unwrap();
    let ptx = include_str!("../../../examples/decode/kernels/decode.ptx");
    let module = stream.device().load_ptx_blocking(ptx).unwrap();
    let [embed, project_logits, choose] =
        ["embed", "project_logits", "choose"].map(|name| module.function(name).unwrap());
    let halves = |n| zeros::<half::f16>(n).sync_on(&stream).unwrap();
    let [embedding, positions, gain, head] = [96 * 128, 256 * 128, 128, 96 * 128].map(halves);
    let words = |n| zeros::<u32>(n).sync_on(&stream).unwrap();
    let (mut tokens, lengths) = (words(256), words(1));
    let [mut x, mut logits] = [128, 96].map(|n| zeros::<f32>(n).sync_on(&stream).unwrap());
    let position = DeviceScalar::new(0u32).sync_on(&stream).unwrap();
    let (block, warps) = (LaunchConfig::new(1, 128), LaunchConfig::new(24, 128));
    let step = CudaGraph::scope(&stream, |scope| {
        // SAFETY: the graph is never launched.
        unsafe {
            let args = (&tokens, &position, &embedding, &positions, &mut x);
            scope.record(launch(&embed, block, args).named("read"))?;
            let args = (&x, &gain, &head, &mut logits);
            scope.record(launch(&project_logits, warps, args).named("score"))?;
            let args = (&logits, &lengths, &mut tokens, position.writable(), 1u32);
            scope.record(launch(&choose, block, args).named("choose"))?;
        }
        Ok(())
    });
    step.unwrap().plan()
}

/// The committed pictures are what the library draws. To change one, copy the file that this test writes.
#[test]
fn pictures_of_the_book_are_the_drawings() {
    let committed = [
        ("attention.svg", attention(), include_str!("../../../book/src/pictures/attention.svg")),
        (
            "graph-fork.svg",
            graph_with_a_fork(),
            include_str!("../../../book/src/pictures/graph-fork.svg"),
        ),
        (
            "graph-decode.svg",
            step_of_a_decoder(),
            include_str!("../../../book/src/pictures/graph-decode.svg"),
        ),
    ];
    let changed = committed.iter().filter_map(|(name, plan, committed)| {
        let drawn = plan.to_svg();
        (drawn != *committed).then(|| {
            let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            std::fs::write(&path, drawn).unwrap();
            path
        })
    });
    let changed: Vec<_> = changed.collect();
    assert!(changed.is_empty(), "drawings have changed: copy {changed:?} to book/src/pictures/");
}

/// Boxes of nodes do not overlap, and a box of a group contains its own nodes and no others.
#[test]
fn boxes_of_groups_contain_their_nodes_only() {
    let svg = attention().to_svg();
    let rects: Vec<[i64; 4]> = svg.lines().filter_map(rect).collect();
    let (groups, nodes) = rects.split_at(rects.len() - attention().len());
    assert_eq!(groups.len(), 6, "attention, inputs, keys, values, score, scale");
    // In the order of the groups: the numbers of nodes inside.
    let inside = |outer: &[i64; 4]| nodes.iter().filter(|node| contains(outer, node)).count();
    let touched = |outer: &[i64; 4]| nodes.iter().filter(|node| overlap(outer, node)).count();
    let counts: Vec<_> = groups.iter().map(inside).collect();
    assert_eq!(counts, [6, 3, 1, 1, 2, 1]);
    assert_eq!(groups.iter().map(touched).collect::<Vec<_>>(), counts);
    for (at, node) in nodes.iter().enumerate() {
        assert!(nodes[..at].iter().all(|other| !overlap(node, other)), "node {at}");
    }
}

/// The place and the size of a box: the numbers of a line that begins with them.
fn rect(line: &str) -> Option<[i64; 4]> {
    line.strip_prefix("<rect x=")?;
    let numbers: Vec<_> = line.split('"').filter_map(|part| part.parse().ok()).take(4).collect();
    numbers.try_into().ok()
}

fn contains(outer: &[i64; 4], inner: &[i64; 4]) -> bool {
    let within = |axis: usize| {
        outer[axis] <= inner[axis] && inner[axis] + inner[axis + 2] <= outer[axis] + outer[axis + 2]
    };
    within(0) && within(1)
}

fn overlap(one: &[i64; 4], other: &[i64; 4]) -> bool {
    let apart = |axis: usize| {
        one[axis] + one[axis + 2] <= other[axis] || other[axis] + other[axis + 2] <= one[axis]
    };
    !apart(0) && !apart(1)
}

/// A name can neither end a string nor begin an element, a line or a statement.
#[test]
fn hostile_names_are_escaped() {
    const NAME: &str = "a\"]; n9 [label=\"\\<script>&\n-->#`;\u{0}";
    let plan = zeros::<u8>(4).named(NAME).plan_on(&device()).unwrap();
    assert_eq!(plan.nodes()[0].name(), Some(NAME));
    let dot = plan.to_dot();
    assert!(dot.contains(r##"label="a\"]; n9 [label=\"\\<script>& -->#`; ";"##), "{dot}");
    assert_eq!(dot.lines().count(), 7, "{dot}");
    let mermaid = plan.to_mermaid();
    let escaped = "g0[\"a#34;]#59; n9 [label=#34;#92;#60;script#62;#38; --#62;#35;#96;#59; \"]";
    assert!(mermaid.contains(escaped), "{mermaid}");
    assert_eq!(mermaid.lines().count(), 4, "{mermaid}");
    let svg = plan.to_svg();
    let escaped = ">a&quot;]; n9 [label=&quot;\\&lt;script&gt;&amp; --&gt;#`; </text>";
    assert!(svg.contains(escaped) && !svg.contains("<script"), "{svg}");
    assert!(!svg.contains('\u{0}'));
    assert_eq!(plan.to_string().lines().count(), 2);
}

#[test]
fn deep_names_and_long_names_are_drawn() {
    const DEEP: &str = concat!("a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u", "/////////////////");
    let plan = zeros::<u8>(4).named(DEEP).plan_on(&device()).unwrap();
    assert_eq!(plan.to_dot().matches("subgraph").count(), 16);
    assert!(plan.to_dot().contains("label=\"p/q/r/s/t/u/"));
    const LONG: &str = "a name of more than forty-four characters is shortened";
    let svg = zeros::<u8>(4).named(LONG).plan_on(&device()).unwrap().to_svg();
    assert!(svg.contains(">a name of more than forty-four characters i\u{2026}</text>"), "{svg}");
    assert!(svg.contains("<title>a name of more than forty-four characters is shortened: "));
}

#[test]
fn empty_plans_are_drawn() {
    let plan = value(1).plan_on(&device()).unwrap();
    assert!(plan.is_empty());
    assert_eq!(plan, Plan::default());
    assert_eq!(plan.to_string(), "plan: 0 nodes, 0 edges");
    assert_eq!(plan.to_mermaid(), "flowchart TD\n");
    assert!(plan.to_dot().ends_with("];\n}\n"));
    let svg = plan.to_svg();
    assert!(svg.contains("width=\"32\" height=\"32\"") && svg.ends_with("</svg>\n"), "{svg}");
}

/// An edge over several ranks does not run behind the nodes between.
#[test]
fn long_edges_pass_the_nodes_between() {
    let stream = device().new_stream().unwrap();
    let [a, b] = [(); 2].map(|()| zeros::<u8>(8).sync_on(&stream).unwrap());
    // The last copy reads `a`, and writes `b` behind two other writers.
    let op = fill(a, 1).then(move |a| fill(b, 2).map(|b| (a, b)));
    let op = op.then(|(a, b)| fill(b, 3).map(|b| (a, b))).then(|(a, b)| copy(a, b));
    let plan = op.plan_on(stream.device()).unwrap();
    assert_eq!(plan.nodes()[3].after(), [0, 2]);
    let svg = plan.to_svg();
    assert_eq!(svg.matches("<path d=\"M").count() - 1, plan.edges(), "{svg}");
    // Node 2 lies between the ends of the edge, from x = 63 to 133.
    assert!(svg.contains("<rect x=\"63\" y=\"94\" width=\"70\""), "{svg}");
    assert!(
        svg.contains("<path d=\"M51 60C51 84 51 70 51 94L51 138C51 162 98 148 98 172\""),
        "{svg}"
    );
}

/// The sum comes after both inputs and after its own fill. That comes after the inputs already.
#[test]
fn implied_edges_are_left_out_of_pictures() {
    let device = device();
    let kernels = Kernels::load(&device);
    let op = zip!(zeros::<f32>(8), zeros::<f32>(8)).then(move |(a, b)| kernels.add(a, b));
    let plan = op.plan_on(&device).unwrap();
    assert_eq!(plan.nodes()[4].after(), [0, 1, 3]);
    let drawn = |plan: &Plan| plan.to_svg().matches("<path d=\"M").count() - 1;
    assert_eq!((plan.edges(), drawn(&plan)), (6, 4));
    assert_eq!((fork().edges(), drawn(&fork())), (5, 5));
}

/// A chain of named steps, and as many branches: 10,000 nodes each. The limit of 20 s allows for a busy machine and a
/// build without optimization, which took 1 to 4 s.
#[test]
fn drawings_of_ten_thousand_nodes_take_bounded_time() {
    const NODES: usize = 10_000;
    const NAMES: [&str; 3] = ["a/b", "a/c", "d"];
    let device = device();
    let chain = cuda_async::iterate(None, |state: Option<(_, usize)>| {
        let (x, turn) = state.unwrap_or_else(|| (None, 0));
        let op = match x {
            None => zeros::<u8>(8).boxed(),
            Some(x) => fill(x, 1).boxed(),
        };
        op.named(NAMES[turn % 3]).map(move |x| match turn + 1 {
            NODES => std::ops::ControlFlow::Break(x),
            turn => std::ops::ControlFlow::Continue(Some((Some(x), turn))),
        })
    });
    let chain = chain.plan_on(&device).unwrap();
    let branches = cuda_async::join_all((1..NODES).map(|at| zeros::<u8>(8).named(NAMES[at % 3])));
    let branches = Plan::from(record(branches, &device).unwrap().recording());
    assert_eq!((chain.len(), branches.len()), (NODES, NODES));
    let begin = Instant::now();
    for plan in [&chain, &branches] {
        let svg = plan.to_svg();
        assert_eq!(svg.matches("<g>").count(), NODES);
        assert_eq!(plan.to_dot().matches(" -> ").count(), plan.edges());
        assert_eq!(plan.to_mermaid().matches(" --> ").count(), plan.edges());
        assert_eq!(plan.to_string().lines().count(), NODES + 1);
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}
