//! loom runs the completion thread against those who ask it and a driver, and the table of recent names against
//! itself, which has one slot here.

use std::sync::{Arc, Mutex as Plain, PoisonError};

use ::loom::thread;

use super::{
    api::StreamHandle,
    completion::host_call,
    discard::Stream,
    patience::Style,
    recent::Recent,
    watch::{Ask, Asked, Inbox, watch},
    word::Word,
};
use crate::{
    Notice, NoticeSink, Result, StreamId, loom_models::check, sync::atomic::Ordering::Release,
};
use std::time::Duration;

/// A device that is never lost.
struct Healthy;

impl Ask for Healthy {
    fn is_lost(&self) -> bool {
        false
    }

    fn status(&self, _: &Stream) -> Result<()> {
        Ok(())
    }
}

/// The tokens that came.
#[derive(Default)]
struct Tokens(Plain<Vec<u64>>);

impl NoticeSink for Tokens {
    fn notice(&self, notice: Notice) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(notice.token);
    }
}

/// A stream whose word and whose place in the trash are never given back, as it is outside of models.
fn stream() -> Arc<Stream> {
    let (trash, words) = (Box::leak(Box::default()), Box::leak(Box::default()));
    Arc::new(Stream::new(StreamHandle::NULL, Word::on_the_heap(), trash, words))
}

fn ask(inbox: &Inbox, stream: &Arc<Stream>, token: u64) {
    let asked = Asked { stream: stream.clone(), id: StreamId(1), token, number: token };
    inbox.put(asked);
}

/// Two notices, asked for while the driver gets there and the thread looks, sleeps or parks; then the end.
fn every_notice_comes_once(style: Style, driver: impl FnOnce(&Arc<Inbox>, &Stream) + 'static) {
    let (inbox, stream, tokens) = (Arc::new(Inbox::default()), stream(), Arc::<Tokens>::default());
    let watcher = thread::spawn({
        let (inbox, tokens) = (inbox.clone(), tokens.clone());
        move || watch(&Healthy, style, &inbox, &*tokens)
    });
    let driver = thread::spawn({
        let (inbox, stream) = (inbox.clone(), stream.clone());
        move || driver(&inbox, &stream)
    });
    ask(&inbox, &stream, 1);
    ask(&inbox, &stream, 2);
    inbox.close();
    driver.join().unwrap();
    watcher.join().unwrap();
    assert_eq!(*tokens.0.lock().unwrap(), [1, 2]);
}

/// The driver calls host functions.
#[test]
fn a_host_function_wakes_the_thread() {
    check(Some(3), || {
        every_notice_comes_once(Style::Woken, |inbox, stream| {
            for number in [1, 2] {
                host_call(inbox, stream.word.value(), number);
            }
        });
    });
}

fn raise(_: &Arc<Inbox>, stream: &Stream) {
    stream.word.value().store(1, Release);
    stream.word.value().store(2, Release);
}

/// The stream writes its word, and the thread spins.
#[test]
fn a_spinning_thread_sees_the_words() {
    check(Some(2), || every_notice_comes_once(Style::Looks(Duration::from_micros(1)), raise));
}

/// The stream writes its word, and the thread sleeps between looks, or parks.
#[test]
fn a_thread_that_sleeps_sees_the_words() {
    check(Some(2), || every_notice_comes_once(Style::Looks(Duration::ZERO), raise));
}

fn put(recent: &Recent, key: u64) {
    recent.put([key, 0], [key * 3, key * 5]);
}

/// What is found is whole.
fn look_for(recent: &Recent, key: u64) {
    let found = recent.get([key, 0]);
    assert!(found.is_none_or(|value| value == [key * 3, key * 5]));
}

/// One name takes another's place while both are looked for. Not the other way about: loom remembers one access
/// to an atomic, and what a writer has looked at itself would hide what a reader looked at before it.
#[test]
fn a_value_belongs_to_its_key() {
    check(None, || {
        let recent = Arc::new(Recent::default());
        put(&recent, 1);
        let reader = thread::spawn({
            let recent = recent.clone();
            move || {
                look_for(&recent, 1);
                look_for(&recent, 2);
            }
        });
        put(&recent, 2);
        reader.join().unwrap();
    });
}

/// A name that is forgotten is not found, whoever else puts one in its place.
#[test]
fn what_is_forgotten_is_gone() {
    check(Some(3), || {
        let recent = Arc::new(Recent::default());
        put(&recent, 1);
        let writer = thread::spawn({
            let recent = recent.clone();
            move || put(&recent, 2)
        });
        recent.forget([1, 0]);
        assert_eq!(recent.get([1, 0]), None);
        writer.join().unwrap();
    });
}
