//! Each kind of failure has its exit status, and a message that says what to do.

use std::net::UdpSocket;

use crate::support::Place;

#[test]
fn bad_input_is_status_2() {
    let place = Place::new();
    place.save("not.json", "{}");
    place.save("not.ptx", "hello");
    place.save("not.npy", "hello");
    place.save("unknown.ptx", ".version 7.0\n.target sm_50\n.address_size 64\n.entry k(.param .u64 p) { nonsense.u32 %r1; ret; }");
    let iota = "submit --ptx K/iota.ptx --block 32 --kernel iota";
    for (line, words) in [
        ("", "Usage"),
        ("submit --kernel iota", "--ptx <FILE>|--cubin <FILE>"),
        ("alloc --lease-secs 0", "--lease-secs"),
        ("renew --token t --lease-secs 0", "--lease-secs"),
        ("submit --ptx K/iota.ptx --kernel iota --lease-secs 0", "--lease-secs"),
        ("submit --ptx K/iota.ptx --kernel iota --timeout 0", "--timeout"),
        ("certs --ca ca.pem", "unexpected argument"),
        ("submit --ptx K/iota.ptx", "--kernel"),
        ("submit --ptx K/iota.ptx --kernel iotaa", "its kernels are: iota, square"),
        ("submit --ptx none.ptx --kernel k", "cuda-lease: none.ptx: No such file"),
        ("submit --ptx not.ptx --kernel k", "not.ptx: the PTX cannot be parsed"),
        ("submit --ptx unknown.ptx --kernel k", "load failed"),
        (iota, "1 argument follows the pointer"),
        (&format!("{iota} --arg u64=1"), "--arg u64=1: has 8 bytes, parameter"),
        (&format!("{iota} --arg int=1"), "unknown type `int`; the types are bool i8"),
        (
            "submit --ptx K/iota.ptx --kernel iota --block 64,32 --arg u32=1",
            "2048 threads, the limit is 1024",
        ),
        (&format!("{iota} --arg u32=1 --grid 0"), "a dimension cannot be 0"),
        (&format!("{iota} --arg u32=1 --output-bytes 65MiB"), "the limit is 67108864 bytes"),
        (&format!("{iota} --arg u32=1 --output-bytes lots"), "write for example 8GiB"),
        (&format!("{iota} --arg u32=1 --output-bytes 6 --format f32"), "no whole number of f32"),
        (&format!("{iota} --arg u32=1 --format float"), "the formats are hex"),
        (&format!("{iota} --arg u32=1 --output-bytes 8 --region-bytes 4"), "--region-bytes"),
        (&format!("{iota} --arg u32=1 --input none.bin"), "none.bin: No such file"),
        (&format!("{iota} --arg u32=1 --input not.npy"), "not.npy: not an .npy file"),
        (&format!("{iota} --arg u32=1 --out no/such/folder"), "no/such/folder: "),
        ("free --token lt1_00", "the lease token is malformed"),
        ("free --lease not.json", "`cuda-lease alloc --out FILE` writes one"),
        ("renew", "--lease"),
        ("free", "--id"),
        ("free --id 7 --token t", "cannot be used with"),
        ("inventory --key k.pem", "--ca, --cert and --key belong together"),
        ("alloc --min-vram 1MiB --lease-secs 1000000", "bad request"),
    ] {
        place.run(line).failed(2, words);
    }
    place.run_without_node("inventory --node gpu-node").failed(2, "write HOST:PORT");
    place.run_without_node("inventory --node 10.0.0.1:1").failed(2, "(ca.pem) with --ca");
}

#[test]
fn fault_of_the_kernel_is_status_3_and_names_its_location() {
    let place = Place::new();
    let line = "submit --ptx K/faults.ptx --kernel off_by_one --block 32 --arg u32=16 \
                --output-bytes 64 --out out.bin";
    place.save("out.bin", "old");
    place.run(line).failed(3, "out-of-bounds write");
    place.run(line).failed(3, "`off_by_one`, block (0, 0, 0), thread (16, 0, 0)");
    assert_eq!(place.load("out.bin"), b"old");
    // A region that was not stated may be too small.
    let line = "submit --ptx K/iota.ptx --kernel iota --block 32 --arg u32=32";
    place.run(line).failed(3, "the region for input and output has 1 byte");
    // The node serves the next submit.
    place.iota("--output-bytes 16").done();
}

#[test]
fn refusal_is_status_4() {
    let (place, other) = (Place::new(), Place::new());
    place.run("alloc --min-vram 1000TiB").failed(4, "too large");
    let iota = "submit --ptx K/iota.ptx --kernel iota --arg u32=1";
    place.run(&format!("{iota} --output-offset 18446744073709551615")).failed(4, "too large");
    place.run("alloc --device cuda:7").failed(4, "its devices are cpu");
    let lease = other.run("alloc --json --min-vram 1MiB").done_with_json();
    let token = lease["token"].as_str().unwrap();
    place.run(&format!("free --token {token}")).failed(4, "unauthorized");
    place.iota(&format!("--token {token}")).failed(4, "unauthorized");
    for _ in 0..2 {
        place.run("alloc --min-vram 1MiB").done();
    }
    place.iota("").failed(4, "capacity exceeded");
    let device = place.run("alloc --min-vram 1MiB --exclusive device");
    device.failed(4, "--wait SECONDS; --exclusive device needs a device without other leases");
}

#[test]
fn region_beyond_the_lease_is_refused() {
    let place = Place::new();
    place.run("alloc --min-vram 1MiB --out lease.json").done();
    let line = "submit --ptx K/iota.ptx --kernel iota --arg u32=1 --region-bytes 2MiB";
    place.run(&format!("{line} --lease lease.json")).failed(4, "request a smaller region");
}

#[test]
fn node_that_does_not_answer_is_status_4() {
    // A socket that receives and never answers.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let place = Place::new();
    let inventory = format!("inventory --node {address}");
    place.run_without_node(&inventory).failed(4, "check --node, that cuda-node runs there");
    let submit = "submit --ptx K/iota.ptx --kernel iota --arg u32=1";
    place.run_without_node(&format!("{submit} --node {address}")).failed(4, "check --node");
}
