//! Hashes, ciphers and random numbers.

use super::{Data, Reference, of_u32};

pub(super) const ALL: &[(&str, Reference)] = &[
    ("philox", philox),
    ("xorwow", xorwow),
    ("pcg", pcg),
    ("crc32", crc32),
    ("murmur3", murmur3),
    ("chacha20", chacha20),
    ("sha256", sha256),
];

fn philox(d: &Data<'_>) -> Vec<Vec<u8>> {
    let seed = d.scalar_u64(1);
    let one = |i: u32| {
        let (mut c, mut k) = ([i, 0, 0, 0], [seed as u32, (seed >> 32) as u32]);
        for _ in 0..10 {
            let p = u64::from(c[0]) * 0xD251_1F53;
            let q = u64::from(c[2]) * 0xCD9E_8D57;
            c = [
                (q >> 32) as u32 ^ c[1] ^ k[0],
                q as u32,
                (p >> 32) as u32 ^ c[3] ^ k[1],
                p as u32,
            ];
            k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
        }
        c
    };
    vec![of_u32(&(0..192).flat_map(one).collect::<Vec<_>>())]
}

fn xorwow(d: &Data<'_>) -> Vec<Vec<u8>> {
    let mut states = d.u32s(0);
    let mut sums = Vec::new();
    for s in states.chunks_mut(6) {
        let mut sum = 0u32;
        for _ in 0..d.scalar(2) {
            let t = s[0] ^ s[0] >> 2;
            s.copy_within(1..5, 0);
            s[4] = s[3] ^ s[3] << 4 ^ t ^ t << 1;
            s[5] = s[5].wrapping_add(362_437);
            sum = sum.wrapping_add(s[4]).wrapping_add(s[5]);
        }
        sums.push(sum);
    }
    vec![of_u32(&states), of_u32(&sums)]
}

/// Computes one sequence from its start. The kernel's threads jump into it.
fn pcg(d: &Data<'_>) -> Vec<Vec<u8>> {
    let mut state = d.scalar_u64(1);
    let next = |_| {
        let mixed = ((state >> 18 ^ state) >> 27) as u32;
        let out = mixed.rotate_right((state >> 59) as u32);
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out
    };
    vec![of_u32(&(0..1024).map(next).collect::<Vec<_>>())]
}

fn crc32(d: &Data<'_>) -> Vec<Vec<u8>> {
    let one = |text: &[u8]| {
        !text.iter().fold(u32::MAX, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |x, _| {
                x >> 1 ^ if x & 1 != 0 { 0xEDB8_8320 } else { 0 }
            })
        })
    };
    let crcs: Vec<u32> = d.u8s(0).chunks(d.scalar(3)).map(one).collect();
    vec![of_u32(&crcs), of_u32(&crcs)]
}

fn murmur3(d: &Data<'_>) -> Vec<Vec<u8>> {
    let one = |(length, text): (usize, &[u8])| {
        let text = &text[..length];
        let mix = |k: u32| k.wrapping_mul(0xcc9e_2d51).rotate_right(17).wrapping_mul(0x1b87_3593);
        let mut h = 0x9747_b28cu32;
        let words = text.chunks_exact(4);
        let rest = words.remainder();
        for word in words {
            h ^= mix(u32::from_le_bytes(word.try_into().unwrap()));
            h = h.rotate_right(19).wrapping_mul(5).wrapping_add(0xe654_6b64);
        }
        if !rest.is_empty() {
            h ^= mix(rest.iter().rev().fold(0, |k, &b| k << 8 | u32::from(b)));
        }
        h ^= length as u32;
        h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
        h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
        h ^ h >> 16
    };
    vec![of_u32(&d.u8s(0).chunks(64).enumerate().map(one).collect::<Vec<_>>())]
}

fn chacha20(d: &Data<'_>) -> Vec<Vec<u8>> {
    let key = d.u32s(0);
    let block = |i: u32| {
        let mut start = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574].to_vec();
        start.extend(&key);
        start.extend([i, 1, 2, 3]);
        let mut x = start.clone();
        for round in 0..20 {
            for c in 0..4 {
                let turn = if round % 2 == 0 { 0 } else { 1 };
                let [p, q, r, s] = [0, 1, 2, 3].map(|row| 4 * row + (c + turn * row) % 4);
                for (into, from, at, by) in
                    [(p, q, s, 16), (r, s, q, 12), (p, q, s, 8), (r, s, q, 7)]
                {
                    x[into] = x[into].wrapping_add(x[from]);
                    x[at] = (x[at] ^ x[into]).rotate_left(by);
                }
            }
        }
        x.iter().zip(start).map(|(a, b)| a.wrapping_add(b)).collect::<Vec<u32>>()
    };
    vec![of_u32(&(0..64).flat_map(block).collect::<Vec<_>>())]
}

/// From the definition: the constants are derived from roots of primes.
fn sha256(d: &Data<'_>) -> Vec<Vec<u8>> {
    let primes: Vec<u64> = (2..400).filter(|n| (2..*n).all(|k| n % k != 0)).take(64).collect();
    let fraction = |x: f64| ((x - x.floor()) * 2f64.powi(32)) as u32;
    let k: Vec<u32> = primes.iter().map(|&p| fraction((p as f64).cbrt())).collect();
    let start: Vec<u32> = primes[..8].iter().map(|&p| fraction((p as f64).sqrt())).collect();
    let one = |message: &[u8]| {
        let mut text = message.to_vec();
        text.push(0x80);
        text.resize((text.len() + 8).next_multiple_of(64) - 8, 0);
        text.extend((message.len() as u64 * 8).to_be_bytes());
        let mut h = start.clone();
        for block in text.chunks(64) {
            let mut w: Vec<u32> =
                block.chunks(4).map(|c| u32::from_be_bytes(c.try_into().unwrap())).collect();
            for i in 16..64 {
                let (x, y) = (w[i - 15], w[i - 2]);
                let s0 = x.rotate_right(7) ^ x.rotate_right(18) ^ x >> 3;
                let s1 = y.rotate_right(17) ^ y.rotate_right(19) ^ y >> 10;
                w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
            }
            let mut v = h.clone();
            for i in 0..64 {
                let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
                let choice = v[4] & v[5] ^ !v[4] & v[6];
                let t = [s1, choice, k[i], w[i]].iter().fold(v[7], |t, &x| t.wrapping_add(x));
                let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
                let most = v[0] & v[1] ^ v[0] & v[2] ^ v[1] & v[2];
                v.rotate_right(1);
                v[4] = v[4].wrapping_add(t);
                v[0] = t.wrapping_add(s0).wrapping_add(most);
            }
            h.iter_mut().zip(v).for_each(|(h, v)| *h = h.wrapping_add(v));
        }
        h
    };
    vec![of_u32(&d.u8s(0).chunks(d.scalar(2)).flat_map(one).collect::<Vec<_>>())]
}
