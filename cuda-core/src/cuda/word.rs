//! One word of host memory per stream, which says how far the stream is.
//!
//! # Who may touch what, and when
//! A word lies in page-locked memory that is never given back: the device may write to it whenever it gets there,
//! also long after its stream was destroyed. It counts up from 0. Who asks for the next number holds `asked` until
//! the driver has taken the write, so the numbers come in order. A word is used again for another stream
//! only when every number that was asked for has been written: then no write is on its way.

use std::ptr::NonNull;

use super::{
    api::{Address, Api, HOST_DEVICE_MAP, HOST_PORTABLE, HostPointer},
    context::Bound,
    status::Failed,
};
use crate::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

/// Bytes that are page-locked at once.
const PAGE: usize = 4096;

/// Each word has a cache line of its own.
const STRIDE: usize = 64;

/// The word of one stream.
#[derive(Debug)]
pub(super) struct Word {
    place: Place,
    /// The last number that was asked for.
    asked: Mutex<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    value: &'static AtomicU64,
    /// Where the device finds it.
    address: Address,
}

impl Word {
    /// Has `enqueue` ask the device to write the next number; gives that number.
    pub(super) fn ask(
        &self,
        enqueue: impl FnOnce(u64) -> Result<(), Failed>,
    ) -> Result<u64, Failed> {
        let mut asked = self.asked.lock();
        enqueue(*asked + 1)?;
        *asked += 1;
        Ok(*asked)
    }

    pub(super) fn value(&self) -> &'static AtomicU64 {
        self.place.value
    }

    pub(super) fn address(&self) -> Address {
        self.place.address
    }

    #[cfg(test)]
    pub(super) fn on_the_heap() -> Self {
        let value = Box::leak(Box::default());
        Self { place: Place { value, address: 0 }, asked: Mutex::new(0) }
    }
}

/// The words that no stream has, with the number that each has still to reach.
#[derive(Debug, Default)]
pub(super) struct Words(Mutex<Vec<(Place, u64)>>);

impl Words {
    /// A word, at 0.
    pub(super) fn take(&self, api: &Api, _: &Bound) -> Result<Word, Failed> {
        let mut words = self.0.lock();
        let free = |(place, asked): &(Place, u64)| place.value.load(Ordering::Acquire) >= *asked;
        let place = match words.iter().position(free) {
            Some(index) => words.swap_remove(index).0,
            None => {
                // SAFETY: a `Bound` lives, so the context is current.
                words.extend(unsafe { page(api) }?.map(|place| (place, 0)));
                return words.pop().map(|(place, _)| Word::at(place)).ok_or(OUT_OF_WORDS);
            }
        };
        Ok(Word::at(place))
    }

    /// Takes back the word of a stream that nobody uses. Calls no driver.
    pub(super) fn give(&self, word: &mut Word) {
        self.0.lock().push((word.place, *word.asked.get_mut()));
    }
}

const OUT_OF_WORDS: Failed = Failed { call: "cuMemHostAlloc", code: super::status::OUT_OF_MEMORY };

impl Word {
    fn at(place: Place) -> Self {
        place.value.store(0, Ordering::Release);
        Self { place, asked: Mutex::new(0) }
    }
}

/// A page of words.
///
/// # Safety
/// The context is current.
unsafe fn page(api: &Api) -> Result<impl Iterator<Item = Place>, Failed> {
    let mut start = HostPointer::NULL;
    let mut device: Address = 0;
    // SAFETY: writes one pointer.
    unsafe { api.host_alloc(&mut start, PAGE, HOST_PORTABLE | HOST_DEVICE_MAP) }?;
    // SAFETY: writes one address; the memory was made for the device to see.
    unsafe { api.host_device_pointer(&mut device, start, 0) }?;
    let first = NonNull::new(start.0.cast::<u8>()).ok_or(OUT_OF_WORDS)?;
    Ok((0..PAGE / STRIDE).map(move |index| {
        let offset = index * STRIDE;
        // SAFETY: inside the page, which is aligned to more than eight bytes, is never freed, and which nobody
        // but this place's owner and the device use, both by whole words.
        let value = unsafe {
            let at = first.add(offset).cast::<AtomicU64>();
            at.write(AtomicU64::new(0));
            at.as_ref()
        };
        Place { value, address: device + offset as Address }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_up_and_a_refused_one_is_asked_for_again() {
        let word = Word::on_the_heap();
        let refused = Failed { call: "x", code: 1 };
        assert_eq!(
            word.ask(|number| {
                assert_eq!(number, 1);
                Ok(())
            }),
            Ok(1)
        );
        assert_eq!(word.ask(|_| Err(refused)), Err(refused));
        assert_eq!(
            word.ask(|number| {
                assert_eq!(number, 2);
                Ok(())
            }),
            Ok(2)
        );
    }
}
