//! `cuda-lease submit`: input, arguments, output.

use std::process::{Command, Stdio};

use cuda_lease::LeaseBuilder;

use crate::{
    support::{Place, Run, wait_until},
    worker,
};

/// A kernel with an array by value: `out[0] = table[2] + x`.
const TABLE: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry pick(.param .u64 out, .param .align 4 .b8 table[16], .param .f32 x)
{
    .reg .f32 %f<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.f32 %f1, [table+8];
    ld.param.f32 %f2, [x];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%rd1], %f3;
    ret;
}
";

#[test]
fn iota_prints_the_numbers_from_1_to_256() {
    let line = "submit --ptx K/iota.ptx --kernel iota --grid 1 --block 256 --arg u32=256 \
                --output-bytes 1024 --format f32";
    let expected: String = (1..=256).map(|number| format!("{number}.0\n")).collect();
    assert_eq!(Place::new().run(line).done(), expected);
}

#[test]
fn input_is_changed_in_the_region() {
    let place = Place::new();
    let values = [1.5f32, -2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
    place.save("x.bin", &values);
    let square = "submit --ptx K/iota.ptx --kernel square --block 32 --arg u32=4 --output-bytes 16";
    let printed = place.run(&format!("{square} --input x.bin --format f32")).done();
    assert_eq!(printed, "2.25\n4.0\n9.0\n16.0\n");
    // The output of one submit, as .npy, is the input of the next.
    place.run(&format!("{square} --input x.bin --format npy --out y.npy")).done();
    let printed = place.run(&format!("{square} --input y.npy --format npy:f32 --out y.npy")).done();
    assert_eq!(printed, "");
    let expected = [1.5f32, -2.0, 3.0, 4.0].map(|x| (x * x * x * x).to_le_bytes()).concat();
    assert!(place.load("y.npy").starts_with(b"\x93NUMPY\x01\x00"));
    assert!(place.load("y.npy").ends_with(&expected));
}

#[test]
fn output_is_a_part_of_the_region_in_every_format() {
    let place = Place::new();
    let at = |format: &str| format!("--output-offset 4 --output-bytes 8 --format {format}");
    assert_eq!(place.iota(&at("f32")).done(), "2.0\n3.0\n");
    assert_eq!(place.iota(&at("u32")).done(), "1073741824\n1077936128\n");
    assert_eq!(place.iota(&at("hex")).done(), "00000000  00 00 00 40 00 00 40 40\n");
    let bytes = [2.0f32, 3.0].map(f32::to_le_bytes).concat();
    assert_eq!(place.iota(&at("raw")).done_with_bytes(), bytes);
    place.save("out.bin", "old");
    assert_eq!(place.iota(&format!("{} --out out.bin", at("raw"))).done(), "");
    assert_eq!(place.load("out.bin"), bytes);
}

#[test]
fn arrays_are_arguments_by_value() {
    let place = Place::new();
    place.save("table.ptx", TABLE);
    place.save("table.bin", [1f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat());
    let pick = "submit --ptx table.ptx --kernel pick --output-bytes 4 --format f32 --arg";
    assert_eq!(place.run(&format!("{pick} f32@table.bin --arg f32=0.5")).done(), "3.5\n");
    assert_eq!(place.run(&format!("{pick} bytes@table.bin --arg f32=-1")).done(), "2.0\n");
    place.run(&format!("{pick} f64@table.bin --arg f32=0")).done();
    let wrong = place.run(&format!("{pick} u32=7 --arg f32=0"));
    wrong.failed(2, "has 4 bytes, parameter `table` takes 16");
}

#[test]
fn text_of_the_kernel_is_on_stderr() {
    let place = Place::new();
    let line = "submit --ptx K/print.ptx --kernel print_values --block 32 --arg u32=2 \
                --output-bytes 8 --format f32";
    let run = place.run(line);
    assert_eq!(run.stderr, "x[0] = 0.000\nx[1] = 0.000\n");
}

#[test]
fn large_input_shows_no_progress_without_a_terminal() {
    let place = Place::new();
    place.save("large.bin", vec![0; 3 << 20]);
    // `done` checks that stderr is empty.
    let square = "submit --ptx K/iota.ptx --kernel square --block 32 --arg u32=1 --output-bytes 4";
    assert_eq!(place.run(&format!("{square} --input large.bin --format f32")).done(), "0.0\n");
}

#[test]
fn progress_of_an_input_ends_at_its_length() {
    let place = Place::new();
    let lease = LeaseBuilder::new(place.address()).min_vram(16 << 20).acquire_blocking().unwrap();
    let ptx = include_str!("../../../kernels/iota.ptx");
    let (sender, sent) = std::sync::mpsc::channel();
    let submit = lease.submit("square", ptx).arg(&0u32).input_bytes(vec![0; 1_000_000]);
    submit.on_sent(move |bytes| sender.send(bytes).unwrap()).launch_blocking().unwrap();
    let sent: Vec<u64> = sent.try_iter().collect();
    // The node does not have the module at first, so the input travels twice, or is refused early the first time.
    let last = sent.iter().rposition(|bytes| *bytes == 0).unwrap();
    assert_eq!(sent[last..], [0, 262_144, 524_288, 786_432, 1_000_000]);
}

#[test]
fn lease_of_a_submit_is_freed_before_the_program_ends() {
    let place = Place::with(|options, folder| options.audit = Some(folder.join("audit")));
    place.iota("--output-bytes 16").done();
    let log = || String::from_utf8(place.load("audit")).unwrap();
    wait_until("the lease has ended", || log().contains("\"ended\""));
    assert!(log().contains("\"freed\""), "{}", log());
}

#[test]
fn submit_ends_at_its_time_limit() {
    let place = Place::with(|options, _| options.devices = vec![worker::device()]);
    let endless = "submit --ptx K/faults.ptx --kernel run_forever --region-bytes 1024";
    let run = place.run(&format!("{endless} --lease-secs 600 --timeout 1"));
    run.failed(4, "kernel `run_forever`: did not end within 1 s (--timeout)");
    place.has_no_lease();
    place.run(&format!("{endless} --timeout 1 --token t")).failed(2, "--timeout");
}

#[test]
fn interrupted_submit_frees_its_lease() {
    for (signal, status) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let place = Place::with(|options, folder| {
            options.devices = vec![worker::device()];
            options.audit = Some(folder.join("audit"));
        });
        let endless =
            "submit --ptx K/faults.ptx --kernel run_forever --region-bytes 1024 --lease-secs 600";
        let mut command = place.command(&format!("{endless} --node {}", place.address()));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = || String::from_utf8(place.load("audit")).unwrap();
        wait_until("the program has its lease", || {
            let leases = place.run("top --json").done_with_json()["leases"].take();
            // The time begins when the worker is ready.
            leases[0]["expires_in_ms"].as_u64().is_some_and(|left| left < 599_900)
        });
        let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        Run::new(child.wait_with_output().unwrap()).failed(status, "was interrupted by");
        wait_until("the lease has ended", || log().contains("\"ended\""));
        assert!(log().contains("\"freed\""), "{}", log());
    }
}

#[test]
fn interrupted_submit_on_an_allocated_lease_names_the_lease() {
    let place = Place::with(|options, _| options.devices = vec![worker::device()]);
    let lease = place.run("alloc --json --min-vram 1MiB").done_with_json();
    place.save("lease.json", lease.to_string());
    let endless = "submit --ptx K/faults.ptx --kernel run_forever --region-bytes 1024";
    let mut command = place.command(&format!("{endless} --lease lease.json"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that handles SIGINT has a bit in this mask.
    let status = || std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = || {
        let status = status();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    };
    wait_until("the program waits for signals", || caught() & (1 << 1) != 0);
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let words = format!("the kernel may run until lease {} ends", lease["lease"]);
    Run::new(child.wait_with_output().unwrap()).failed(130, &words);
    place.run("free --lease lease.json").done();
}
