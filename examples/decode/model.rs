//! The model on a device: its kernels and its weights.

use std::sync::Arc;

use cuda_async::{join_all, prelude::*};
use half::f16;

use super::{Weights, weights};

cuda_async::kernels! {
    /// The kernels of a step, loaded on a device. The shapes are constants of `kernels/decode.cu`. Every launch has as
    /// many sequences as the buffers.
    #[ptx = "decode/kernels/decode.ptx"]
    pub(super) struct Kernels;

    /// Computes `x = embedding[token] + positions[position]`.
    ///
    /// # Safety
    /// The buffers must have the sizes of `Session::new`, and the tokens must be symbols. The launch must have one
    /// block of `WIDTH` threads for each sequence, in y.
    pub(super) unsafe fn embed(
        tokens: &[u32], position: &[u32], embedding: &[f16], positions: &[f16], x: &mut [f32],
    );

    /// Computes queries, keys and values of the position, and adds the last two to their caches.
    ///
    /// # Safety
    /// The buffers must have the sizes of `Session::new`. The launch must be that of a matrix of `3 * WIDTH` rows.
    pub(super) unsafe fn project_qkv(
        x: &[f32], gain: &[f16], w: &[f16], position: &[u32], queries: &mut [f32],
        keys: &mut [f32], values: &mut [f32],
    );

    /// Computes the attention of the queries to all positions up to the current one.
    ///
    /// # Safety
    /// The buffers must have the sizes of `Session::new`. The launch must have a block of 128 threads for each head, in
    /// x, and each sequence, in y.
    pub(super) unsafe fn attend(
        queries: &[f32], keys: &[f32], values: &[f32], position: &[u32], mixed: &mut [f32],
    );

    /// Computes `x += w . input`.
    ///
    /// # Safety
    /// `input` must have `inputs` numbers for each sequence, a multiple of 128, and `w` as many for each row. The
    /// launch must be that of a matrix of `WIDTH` rows.
    pub(super) unsafe fn project_add(input: &[f32], w: &[f16], x: &mut [f32], inputs: u32);

    /// Computes `hidden = silu(w . norm(x))`.
    ///
    /// # Safety
    /// The buffers must have the sizes of `Session::new`. The launch must be that of a matrix of `HIDDEN` rows.
    pub(super) unsafe fn expand(x: &[f32], gain: &[f16], w: &[f16], hidden: &mut [f32]);

    /// Computes `logits = w . norm(x)`.
    ///
    /// # Safety
    /// The buffers must have the sizes of `Session::new`. The launch must be that of a matrix of `SYMBOLS` rows.
    pub(super) unsafe fn project_logits(x: &[f32], gain: &[f16], w: &[f16], logits: &mut [f32]);
}

/// Weights on a device. A buffer in an `Arc` is read-only, so any number of sessions read it at the same time.
type Matrix = Arc<DeviceBuffer<f16>>;

/// The model on a device. A clone is another handle to the same weights.
#[derive(Clone)]
pub struct Model {
    pub(super) kernels: Kernels,
    /// Writes the next tokens and advances the position. It is launched with `launch`.
    pub(super) choose: cuda_async::Function,
    pub(super) embedding: Matrix,
    pub(super) positions: Matrix,
    pub(super) blocks: Arc<[Block]>,
    pub(super) gain: Matrix,
    pub(super) head: Matrix,
}

/// The weights of a block; see [`weights::Block`].
pub(super) struct Block {
    pub(super) attention_gain: Matrix,
    pub(super) qkv: Matrix,
    pub(super) out: Matrix,
    pub(super) mlp_gain: Matrix,
    pub(super) up: Matrix,
    pub(super) down: Matrix,
}

impl Model {
    /// Loads the kernels immediately, and returns an operation that uploads the weights.
    ///
    /// # Errors
    /// The errors of loading the kernels on `device`.
    pub fn upload(
        device: &Device,
        weights: &Weights,
    ) -> cuda_async::Result<impl DeviceOp<Output = Self> + use<>> {
        let kernels = Kernels::load(device)?;
        let choose = kernels.embed.module().function("choose")?;
        let blocks = join_all(weights.blocks.iter().map(Block::upload).collect::<Vec<_>>());
        let rest = zip!(
            upload(&weights.embedding),
            upload(&weights.positions),
            upload(&weights.gain),
            upload(&weights.head)
        );
        Ok(zip!(blocks, rest).map(|(blocks, (embedding, positions, gain, head))| {
            let blocks = blocks.into();
            Self { kernels, choose, embedding, positions, blocks, gain, head }
        }))
    }
}

impl Block {
    fn upload(block: &weights::Block) -> impl DeviceOp<Output = Self> + use<> {
        let attention = zip!(upload(&block.attention_gain), upload(&block.qkv), upload(&block.out));
        let mlp = zip!(upload(&block.mlp_gain), upload(&block.up), upload(&block.down));
        zip!(attention, mlp).map(|((attention_gain, qkv, out), (mlp_gain, up, down))| Self {
            attention_gain,
            qkv,
            out,
            mlp_gain,
            up,
            down,
        })
    }
}

fn upload(weights: &[f16]) -> impl DeviceOp<Output = Matrix> + use<> {
    h2d(weights.to_vec()).map(Arc::new)
}
