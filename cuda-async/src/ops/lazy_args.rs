//! `ready_args`: the arguments of a launch or of a tensor operation, which may be operations, in sequence on one stream.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Given, LazyArg, Op, Submit, Submitted},
};

/// The arguments of an operation, as a tree of pairs: `(Arg(x), (Arg(y), Arg(z)))`, or `()`. [`kernels!`](crate::kernels)
/// generates a balanced tree.
// Balanced, so that the types of a launch with many buffers stay within the compiler's limit of recursion.
pub trait LazyArgs: Send + Sized {
    /// The arguments when they are ready, as the same tree.
    type Ready: Send;
    /// The steps that yield them.
    type Steps: Submit<Output = Self::Ready>;

    /// Converts the arguments into steps that yield them when they are ready.
    fn into_steps(self) -> Self::Steps;
}

/// One argument in a tree of [`LazyArgs`].
#[derive(Debug)]
pub struct Arg<A>(pub A);

impl<A: LazyArg> LazyArgs for Arg<A> {
    type Ready = A::Ready;
    type Steps = A::Steps;

    #[inline(always)]
    fn into_steps(self) -> A::Steps {
        self.0.into_arg_steps()
    }
}

impl LazyArgs for () {
    type Ready = ();
    type Steps = Given<()>;

    #[inline(always)]
    fn into_steps(self) -> Given<()> {
        Given::new(())
    }
}

impl<A: LazyArgs, B: LazyArgs> LazyArgs for (A, B) {
    type Ready = (A::Ready, B::Ready);
    type Steps = InSequence<A::Steps, B::Steps>;

    #[inline(always)]
    fn into_steps(self) -> Self::Steps {
        let (first, rest) = self;
        InSequence(State::First(first.into_steps(), rest.into_steps()))
    }
}

/// Returns an operation that yields the arguments when they are ready.
///
/// The operations among them run one after the other on one stream. So the operation that takes the arguments waits for no
/// event, and an argument that is ready costs nothing. The first error ends the operation.
#[inline]
pub fn ready_args<A: LazyArgs>(args: A) -> Op<A::Steps> {
    Op::new(args.into_steps())
}

/// The steps of the first arguments, and then the steps of the rest.
pub struct InSequence<A: Submit, B>(State<A, A::Output, B>);

// Not `Live<State>`: see `Chain`.
enum State<A, T, B> {
    First(A, B),
    Rest(T, B),
    Ended,
}

impl<A, T, B> State<A, T, B> {
    /// Takes the state and leaves the steps ended.
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Ended)
    }
}

impl<A: Submit, B: Submit> Submit for InSequence<A, B> {
    type Output = (A::Output, B::Output);

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        if let State::First(first, _) = &mut self.0 {
            let output = ready!(first.poll_submit(task, cx));
            let State::First(_, rest) = self.0.take() else {
                return Poll::Ready(Err(Error::AlreadyEnded));
            };
            self.0 = State::Rest(output?, rest);
        }
        let State::Rest(_, rest) = &mut self.0 else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let rest = ready!(rest.poll_submit(task, cx));
        let State::Rest(first, _) = self.0.take() else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        Poll::Ready(rest.map(|rest| (first, rest)))
    }

    #[inline(always)] // so buffers that are ready never move into a state
    fn submit_now(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self> {
        let (first, rest) = match self.0 {
            State::First(first, rest) => match first.submit_now(task, cx) {
                Ok(Ok(output)) => (output, rest),
                Ok(Err(error)) => return Ok(Err(error)),
                Err(first) => return Err(Self(State::First(first, rest))),
            },
            State::Rest(first, rest) => (first, rest),
            State::Ended => return Ok(Err(Error::AlreadyEnded)),
        };
        match rest.submit_now(task, cx) {
            Ok(rest) => Ok(rest.map(|rest| (first, rest))),
            Err(rest) => Err(Self(State::Rest(first, rest))),
        }
    }

    fn nested_boxes(&self) -> usize {
        match &self.0 {
            State::First(first, rest) => first.nested_boxes().max(rest.nested_boxes()),
            State::Rest(_, rest) => rest.nested_boxes(),
            State::Ended => 0,
        }
    }
}
