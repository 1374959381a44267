use cuda_core::protocol::{FunctionId, LaunchAttributes};

use super::*;

fn kernel(entry: u32) -> Shape {
    Shape::Launch(FunctionId { module: ModuleId(1), entry }, LaunchAttributes::NONE)
}

/// The first node and the length of each part of a window.
fn parts(shapes: impl Iterator<Item = Shape>) -> Vec<(usize, usize)> {
    let (mut window, mut parts, mut start) = (Window::default(), Vec::new(), 0);
    for (at, shape) in shapes.enumerate() {
        if window.begins_again(shape) {
            parts.push((start, at - start));
            start = at;
            window.next_part();
        }
        window.advance(shape);
        if window.is_full() {
            parts.push((start, at + 1 - start));
            start = at + 1;
            window.next_part();
        }
    }
    parts
}

#[test]
fn parts_grow() {
    let lengths: Vec<_> = parts([kernel(0); 300].into_iter()).iter().map(|part| part.1).collect();
    assert_eq!(lengths[..5], [16, 32, 64, 64, 64]);
}

/// Steps of 23 kernels: a first one, four layers of five, and two last ones. A fill comes before all of them.
#[test]
fn work_that_repeats_has_few_different_parts() {
    let step = (0..23).map(|at| match at {
        0 => kernel(100),
        21.. => kernel(200 + at),
        at => kernel((at - 1) % 5),
    });
    let shapes = std::iter::once(Shape::Fill(1)).chain(step.cycle().take(23 * 200));
    let parts = parts(shapes);
    let kinds: std::collections::HashSet<_> =
        parts.iter().skip(4).map(|(start, length)| ((start - 1) % 23, length)).collect();
    assert!(parts.len() > 90 && kinds.len() <= 4, "{kinds:?}");
    assert!(kinds.iter().all(|(_, length)| **length >= 32), "{kinds:?}");
}
