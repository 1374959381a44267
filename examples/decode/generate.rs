//! Generation: the steps that continue the prompts of a session, as one operation.

use cuda_async::{graph::CudaGraph, prelude::*};

use super::{CONTEXT, Error, Session, Symbols};

/// The way in which the steps of a generation are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every step is an operation, whose kernels are launched one by one.
    Direct,
    /// The step is recorded once, and replayed for each symbol.
    Graph,
    /// As [`Direct`](Mode::Direct), but the device finds the steps that repeat, and launches them as graphs.
    Cache,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Graph, Self::Cache];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Graph => "graph",
            Self::Cache => "cache",
        }
    }

    /// Turns the graph cache of the device on or off for this mode, and records the step if this mode needs it. The
    /// setting of the cache stays.
    ///
    /// # Errors
    /// The error of the recording.
    pub fn prepare(
        self,
        session: &mut Session,
        stream: &cuda_async::Stream,
    ) -> cuda_async::Result<Option<CudaGraph<()>>> {
        stream.device().set_graph_cache(self == Self::Cache);
        if self != Self::Graph {
            return Ok(None);
        }
        let graph = session.step().graph_on(stream)?;
        graph.upload()?;
        Ok(Some(graph))
    }
}

// ANCHOR: generate
/// Returns an operation that continues each prompt of the session by `tokens` symbols. It launches `graph`, the
/// recorded step of the session, or runs the step itself. Prompts are read by the same steps. The host waits once, for
/// the symbols.
///
/// # Errors
/// [`Error::TooLong`] if a prompt and its continuation do not fit.
pub fn generate<'a>(
    session: &'a mut Session,
    graph: Option<&'a CudaGraph<()>>,
    tokens: usize,
) -> Result<impl DeviceOp<Output = Vec<Symbols>> + 'a, Error> {
    session.check_length(tokens)?;
    let steps = session.steps(tokens);
    Ok(script(async move |cx| {
        cx.run(session.position().set(0)).await?;
        for _ in 0..steps {
            match graph {
                Some(graph) => drop(cx.run(graph.launch()).await?),
                None => cx.run(session.step()).await?,
            }
        }
        let symbols = cx.run(to_host(session.tokens())).await?;
        let lengths = session.prompt_lengths().iter().map(|length| length + tokens);
        let texts = symbols.chunks(CONTEXT).zip(lengths);
        Ok(texts.map(|(symbols, length)| Symbols::from_device(&symbols[..length])).collect())
    }))
}
// ANCHOR_END: generate
