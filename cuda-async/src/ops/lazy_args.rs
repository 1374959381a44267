//! `ready_args`: the arguments of a launch or of a tensor operation, which may be operations, in sequence on one
//! stream.

use std::task::Context;

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::{LazyArg, Op, Ready, Submit, Submitted},
};

/// The arguments of an operation, as a tree of pairs: `(Arg(x), (Arg(y), Arg(z)))`, or `()`.
/// [`kernels!`](crate::kernels) generates a balanced tree.
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
    type Steps = Ready<()>;

    #[inline(always)]
    fn into_steps(self) -> Ready<()> {
        Ready::new(())
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
/// The operations among them run one after the other on one stream. So the operation that takes the arguments waits for
/// no event, and an argument that is ready costs nothing. The first error ends the operation.
#[inline]
pub fn ready_args<A: LazyArgs>(args: A) -> Op<A::Steps> {
    Op::new(args.into_steps())
}

/// The steps of the first arguments, and then the steps of the rest.
pub struct InSequence<A: Submit, B>(State<A, A::Output, B>);

enum State<A, T, B> {
    First(A, B),
    Rest(T, B),
}

impl<A: Submit, B: Submit> Submit for InSequence<A, B> {
    type Output = (A::Output, B::Output);

    #[inline(always)] // so buffers that are ready never move into a state
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let (first, rest) = match self.0 {
            State::First(first, rest) => match first.submit(task, cx)? {
                Submitted::Ready(output) => (output, rest),
                Submitted::Pending(first) => {
                    return Ok(Submitted::Pending(Self(State::First(first, rest))));
                }
            },
            State::Rest(first, rest) => (first, rest),
        };
        Ok(match rest.submit(task, cx)? {
            Submitted::Ready(rest) => Submitted::Ready((first, rest)),
            Submitted::Pending(rest) => Submitted::Pending(Self(State::Rest(first, rest))),
        })
    }
}
