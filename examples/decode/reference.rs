//! The forward pass in plain Rust, in f32: the reference for the kernels.

use half::f16;

use super::{HEAD, HEADS, Symbols, WIDTH, Weights, weights};

/// The model on the host.
pub struct Reference {
    embedding: Vec<f32>,
    positions: Vec<f32>,
    blocks: Vec<Block>,
    gain: Vec<f32>,
    head: Vec<f32>,
}

/// The weights of a block; see [`weights::Block`].
struct Block {
    attention_gain: Vec<f32>,
    qkv: Vec<f32>,
    out: Vec<f32>,
    mlp_gain: Vec<f32>,
    up: Vec<f32>,
    down: Vec<f32>,
}

impl Reference {
    /// Converts the weights.
    pub fn new(weights: &Weights) -> Self {
        let block = |block: &weights::Block| Block {
            attention_gain: floats(&block.attention_gain),
            qkv: floats(&block.qkv),
            out: floats(&block.out),
            mlp_gain: floats(&block.mlp_gain),
            up: floats(&block.up),
            down: floats(&block.down),
        };
        Self {
            embedding: floats(&weights.embedding),
            positions: floats(&weights.positions),
            blocks: weights.blocks.iter().map(block).collect(),
            gain: floats(&weights.gain),
            head: floats(&weights.head),
        }
    }

    /// Returns the logits of the next symbol behind each symbol: `SYMBOLS` numbers for each position. Only the first
    /// `CONTEXT` symbols are read.
    pub fn logits(&self, symbols: &[u32]) -> Vec<Vec<f32>> {
        // The keys and values of each block and position, as one row of 2 * WIDTH.
        let mut caches = vec![Vec::new(); self.blocks.len()];
        let positions = symbols.iter().zip(self.positions.chunks(WIDTH));
        positions
            .map(|(&symbol, position)| {
                let token = &self.embedding[symbol as usize * WIDTH..][..WIDTH];
                let mut x: Vec<f32> = token.iter().zip(position).map(|(a, b)| a + b).collect();
                for (block, cache) in self.blocks.iter().zip(&mut caches) {
                    let qkv = product(&block.qkv, &norm(&x, &block.attention_gain));
                    let (query, keys_and_values) = qkv.split_at(WIDTH);
                    cache.push(keys_and_values.to_vec());
                    add(&mut x, &product(&block.out, &attention(query, cache)));
                    let hidden = product(&block.up, &norm(&x, &block.mlp_gain));
                    let hidden: Vec<f32> = hidden.iter().map(|y| y / (1.0 + (-y).exp())).collect();
                    add(&mut x, &product(&block.down, &hidden));
                }
                product(&self.head, &norm(&x, &self.gain))
            })
            .collect()
    }
}

/// Returns the mean information of a symbol of a text, in bits, given the symbols before it. The first half of
/// `symbols` is only context.
pub fn bits_per_character(reference: &Reference, symbols: &Symbols) -> f64 {
    let symbols = symbols.as_slice();
    let half = symbols.len() / 2;
    let logits = reference.logits(symbols);
    let bits = logits.iter().zip(&symbols[1..]).skip(half).map(|(logits, &next)| {
        let total: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
        (total.ln() - f64::from(logits[next as usize])) / std::f64::consts::LN_2
    });
    let bits: Vec<f64> = bits.collect();
    bits.iter().sum::<f64>() / bits.len() as f64
}

fn floats(weights: &[f16]) -> Vec<f32> {
    weights.iter().map(|weight| weight.to_f32()).collect()
}

fn norm(x: &[f32], gain: &[f32]) -> Vec<f32> {
    let mean = x.iter().map(|v| v * v).sum::<f32>() / WIDTH as f32;
    let scale = 1.0 / (mean + 1e-5).sqrt();
    x.iter().zip(gain).map(|(v, gain)| v * scale * gain).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the product of a matrix, one row for each output, with `x`.
fn product(matrix: &[f32], x: &[f32]) -> Vec<f32> {
    matrix.chunks(x.len()).map(|row| dot(row, x)).collect()
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// Returns the attention of a query to all positions of the cache, head by head.
fn attention(query: &[f32], cache: &[Vec<f32>]) -> Vec<f32> {
    let mut mixed = vec![0.0; WIDTH];
    for head in 0..HEADS {
        let channels = head * HEAD..(head + 1) * HEAD;
        let scores = cache.iter().map(|row| {
            dot(&query[channels.clone()], &row[channels.clone()]) / (HEAD as f32).sqrt()
        });
        let scores: Vec<f32> = scores.collect();
        let most = scores.iter().copied().fold(f32::MIN, f32::max);
        let shares: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
        let total: f32 = shares.iter().sum();
        for (share, row) in shares.iter().zip(cache) {
            let values = &row[WIDTH..][channels.clone()];
            let out = mixed[channels.clone()].iter_mut();
            out.zip(values).for_each(|(out, value)| *out += share / total * value);
        }
    }
    mixed
}
