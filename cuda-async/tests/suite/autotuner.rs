//! The autotuner: candidates that fail, and what is remembered where.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use cuda_async::{Device, Error, kernel::Autotuner, ops::BoxedOp, prelude::*};
use futures::executor::block_on;

use crate::{kernels::Kernels, on_every_device};

on_every_device! {
    failing_candidates_are_left_out
    choice_is_remembered_for_the_key
    choice_is_remembered_in_a_file
    damaged_file_is_written_anew
    choice_that_is_no_candidate_is_found_again
    error_is_that_of_the_last_candidate
    future_can_be_spawned
}

/// A folder that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(device: &Device, test: &str) -> Self {
        let address: String =
            device.info().address.chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("cuda-async-autotuner-{test}-{address}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // The test is instantiated for several devices with the same address.
        let path = (0..).map(|n| path.with_extension(n.to_string()));
        let mut path = path;
        let path = path.find(|path| std::fs::create_dir(path).is_ok()).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("choices")
    }

    fn names(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.0).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Tunes with candidates of which only those below 10 work. Returns the choice and the candidates that were built.
fn tune(
    tuner: &Autotuner,
    device: &Device,
    key: &str,
    candidates: &[u32],
) -> (Result<u32, Error>, Vec<u32>) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let built = RefCell::new(Vec::new());
    let best = block_on(tuner.best(key, &stream, candidates, |candidate| -> BoxedOp<_> {
        built.borrow_mut().push(candidate);
        let kernels = kernels.clone();
        let bytes = if candidate < 10 { 64 } else { 1 << 50 };
        zeros::<f32>(bytes).then(move |x| kernels.scale(x, 2.0)).boxed()
    }));
    (best, built.into_inner())
}

fn failing_candidates_are_left_out(device: &Device) {
    let tuner = Autotuner::new().rounds(3);
    let (best, built) = tune(&tuner, device, "key", &[10, 1, 11, 2]);
    assert!(matches!(best, Ok(1 | 2)), "{best:?}");
    // A warm-up and three rounds, which alternate. Those that fail are not tried again.
    assert_eq!(built, [10, 1, 11, 2, 1, 2, 1, 2, 1, 2]);
}

fn choice_is_remembered_for_the_key(device: &Device) {
    let tuner = Autotuner::new();
    let first = tune(&tuner, device, "key", &[1, 2]).0.unwrap();
    let (again, built) = tune(&tuner.clone(), device, "key", &[2, 1]);
    assert_eq!((again.unwrap(), built.len()), (first, 0));
    assert!(!tune(&tuner, device, "other key", &[1, 2]).1.is_empty());
}

fn choice_is_remembered_in_a_file(device: &Device) {
    let folder = Folder::new(device, "file");
    let tuner = || Autotuner::new().remember_in(folder.file());
    let first = tune(&tuner(), device, "a\tkey\n", &[1, 2]).0.unwrap();
    tune(&tuner(), device, "another", &[3]).0.unwrap();
    for (key, expected) in [("a\tkey\n", first), ("another", 3)] {
        let (again, built) = tune(&tuner(), device, key, &[1, 2, 3]);
        assert_eq!((again.unwrap(), built.len()), (expected, 0));
    }
    assert_eq!(folder.names(), ["choices"]);
}

fn damaged_file_is_written_anew(device: &Device) {
    let folder = Folder::new(device, "damaged");
    let tuner = || Autotuner::new().remember_in(folder.file());
    let damaged: [&[u8]; 4] =
        [b"", b"not a file of choices\n", b"\xff\xfe\n", b"cuda-async autotuner 1\nx"];
    for bytes in damaged {
        std::fs::write(folder.file(), bytes).unwrap();
        assert!(!tune(&tuner(), device, "key", &[4]).1.is_empty());
        assert!(tune(&tuner(), device, "key", &[4]).1.is_empty());
    }
    // A folder that does not exist, or stands in the place of the file, is only a warning.
    for path in [folder.file().join("missing").as_path(), folder.0.as_path()] {
        let tuner = Autotuner::new().remember_in(Path::new(path));
        assert_eq!(tune(&tuner, device, "key", &[4]).0.unwrap(), 4);
        assert!(tune(&tuner, device, "key", &[4]).1.is_empty());
    }
    assert_eq!(folder.names(), ["choices"]);
}

fn choice_that_is_no_candidate_is_found_again(device: &Device) {
    let tuner = Autotuner::new();
    tune(&tuner, device, "key", &[1]).0.unwrap();
    assert_eq!(tune(&tuner, device, "key", &[2]).0.unwrap(), 2);
}

fn error_is_that_of_the_last_candidate(device: &Device) {
    let tuner = Autotuner::new();
    let (refused, _) = tune(&tuner, device, "key", &[10, 11]);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    let (refused, _) = tune(&tuner, device, "key", &[]);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("no candidate"), "{message}");
    // Nothing was remembered.
    assert_eq!(tune(&tuner, device, "key", &[1]).0.unwrap(), 1);
}

fn future_can_be_spawned(device: &Device) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let (device, tuner) = (device.clone(), Autotuner::new());
    let best = runtime.spawn(async move {
        let stream = device.new_stream()?;
        tuner.best("key", &stream, &["only"], |_| zeros::<u8>(4)).await
    });
    assert_eq!(runtime.block_on(best).unwrap().unwrap(), "only");
}
