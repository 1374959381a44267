//! Scans, sorting, counting and dynamic programming.

use super::{Data, Reference, of_f32, of_i32, of_u32, of_u64};

pub(super) const ALL: &[(&str, Reference)] = &[
    ("scan_256_exclusive", |d| scan(&d.u32s(0), 256, true)),
    ("scan_256_inclusive", |d| scan(&d.u32s(0), 256, false)),
    ("scan_all_inclusive", |d| scan(&d.u32s(0), usize::MAX, false)),
    ("compact", compact),
    ("sort_512", sort_512),
    ("sort_pairs", sort_pairs),
    ("merge", merge),
    ("histogram", histogram),
    ("nibbles", nibbles),
    ("top_k", top_k),
    ("edit_distance", edit_distance),
    ("common_subsequence", common_subsequence),
    ("knapsack", knapsack),
    ("queens", |_| vec![of_u32(&[92])]),
    ("cub_reduce", cub_reduce),
    ("cub_scan", cub_scan),
    ("cub_sort", cub_sort),
    ("cub_histogram", cub_histogram),
];

fn scan(x: &[u32], width: usize, exclusive: bool) -> Vec<Vec<u8>> {
    let one = |block: &[u32]| {
        let mut sum = 0u32;
        let next = |&x: &u32| {
            let before = sum;
            sum = sum.wrapping_add(x);
            if exclusive { before } else { sum }
        };
        block.iter().map(next).collect::<Vec<_>>()
    };
    vec![of_u32(&x.chunks(width.min(x.len())).flat_map(one).collect::<Vec<_>>())]
}

fn compact(d: &Data<'_>) -> Vec<Vec<u8>> {
    let x = d.u32s(0);
    let mut kept: Vec<u32> = x.iter().copied().filter(|v| v & 1 != 0).collect();
    let count = kept.len() as u32;
    kept.resize(x.len(), 0);
    vec![of_u32(&kept), of_u32(&[count])]
}

fn sort_512(d: &Data<'_>) -> Vec<Vec<u8>> {
    let mut x = d.u32s(0);
    x.chunks_mut(512).for_each(<[u32]>::sort_unstable);
    vec![of_u32(&x)]
}

fn sorted_pairs(keys: &[u32], values: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut pairs: Vec<_> = keys.iter().copied().zip(values.iter().copied()).collect();
    pairs.sort_by_key(|p| p.0);
    pairs.into_iter().unzip()
}

fn sort_pairs(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (keys, values) = sorted_pairs(&d.u32s(0), &d.u32s(1));
    vec![of_u32(&keys), of_u32(&values)]
}

fn merge(d: &Data<'_>) -> Vec<Vec<u8>> {
    let mut both = [d.i32s(0), d.i32s(1)].concat();
    both.sort_unstable();
    vec![of_i32(&both)]
}

fn count<const BINS: usize>(values: impl IntoIterator<Item = usize>) -> [u32; BINS] {
    let mut counts = [0; BINS];
    values.into_iter().for_each(|v| counts[v] += 1);
    counts
}

fn histogram(d: &Data<'_>) -> Vec<Vec<u8>> {
    vec![of_u32(&count::<256>(d.u8s(0).into_iter().map(usize::from)))]
}

fn nibbles(d: &Data<'_>) -> Vec<Vec<u8>> {
    let words = d.u32s(0);
    let one = |part: &[u32]| {
        count::<16>(part.iter().flat_map(|w| (0..8).map(move |i| (w >> (4 * i) & 15) as usize)))
    };
    vec![of_u32(&words.chunks(d.scalar(2)).flat_map(one).collect::<Vec<_>>())]
}

fn top_k(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (x, columns) = (d.f32s(0), d.scalar(3));
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for row in x.chunks(columns) {
        let mut order: Vec<usize> = (0..columns).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
        values.extend(order[..8].iter().map(|&i| row[i]));
        indices.extend(order[..8].iter().map(|&i| i as u32));
    }
    vec![of_f32(&values), of_u32(&indices)]
}

fn edit_distance(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (a, b) = (d.u8s(0), d.u8s(1));
    let one = |(x, y): (&[u8], &[u8])| {
        let mut row: Vec<u32> = (0..=y.len() as u32).collect();
        for (i, p) in x.iter().enumerate() {
            let mut diagonal = row[0];
            row[0] = i as u32 + 1;
            for (j, q) in y.iter().enumerate() {
                let best = (diagonal + u32::from(p != q)).min(row[j].min(row[j + 1]) + 1);
                diagonal = row[j + 1];
                row[j + 1] = best;
            }
        }
        row[y.len()]
    };
    vec![of_u32(&a.chunks(64).zip(b.chunks(64)).map(one).collect::<Vec<_>>())]
}

fn common_subsequence(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (a, b) = (d.u8s(0), d.u8s(1));
    let one = |(x, y): (&[u8], &[u8])| {
        let mut row = vec![0u32; y.len() + 1];
        for p in x {
            let mut diagonal = 0;
            for (j, q) in y.iter().enumerate() {
                let best = if p == q { diagonal + 1 } else { row[j].max(row[j + 1]) };
                diagonal = row[j + 1];
                row[j + 1] = best;
            }
        }
        row[y.len()]
    };
    vec![of_u32(&a.chunks(64).zip(b.chunks(64)).map(one).collect::<Vec<_>>())]
}

fn knapsack(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (weights, values, capacity) = (d.u32s(0), d.u32s(1), d.scalar(4));
    let mut best = vec![0u32; capacity + 1];
    for (&w, &v) in weights.iter().zip(&values) {
        for c in (w as usize..=capacity).rev() {
            best[c] = best[c].max(best[c - w as usize] + v);
        }
    }
    vec![of_u32(&[best[capacity]])]
}

fn cub_reduce(d: &Data<'_>) -> Vec<Vec<u8>> {
    let x = d.u32s(0);
    let blocks = || x.chunks(512);
    let sums: Vec<u32> = blocks().map(|b| b.iter().fold(0u32, |s, &v| s.wrapping_add(v))).collect();
    let each = |at: usize| blocks().map(move |b| b.iter().skip(at).step_by(4).copied());
    let maxima: Vec<u32> = each(1).map(|b| b.max().unwrap()).collect();
    let totals = each(2).map(|b| b.map(|v| f64::from(v >> 8)).sum::<f64>().to_bits());
    vec![of_u32(&sums), of_u32(&maxima), of_u64(&totals.collect::<Vec<_>>())]
}

fn cub_scan(d: &Data<'_>) -> Vec<Vec<u8>> {
    let x = d.u32s(0);
    let sums = scan(&x, 384, true).remove(0);
    let running = |block: &[u32]| {
        let mut most = 0;
        block
            .iter()
            .step_by(3)
            .map(|&v| {
                most = most.max(v);
                most
            })
            .collect::<Vec<_>>()
    };
    let maxima: Vec<u32> = x.chunks(384).flat_map(running).collect();
    let totals: Vec<u32> = x.chunks(384).map(|b| b.iter().sum()).collect();
    vec![sums, of_u32(&maxima), of_u32(&totals)]
}

fn cub_sort(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (keys, values, mut floats) = (d.u32s(0), d.u32s(1), d.f32s(2));
    let blocks = keys.chunks(256).zip(values.chunks(256)).map(|(k, v)| sorted_pairs(k, v));
    let (keys, values): (Vec<_>, Vec<_>) = blocks.unzip();
    floats.chunks_mut(256).for_each(|block| block.sort_by(|a, b| b.total_cmp(a)));
    vec![of_u32(&keys.concat()), of_u32(&values.concat()), of_f32(&floats)]
}

fn cub_histogram(d: &Data<'_>) -> Vec<Vec<u8>> {
    let x = d.u8s(0);
    let blocks = || x.chunks(256);
    let counts = blocks().flat_map(|b| count::<32>(b.iter().map(|&v| usize::from(v))));
    let head = |b: &[u8], i: usize| u32::from(i == 0 || b[i - 1] / 8 != b[i] / 8);
    let heads = blocks().flat_map(|b| (0..256).map(move |i| head(b, i)));
    vec![of_u32(&counts.collect::<Vec<_>>()), of_u32(&heads.collect::<Vec<_>>())]
}
