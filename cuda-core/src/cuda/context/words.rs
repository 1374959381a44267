//! The words of streams: host memory that a stream writes, to show its progress.
//!
//! # Rules
//! - A word lies in pinned memory that is never freed: the device may write it at any time, also after its stream was
//!   destroyed.
//! - A word counts up from 0. `streams::Reports` enqueues its writes in order, with growing values.
//! - A word is reused only when it shows the last value that was enqueued for it. Then no write is in flight.

use std::ptr::NonNull;

use super::bound::Bound;
use crate::{
    cuda::driver::{
        api::{Address, Api, HOST_DEVICE_MAP, HOST_PORTABLE, HostPointer},
        status::{self, Failed},
    },
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes that are pinned at once: the words of 1024 streams.
const PAGE: usize = 64 << 10;

/// Each word has a cache line of its own.
const STRIDE: usize = 64;

/// The word of one stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word {
    value: &'static AtomicU64,
    /// Its address on the device.
    address: Address,
}

impl Word {
    /// The value that the device wrote last. Memory operations of the stream before that write are visible to this
    /// thread.
    #[inline]
    pub(crate) fn load(self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// Writes the word in place of the device, from a host function.
    pub(crate) fn store(self, value: u64) {
        self.value.store(value, Ordering::Release);
    }

    pub(crate) fn address(self) -> Address {
        self.address
    }

    #[cfg(test)]
    pub(crate) fn on_the_heap() -> Self {
        Self { value: Box::leak(Box::default()), address: 0 }
    }
}

/// The words that no stream uses.
#[derive(Debug, Default)]
pub(crate) struct Words(Mutex<Vec<Unused>>);

#[derive(Debug)]
struct Unused {
    word: Word,
    /// The last value that was enqueued for it.
    last: u64,
}

impl Words {
    /// Pins the first page, so that [`take`](Self::take) pins memory only for more than 1024 streams.
    pub(super) fn reserve(&self, api: &Api, bound: &Bound) -> Result<(), Failed> {
        let page = page(api, bound)?;
        self.0.lock().extend(page.map(|word| Unused { word, last: 0 }));
        Ok(())
    }

    /// Takes an unused word and sets it to 0.
    pub(crate) fn take(&self, api: &Api, bound: &Bound) -> Result<Word, Failed> {
        let mut unused = self.0.lock();
        let settled = |it: &Unused| it.word.load() >= it.last;
        let word = match unused.iter().position(settled) {
            Some(index) => unused.swap_remove(index).word,
            None => {
                let mut page = page(api, bound)?;
                let first = page.next().ok_or(OUT_OF_WORDS)?;
                unused.extend(page.map(|word| Unused { word, last: 0 }));
                first
            }
        };
        drop(unused);
        word.store(0);
        Ok(word)
    }

    /// Takes back the word of a stream that was dropped. `last` is the last value that was enqueued for it. Calls no
    /// driver.
    pub(crate) fn give(&self, word: Word, last: u64) {
        self.0.lock().push(Unused { word, last });
    }
}

const OUT_OF_WORDS: Failed = Failed { call: "cuMemHostAlloc", code: status::OUT_OF_MEMORY };

/// A page of words.
fn page(api: &Api, _: &Bound) -> Result<impl Iterator<Item = Word>, Failed> {
    let mut start = HostPointer::NULL;
    let mut device: Address = 0;
    // SAFETY: writes one pointer; the context is bound.
    unsafe { api.host_alloc(&mut start, PAGE, HOST_PORTABLE | HOST_DEVICE_MAP) }?;
    // SAFETY: writes one address; the memory is mapped for the device.
    unsafe { api.host_device_pointer(&mut device, start, 0) }?;
    let first = NonNull::new(start.0.cast::<u8>()).ok_or(OUT_OF_WORDS)?;
    Ok((0..PAGE / STRIDE).map(move |index| {
        let offset = index * STRIDE;
        // SAFETY: inside the memory, which is aligned to more than eight bytes and is never freed. Only the owner of this
        // word and the device use it, both by whole words.
        let value = unsafe {
            let at = first.add(offset).cast::<AtomicU64>();
            at.write(AtomicU64::new(0));
            at.as_ref()
        };
        Word { value, address: device + offset as Address }
    }))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn word_with_a_write_in_flight_is_not_settled() {
        let (words, word) = (Words::default(), Word::on_the_heap());
        word.store(1);
        words.give(word, 2);
        let settled = || words.0.lock().iter().filter(|it| it.word.load() >= it.last).count();
        assert_eq!(settled(), 0);
        word.store(2);
        assert_eq!(settled(), 1);
    }
}
