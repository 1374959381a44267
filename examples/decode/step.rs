//! A step: one more symbol for each sequence of a session.

use cuda_async::{launch, memory::DeviceScalar, ops::ScriptContext, prelude::*};

use super::{CONTEXT, Error, HEADS, HIDDEN, LAYERS, MAX_BATCH, Model, SYMBOLS, Symbols, WIDTH};

/// The number of threads of a block, and of its warps.
const THREADS: u32 = 128;
const WARPS: u32 = THREADS / 32;

type Floats = DeviceBuffer<f32>;

/// Sequences that are decoded together, on a device. Every step adds a symbol to each of them.
pub struct Session {
    model: Model,
    sequences: u32,
    /// The numbers of symbols of the prompts.
    lengths: Vec<usize>,
    prompt_lengths: DeviceBuffer<u32>,
    /// `CONTEXT` symbols for each sequence. The prompts are there from the start.
    tokens: DeviceBuffer<u32>,
    /// The position of the symbol that the next step reads. The last kernel of a step increments it.
    position: DeviceScalar<u32>,
    caches: Vec<Cache>,
    buffers: Buffers,
}

/// The keys and values of a block, for all positions.
struct Cache {
    keys: Floats,
    values: Floats,
}

/// Memory of a step, which the next step overwrites.
struct Buffers {
    x: Floats,
    queries: Floats,
    mixed: Floats,
    hidden: Floats,
    logits: Floats,
}

impl Session {
    /// Returns an operation that allocates the memory of a session, and uploads its prompts.
    ///
    /// # Errors
    /// [`Error::Batch`] for no prompt or too many. [`Error::EmptyPrompt`] or [`Error::TooLong`] for a prompt that is
    /// empty or does not fit.
    pub fn new(
        model: &Model,
        prompts: &[Symbols],
    ) -> Result<impl DeviceOp<Output = Self> + use<>, Error> {
        let sequences = prompts.len();
        if !(1..=MAX_BATCH).contains(&sequences) {
            return Err(Error::Batch { sequences });
        }
        let mut tokens = vec![0; sequences * CONTEXT];
        for (prompt, (symbols, tokens)) in
            prompts.iter().zip(tokens.chunks_mut(CONTEXT)).enumerate()
        {
            let symbols = symbols.as_slice();
            if symbols.is_empty() {
                return Err(Error::EmptyPrompt { prompt });
            }
            let Some(begin) = tokens.get_mut(..symbols.len()) else {
                return Err(Error::TooLong { prompt, length: symbols.len(), tokens: 0 });
            };
            begin.copy_from_slice(symbols);
        }
        let lengths: Vec<usize> = prompts.iter().map(Symbols::len).collect();
        let prompt_lengths: Vec<u32> = lengths.iter().map(|&length| length as u32).collect();
        let model = model.clone();
        Ok(script(async move |cx| {
            let floats = |each: usize| zeros::<f32>(each * sequences);
            let mut caches = Vec::new();
            for _ in 0..LAYERS {
                let keys = cx.run(floats(CONTEXT * WIDTH)).await?;
                caches.push(Cache { keys, values: cx.run(floats(CONTEXT * WIDTH)).await? });
            }
            Ok(Self {
                sequences: sequences as u32,
                lengths,
                prompt_lengths: cx.run(h2d(prompt_lengths)).await?,
                tokens: cx.run(h2d(tokens)).await?,
                position: cx.run(DeviceScalar::new(0)).await?,
                caches,
                buffers: Buffers {
                    x: cx.run(floats(WIDTH)).await?,
                    queries: cx.run(floats(WIDTH)).await?,
                    mixed: cx.run(floats(WIDTH)).await?,
                    hidden: cx.run(floats(HIDDEN)).await?,
                    logits: cx.run(floats(SYMBOLS)).await?,
                },
                model,
            })
        }))
    }

    /// Returns an operation that computes the next symbol of each sequence: it reads the symbols at the position,
    /// writes the next ones behind them, where the prompts have none, and advances the position. All of it stays on the
    /// device, so the operation is the same for every position.
    pub fn step(&mut self) -> impl DeviceOp<Output = ()> {
        script(async move |cx| self.run_step(&cx).await)
    }

    /// The number of steps after which each prompt is followed by `tokens` symbols.
    pub fn steps(&self, tokens: usize) -> usize {
        let longest = self.lengths.iter().max().copied().unwrap_or_default();
        if tokens == 0 { 0 } else { longest.saturating_add(tokens) - 1 }
    }

    /// Checks that each prompt can be followed by `tokens` symbols.
    pub(super) fn check_length(&self, tokens: usize) -> Result<(), Error> {
        let too_long = |&(_, &length): &(usize, &usize)| tokens > CONTEXT - length;
        match self.lengths.iter().enumerate().find(too_long) {
            Some((prompt, &length)) => Err(Error::TooLong { prompt, length, tokens }),
            None => Ok(()),
        }
    }

    /// The number of sequences.
    pub fn sequences(&self) -> usize {
        self.lengths.len()
    }

    /// The numbers of symbols of the prompts.
    pub fn prompt_lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The position of the symbol that the next step reads. [`set`](DeviceScalar::set) it to 0 to begin again.
    pub fn position(&self) -> &DeviceScalar<u32> {
        &self.position
    }

    /// The symbols of all sequences, `CONTEXT` for each.
    pub fn tokens(&self) -> &DeviceBuffer<u32> {
        &self.tokens
    }

    /// The logits of the last step, `SYMBOLS` for each sequence.
    pub fn logits(&self) -> &DeviceBuffer<f32> {
        &self.buffers.logits
    }

    // ANCHOR: step
    /// Submits one step. It does not wait for the device, because the symbols and the position stay there.
    async fn run_step(&mut self, cx: &ScriptContext) -> cuda_async::Result<()> {
        let Self { model, sequences, prompt_lengths, tokens, position, caches, buffers, .. } = self;
        let (kernels, sequences, position) = (&model.kernels, *sequences, &*position);
        let Buffers { x, queries, mixed, hidden, logits } = buffers;
        let channels = LaunchConfig::new(1, WIDTH as u32).grid(1, sequences, 1);
        let heads = LaunchConfig::new(1, THREADS).grid(HEADS as u32, sequences, 1);
        // A warp for each row of a matrix.
        let rows = |n: usize| LaunchConfig::new(1, THREADS).grid(n as u32 / WARPS, sequences, 1);

        // SAFETY: `new` allocates all buffers for `sequences` sequences, and `Weights::load` checks the sizes of the
        // weights. The tokens are symbols: `new` takes no others, and `choose` writes no others. The kernels do nothing
        // at positions that are out of range. `choose` has one block.
        unsafe {
            let (embedding, positions) = (&*model.embedding, &*model.positions);
            let op = kernels.embed(channels, &*tokens, position, embedding, positions, &mut *x);
            cx.run(op).await?;
            for (block, Cache { keys, values }) in model.blocks.iter().zip(caches) {
                let (gain, w) = (&*block.attention_gain, &*block.qkv);
                let (k, v) = (&mut *keys, &mut *values);
                let grid = rows(3 * WIDTH);
                let op = kernels.project_qkv(grid, &*x, gain, w, position, &mut *queries, k, v);
                cx.run(op).await?;
                let op = kernels.attend(heads, &*queries, &*keys, &*values, position, &mut *mixed);
                cx.run(op).await?;
                let (grid, w) = (rows(WIDTH), &*block.out);
                cx.run(kernels.project_add(grid, &*mixed, w, &mut *x, WIDTH as u32)).await?;

                let (gain, w) = (&*block.mlp_gain, &*block.up);
                cx.run(kernels.expand(rows(HIDDEN), &*x, gain, w, &mut *hidden)).await?;
                let w = &*block.down;
                cx.run(kernels.project_add(grid, &*hidden, w, &mut *x, HIDDEN as u32)).await?;
            }
            let (gain, head) = (&*model.gain, &*model.head);
            let op = kernels.project_logits(rows(SYMBOLS), &*x, gain, head, &mut *logits);
            cx.run(op).await?;
            let args = (&*logits, &*prompt_lengths, &mut *tokens, position.writable(), sequences);
            cx.run(launch(&model.choose, LaunchConfig::new(1, THREADS), args)).await?;
        }
        Ok(())
    }
    // ANCHOR_END: step
}
