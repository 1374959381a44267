//! Replays the seeds and the corpus of a lease fuzzer, for the tests of `cuda-lease` and `cuda-node`.

#[path = "corpus.rs"]
mod corpus;

/// Runs a target on every seed and on every input of a corpus. A panic of any thread ends the process, as in a fuzzer.
pub fn replay(name: &str, target: impl Fn(&[u8])) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let seeds = corpus::seeds("seeds-lease").into_iter().filter(|(path, _)| path.contains(name));
    let inputs = corpus::unpack(name);
    assert!(inputs.len() > 20, "the corpus is gone");
    let numbered = inputs.into_iter().enumerate().map(|(i, input)| (format!("{name} {i}"), input));
    for (name, input) in seeds.chain(numbered) {
        println!("{name}");
        target(&input);
    }
}
