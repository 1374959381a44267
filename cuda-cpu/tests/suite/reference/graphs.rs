//! Graphs, and threads that cooperate.

use super::{Data, Reference, of_u32};

pub(super) const ALL: &[(&str, Reference)] = &[
    ("bfs", bfs),
    ("shortest_paths", shortest_paths),
    ("components", components),
    ("spin_lock", spin_lock),
    ("producer_consumer", producer_consumer),
    ("block_votes", block_votes),
    ("double_buffer", double_buffer),
    ("split_barrier", split_barrier),
    ("bit_transpose", bit_transpose),
    ("votes", votes),
    ("reductions", reductions),
];

fn bfs(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (rows, columns, n) = (d.u32s(0), d.u32s(1), d.scalar(4));
    let mut levels = vec![u32::MAX; n];
    levels[0] = 0;
    let mut queue = vec![0];
    let mut next = 0;
    while next < queue.len() {
        let v = queue[next];
        next += 1;
        for &to in &columns[rows[v] as usize..rows[v + 1] as usize] {
            let to = to as usize;
            if levels[to] == u32::MAX {
                levels[to] = levels[v] + 1;
                queue.push(to);
            }
        }
    }
    vec![of_u32(&levels)]
}

/// The Bellman-Ford algorithm.
fn shortest_paths(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (rows, columns, weights, n) = (d.u32s(0), d.u32s(1), d.u32s(2), d.scalar(4));
    let mut distances = vec![u32::MAX; n];
    distances[0] = 0;
    for _ in 0..n {
        for v in (0..n).filter(|&v| rows[v] < rows[v + 1]) {
            if distances[v] == u32::MAX {
                continue;
            }
            for i in rows[v] as usize..rows[v + 1] as usize {
                let to = columns[i] as usize;
                distances[to] = distances[to].min(distances[v] + weights[i] + 1);
            }
        }
    }
    vec![of_u32(&distances)]
}

/// Labels every vertex with the smallest vertex number of its component.
fn components(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (from, to, n) = (d.u32s(0), d.u32s(1), d.scalar(4));
    let mut labels: Vec<u32> = (0..n as u32).collect();
    for _ in 0..n {
        for (&a, &b) in from.iter().zip(&to) {
            let low = labels[a as usize].min(labels[b as usize]);
            labels[a as usize] = low;
            labels[b as usize] = low;
        }
    }
    vec![of_u32(&labels)]
}

fn spin_lock(_: &Data<'_>) -> Vec<Vec<u8>> {
    let mixed = (1..=3 * 64u32).fold(0, |x, count| x ^ count.wrapping_mul(2_654_435_761));
    vec![of_u32(&[3 * 64, mixed])]
}

fn producer_consumer(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (x, rounds) = (d.u32s(0), d.scalar(2));
    let block = |b: usize| {
        (0..32).map({
            let x = &x;
            move |lane: usize| {
                (0..rounds).fold(0u32, |sum, r| {
                    sum.wrapping_mul(31).wrapping_add(x[(b * rounds + r) * 32 + 31 - lane])
                })
            }
        })
    };
    vec![of_u32(&(0..2).flat_map(block).collect::<Vec<_>>())]
}

fn block_votes(d: &Data<'_>) -> Vec<Vec<u8>> {
    let x = d.u32s(0);
    let (mut counts, mut both, mut some) = (Vec::new(), Vec::new(), Vec::new());
    for block in x.chunks(96) {
        let above = block.iter().filter(|&&v| v > 50).count() as u32;
        let all = u32::from(block.iter().all(|&v| v < 98)) + 2 * u32::from(block.contains(&3));
        let first = block[..64].iter().filter(|&&v| v > 30).count() as u32;
        for t in 0..96 {
            counts.push(above);
            both.push(all);
            some.push(if t < 64 { first } else { 7 });
        }
    }
    vec![of_u32(&[counts, both, some].concat())]
}

fn double_buffer(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (x, tiles) = (d.u32s(0), d.scalar(2));
    let thread = |i: usize| {
        let (block, t) = (i / 32, i % 32);
        (0..tiles).fold(0u32, |sum, k| {
            let at = ((block * tiles + k) * 32 + 31 - t) * 4;
            sum.wrapping_mul(31).wrapping_add(x[at] ^ x[at + 1] ^ x[at + 2] ^ x[at + 3])
        })
    };
    vec![of_u32(&(0..64).map(thread).collect::<Vec<_>>())]
}

fn split_barrier(d: &Data<'_>) -> Vec<Vec<u8>> {
    let mut all = d.u32s(0);
    for x in all.chunks_mut(64) {
        for r in 0..d.scalar(2) as u32 {
            let old = x.to_vec();
            for t in 0..64 {
                x[t] = old[t].wrapping_mul(5).wrapping_add(r).wrapping_add(old[(t + 17) % 64]);
            }
        }
    }
    vec![of_u32(&all)]
}

fn bit_transpose(d: &Data<'_>) -> Vec<Vec<u8>> {
    let one = |block: &[u32]| {
        let row = |r: usize| (0..32).fold(0u32, |row, c| row | (block[c] >> r & 1) << c);
        (0..32).map(row).collect::<Vec<_>>()
    };
    vec![of_u32(&d.u32s(0).chunks(32).flat_map(one).collect::<Vec<_>>())]
}

/// Returns a row of results for each vote, with a value for each thread.
fn by_warp<const N: usize>(x: &[u32], f: impl Fn(&[u32], u32) -> [u32; N]) -> Vec<u8> {
    let each = x.chunks(32).flat_map(|warp| warp.iter().map(|&v| f(warp, v)).collect::<Vec<_>>());
    let each: Vec<[u32; N]> = each.collect();
    of_u32(&(0..N).flat_map(|row| each.iter().map(move |e| e[row])).collect::<Vec<_>>())
}

fn votes(d: &Data<'_>) -> Vec<Vec<u8>> {
    let mask = |warp: &[u32], test: &dyn Fn(u32) -> bool| {
        warp.iter().enumerate().fold(0u32, |m, (i, &v)| m | u32::from(test(v)) << i)
    };
    let votes = |warp: &[u32], v: u32| {
        let same = mask(warp, &|x| x == v);
        let alike = same == u32::MAX;
        let all = if alike { u32::MAX } else { 0 };
        let ballot = mask(warp, &|x| x & 1 != 0);
        let (below, is_5) = (warp.iter().all(|&x| x < 5), warp.contains(&5));
        [below.into(), is_5.into(), ballot, same, all, alike.into(), u32::MAX, 1, same, 32]
    };
    vec![by_warp(&d.u32s(0), votes)]
}

fn reductions(d: &Data<'_>) -> Vec<Vec<u8>> {
    let all = |warp: &[u32], _| {
        let fold = |f: fn(u32, u32) -> u32| warp.iter().copied().reduce(f).unwrap();
        let signed = || warp.iter().map(|&v| v as i32);
        [
            fold(u32::wrapping_add),
            fold(u32::min),
            fold(u32::max),
            fold(|a, b| a & b) | 0xFF,
            fold(|a, b| a | b) & 0xFF,
            fold(|a, b| a ^ b),
            signed().min().unwrap() as u32,
            signed().max().unwrap() as u32,
        ]
    };
    vec![by_warp(&d.u32s(0), all)]
}
