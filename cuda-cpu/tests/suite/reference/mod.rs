//! Reference results from plain loops, for cases with a simple definition. A case names its reference with `ref NAME`.

mod graphs;
mod hashes;
mod integers;
mod numbers;
mod orders;

use crate::Verdict;
use crate::case::{Arg, Case};
use crate::compare::{Difference, compare};
use crate::golden::add;

/// Maps a case's inputs to its outputs, in the order of the arguments.
type Reference = fn(&Data<'_>) -> Vec<Vec<u8>>;

/// Finds a reference by name.
fn find(name: &str) -> Option<Reference> {
    let all = [numbers::ALL, orders::ALL, graphs::ALL, hashes::ALL, integers::ALL];
    all.into_iter().flatten().find(|r| r.0 == name).map(|r| r.1)
}

/// The arguments of a case before the launch.
pub(crate) struct Data<'a> {
    case: &'a Case,
}

macro_rules! elements {
    ($($name:ident: $ty:ty),*) => { $(
        /// Returns the elements of an array.
        fn $name(&self, index: usize) -> Vec<$ty> {
            let bytes = self.case.input(index);
            bytes.chunks(size_of::<$ty>()).map(|c| <$ty>::from_le_bytes(c.try_into().unwrap())).collect()
        }
    )* };
}

impl Data<'_> {
    elements!(u8s: u8, u32s: u32, i32s: i32, u64s: u64, i64s: i64, f32s: f32);

    /// Returns a scalar argument.
    fn scalar(&self, index: usize) -> usize {
        let Arg::Scalar(ty, _) = &self.case.args[index] else { panic!("no scalar") };
        ty.value(&self.case.input(index)) as usize
    }

    fn scalar_u64(&self, index: usize) -> u64 {
        self.u64s(index)[0]
    }
}

/// Returns the bytes of an output.
fn bytes<T: Copy, const N: usize>(values: &[T], to: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&v| to(v)).collect()
}

fn of_u32(values: &[u32]) -> Vec<u8> {
    bytes(values, u32::to_le_bytes)
}

fn of_u64(values: &[u64]) -> Vec<u8> {
    bytes(values, u64::to_le_bytes)
}

fn of_i32(values: &[i32]) -> Vec<u8> {
    bytes(values, i32::to_le_bytes)
}

fn of_f32(values: &[f32]) -> Vec<u8> {
    bytes(values, f32::to_le_bytes)
}

/// Runs a case and compares it with its reference bit by bit.
pub(crate) fn verdict(case: &Case, variant: &str) -> Verdict {
    let mut verdict = Verdict {
        name: case.full_name(variant),
        elements: 0,
        difference: Difference::default(),
        wrong: None,
    };
    let name = case.reference.as_deref().unwrap_or_default();
    let Some(reference) = find(name) else {
        verdict.wrong = Some(format!("no reference `{name}`"));
        return verdict;
    };
    let got = match crate::device::run(case, variant) {
        Ok(got) => got,
        Err(why) => {
            verdict.wrong = Some(why);
            return verdict;
        }
    };
    let want = reference(&Data { case });
    assert_eq!(want.len(), got.outputs.len(), "outputs of {name}");
    for (((index, ty), got), want) in case.outputs().into_iter().zip(&got.outputs).zip(&want) {
        add(&mut verdict, &compare(ty, got, want, 0, 0.0), index);
    }
    verdict
}
