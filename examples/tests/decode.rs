//! The transformer gives the same symbols in every mode, in every batch and on every device, and those of a plain
//! forward pass.

use std::error::Error;

use cuda_async::{
    Device, DeviceOp, Stream,
    cuda_cpu::{Checks, CpuOptions, CpuProvider, Schedule},
    graph::GraphExt,
    to_host,
};
use examples::decode::{
    CONTEXT, LAYERS, MAX_BATCH, Mode, Model, Reference, SYMBOLS, Session, Symbols, Weights,
    bits_per_character, generate, held_out, prompts,
};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The model on a device, with a stream.
struct Fixture {
    stream: Stream,
    model: Model,
}

impl Fixture {
    fn new(device: &Device) -> Result<Self> {
        let stream = device.new_stream()?;
        let model = Model::upload(device, &Weights::load()?)?.sync_on(&stream)?;
        Ok(Self { stream, model })
    }

    fn session(&self, prompts: &[Symbols]) -> Result<Session> {
        Ok(Session::new(&self.model, prompts)?.sync_on(&self.stream)?)
    }

    fn generate(&self, prompts: &[Symbols], mode: Mode, tokens: usize) -> Result<Vec<Symbols>> {
        let mut session = self.session(prompts)?;
        let graph = mode.prepare(&mut session, &self.stream)?;
        Ok(generate(&mut session, graph.as_ref(), tokens)?.sync_on(&self.stream)?)
    }
}

/// Opens the first GPU. Prints a message if there is none.
fn cuda() -> Option<Device> {
    cuda_async::open_blocking("cuda")
        .inspect_err(|error| println!("not run on a GPU here: {error}"))
        .ok()
}

/// Runs each test on the CPU device, and on the first GPU if there is one.
macro_rules! on_each_device {
    ($($test:ident)*) => {
        mod cpu {$(
            #[test]
            fn $test() -> super::Result {
                super::$test(&cuda_async::open_blocking("cpu")?)
            }
        )*}

        mod gpu {$(
            #[test]
            fn $test() -> super::Result {
                super::cuda().iter().try_for_each(super::$test)
            }
        )*}
    };
}

on_each_device! {
    text_is_that_of_the_committed_weights
    modes_give_the_same_symbols
    batch_equals_each_sequence_alone
    logits_match_the_reference
    steps_behind_the_last_position_do_nothing
    no_tokens_give_the_prompts
}

/// Short prompts of different lengths: 3, 5, 7 and so on.
fn some_prompts(count: usize) -> Result<Vec<Symbols>> {
    let lengths = (3..).step_by(2);
    let prompt = |(prompt, length): (&str, usize)| Symbols::encode(&prompt[..length]);
    Ok(prompts().take(count).zip(lengths).map(prompt).collect::<std::result::Result<_, _>>()?)
}

/// The beginning of the held-out text.
fn text(length: usize) -> Result<Symbols> {
    Ok(Symbols::encode(&held_out()?.to_string()[..length])?)
}

fn text_is_that_of_the_committed_weights(device: &Device) -> Result {
    let prompt = Symbols::encode(prompts().next().unwrap_or_default())?;
    // It changes only with the weights. No logits of these steps are so close that PyTorch chooses another symbol.
    let expected = r#""My dear Watson," said Holmes, "that is a very serious arrived in the"#;
    let tokens = expected.len() - prompt.len();
    let texts = Fixture::new(device)?.generate(&[prompt], Mode::Graph, tokens)?;
    assert_eq!(texts[0].to_string(), expected);
    Ok(())
}

fn modes_give_the_same_symbols(device: &Device) -> Result {
    let (fixture, prompts) = (Fixture::new(device)?, some_prompts(2)?);
    let expected = fixture.generate(&prompts, Mode::Direct, 8)?;
    for (text, prompt) in expected.iter().zip(&prompts) {
        assert_eq!(text.len(), prompt.len() + 8);
        assert!(text.as_slice().starts_with(prompt.as_slice()));
    }
    for mode in [Mode::Graph, Mode::Cache] {
        let mut session = fixture.session(&prompts)?;
        let graph = mode.prepare(&mut session, &fixture.stream)?;
        // The second generation begins again at position 0.
        for _ in 0..2 {
            let op = generate(&mut session, graph.as_ref(), 8)?;
            assert_eq!(op.sync_on(&fixture.stream)?, expected, "{}", mode.name());
        }
    }
    Ok(())
}

fn batch_equals_each_sequence_alone(device: &Device) -> Result {
    // More sequences than the last kernel has warps.
    let (fixture, prompts) = (Fixture::new(device)?, some_prompts(6)?);
    let together = fixture.generate(&prompts, Mode::Graph, 5)?;
    for (prompt, expected) in prompts.into_iter().zip(together) {
        assert_eq!(fixture.generate(&[prompt], Mode::Graph, 5)?, [expected]);
    }
    Ok(())
}

fn logits_match_the_reference(device: &Device) -> Result {
    // More positions than a block has threads.
    let (fixture, prompt) = (Fixture::new(device)?, text(140)?);
    let reference = Reference::new(&Weights::load()?).logits(prompt.as_slice());
    let mut session = fixture.session(&[prompt])?;
    let graph = session.step().graph_on(&fixture.stream)?;
    assert_eq!(graph.len(), 1 + 5 * LAYERS + 2);
    for (position, expected) in reference.iter().enumerate() {
        graph.launch().sync_on(&fixture.stream)?;
        if [0, 1, 31, 32, 127, 128, 139].contains(&position) {
            let logits = to_host(session.logits()).sync_on(&fixture.stream)?;
            let far = logits.iter().zip(expected).map(|(a, b)| (a - b).abs());
            let largest = far.fold(0.0, f32::max);
            assert_eq!(logits.len(), expected.len());
            assert!(largest < 1e-3, "position {position}: logits differ by {largest}");
        }
    }
    assert_eq!(session.position().read().sync_on(&fixture.stream)?, 140);
    Ok(())
}

fn steps_behind_the_last_position_do_nothing(device: &Device) -> Result {
    let (fixture, prompt) = (Fixture::new(device)?, text(CONTEXT)?);
    let mut session = fixture.session(std::slice::from_ref(&prompt))?;
    session.position().set(CONTEXT as u32 - 1).sync_on(&fixture.stream)?;
    for _ in 0..3 {
        session.step().sync_on(&fixture.stream)?;
        assert_eq!(session.position().read().sync_on(&fixture.stream)?, CONTEXT as u32);
    }
    assert_eq!(to_host(session.tokens()).sync_on(&fixture.stream)?, prompt.as_slice());
    Ok(())
}

fn no_tokens_give_the_prompts(device: &Device) -> Result {
    let (fixture, prompts) = (Fixture::new(device)?, vec![text(CONTEXT)?]);
    for mode in Mode::ALL {
        assert_eq!(fixture.generate(&prompts, mode, 0)?, prompts);
    }
    Ok(())
}

/// The CPU device finds races and reads of memory that was never written, and runs blocks and warps in other orders.
#[test]
fn every_schedule_gives_the_same_symbols_without_races() -> Result {
    let prompts = some_prompts(5)?;
    let expected =
        Fixture::new(&cuda_async::open_blocking("cpu")?)?.generate(&prompts, Mode::Direct, 3)?;
    for seed in 0..2 {
        let options =
            CpuOptions::default().checks(Checks::all()).schedule(Schedule::Shuffled { seed });
        let fixture = Fixture::new(&Device::open(&CpuProvider::new(options), 0)?)?;
        assert_eq!(fixture.generate(&prompts, Mode::Direct, 3)?, expected);
    }
    Ok(())
}

#[test]
fn cpu_and_gpu_compute_the_same_bits() -> Result {
    let Some(gpu) = cuda() else { return Ok(()) };
    let (prompts, mut computed) = (some_prompts(3)?, Vec::new());
    for device in [cuda_async::open_blocking("cpu")?, gpu] {
        let fixture = Fixture::new(&device)?;
        let mut session = fixture.session(&prompts)?;
        let texts = generate(&mut session, None, 40)?.sync_on(&fixture.stream)?;
        let logits = to_host(session.logits()).sync_on(&fixture.stream)?;
        computed.push((texts, logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>()));
    }
    assert_eq!(computed[0], computed[1]);
    Ok(())
}

/// A model that knows only the frequency of each symbol needs 4.4 bits for a character.
#[test]
fn held_out_text_is_predicted_well() -> Result {
    let reference = Reference::new(&Weights::load()?);
    let text = held_out()?.to_string();
    let bits = (0..3).map(|window| {
        let window = Symbols::encode(&text[window * 10_000..][..CONTEXT])?;
        Ok(bits_per_character(&reference, &window))
    });
    let bits: Vec<f64> = bits.collect::<Result<_>>()?;
    let mean = bits.iter().sum::<f64>() / bits.len() as f64;
    assert!(mean < 2.1, "{mean:.3} bits per character");
    Ok(())
}

#[test]
fn prompts_that_do_not_fit_are_errors() -> Result {
    let fixture = Fixture::new(&cuda_async::open_blocking("cpu")?)?;
    let (empty, short) = (Symbols::encode("")?, Symbols::encode("The")?);
    let long = Symbols::encode(&"a".repeat(CONTEXT + 1))?;
    let message = |prompts: &[Symbols]| match Session::new(&fixture.model, prompts) {
        Ok(_) => "no error".into(),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        message(&[short.clone(), long]),
        "prompt 1 has 257 characters, and 0 are to follow; the model's context is 256 characters, \
         so write a shorter prompt or generate fewer"
    );
    assert_eq!(message(&[empty]), "prompt 0 is empty; the model continues at least one character");
    let many = vec![short.clone(); MAX_BATCH + 1];
    assert_eq!(message(&many), "a batch has 1 to 256 sequences, and this one has 257");
    assert_eq!(message(&[]), "a batch has 1 to 256 sequences, and this one has 0");

    let mut session = fixture.session(&[short])?;
    let error = generate(&mut session, None, CONTEXT - 2).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("prompt 0 has 3 characters, and 254 are to follow"), "{error}");
    assert!(generate(&mut session, None, usize::MAX).is_err());
    assert!(generate(&mut session, None, CONTEXT - 3).is_ok());
    Ok(())
}

#[test]
fn every_prompt_and_the_text_are_symbols() -> Result {
    let held_out = held_out()?;
    assert_eq!(held_out.len(), 46_919);
    assert!(held_out.as_slice().iter().all(|&symbol| (symbol as usize) < SYMBOLS));
    for prompt in prompts().take(8) {
        assert!((20..100).contains(&Symbols::encode(prompt)?.len()), "{prompt}");
    }
    assert!(Symbols::encode("tab\t").is_err());
    Ok(())
}
