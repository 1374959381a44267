//! Device memory alone. It has its own process, because it measures the process's memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

use cuda_cpu::{Contents, Memory};

/// Returns the resident memory of this process in bytes.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn large_memory_costs_nothing_until_it_is_touched() {
    const LARGE: u64 = 2 << 30;
    let memory = Memory::new(1 << 40);
    #[cfg(target_os = "linux")]
    let before = resident();
    let at = memory.alloc(LARGE, 256).unwrap();
    #[cfg(target_os = "linux")]
    assert!(resident().saturating_sub(before) < LARGE / 4);
    let mut bytes = [1; 2];
    memory.read(at + Contents::MARKED - 1, &mut bytes).unwrap();
    assert_eq!(bytes, [0xFF, 0]);
    memory.write(at + LARGE - 1, &[7]).unwrap();
    memory.free(at).unwrap();
    assert_eq!(memory.usage().used, 0);
}

#[test]
fn copy_to_its_own_address_changes_nothing() {
    let memory = Memory::new(1 << 20);
    let at = memory.alloc(64, 1).unwrap();
    memory.write(at, &[7; 32]).unwrap();
    memory.copy(at, at, 64).unwrap();
    let mut bytes = [0; 64];
    memory.read(at, &mut bytes).unwrap();
    assert_eq!(bytes, [[7; 32], [0xFF; 32]].concat().as_slice());
    // The range is checked as that of every copy.
    assert!(memory.copy(at, at, 65).is_err());
    assert!(memory.copy(at + 64, at + 64, 1).is_err());
}

#[test]
fn small_memory_shows_that_it_was_not_initialized() {
    let memory = Memory::new(1 << 20);
    for bytes in [0, 1, 255, 4096, Contents::MARKED] {
        let at = memory.alloc(bytes, 1).unwrap();
        assert_eq!(at % 256, 0);
        let mut read = vec![0; bytes as usize];
        memory.read(at, &mut read).unwrap();
        assert!(read.iter().all(|&byte| byte == 0xFF));
    }
    assert!(memory.alloc(2 << 20, 1).is_err());
    assert_eq!(memory.usage().used, 256 + 4096 + Contents::MARKED);
}

#[test]
fn memory_that_the_host_does_not_have_is_not_counted() {
    let memory = Memory::new(u64::MAX);
    // More than all addresses together.
    for _ in 0..10 {
        let error = memory.alloc(1 << 62, 1).unwrap_err();
        assert!(error.refused_by_host, "{error}");
        assert_eq!(
            error.to_string(),
            "the host has no memory for an allocation of 4611686018427387904 bytes"
        );
    }
    assert_eq!((memory.usage().used, memory.usage().peak), (0, 0));
    memory.write(memory.alloc(16, 1).unwrap(), &[7; 16]).unwrap();
}
