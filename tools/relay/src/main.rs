//! `cuda-lease-relay SERVER [OPTION VALUE]..`: runs a relay to a server until it is killed.

#[cfg(target_os = "linux")]
mod arguments;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::process::ExitCode;

    let (server, options) = match arguments::parse(std::env::args().skip(1)) {
        Ok(parsed) => parsed,
        Err(problem) => {
            eprintln!("{problem}\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(server, options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the relay to {server} cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(target_os = "linux")]
fn run(server: std::net::SocketAddr, options: relay::RelayOptions) -> std::io::Result<()> {
    let relay = relay::Relay::start(server, options)?;
    println!("{} -> {server}", relay.address());
    let mut last = relay.counters()?;
    loop {
        std::thread::sleep(std::time::Duration::from_secs(5));
        let counters = relay.counters()?;
        if counters != last {
            println!("to server: {:?}\nto client: {:?}", counters.to_server, counters.to_client);
            last = counters;
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("cuda-lease-relay runs on Linux only");
}
