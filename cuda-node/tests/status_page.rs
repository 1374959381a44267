//! The status page in a headless browser. `cargo xtask ci browser` installs Chromium and runs these tests; a plain
//! `cargo test` leaves them out. With `STATUS_PAGE_PICTURES=DIR` they write pictures of the page there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{net::TcpListener, path::PathBuf};

use browser::{Browser, Page};
use cuda_cpu::CpuProvider;
use cuda_lease::LeaseBuilder;
use cuda_node::{
    metrics::{DeviceStatus, LeaseStatus, Snapshot},
    status,
    supervisor::{DeviceOptions, Node, NodeOptions},
};

/// Writes a picture of the page, if the environment asks for it.
fn picture(page: &mut Page<'_>, name: &str) {
    if let Some(folder) = std::env::var_os("STATUS_PAGE_PICTURES") {
        std::fs::write(PathBuf::from(folder).join(name), page.picture()).unwrap();
    }
}

#[test]
#[ignore = "needs Chromium: `cargo xtask ci browser` runs it"]
fn page_follows_a_lease_from_grant_to_end() {
    let device = DeviceOptions::in_process(CpuProvider::default()).capacity(8 << 30).max_leases(8);
    let mut options = NodeOptions::loopback(vec![device]);
    options.metrics = Some(([127, 0, 0, 1], 0).into());
    let node = Node::start(options).unwrap();
    let lease = || LeaseBuilder::new(node.address().to_string()).min_vram(1 << 30);
    let mut browser = Browser::start();
    let mut page = browser.open(&format!("http://{}/", node.metrics_address().unwrap()));
    page.wait_until("document.querySelector('#none').hidden === false");

    let (first, second) =
        (lease().acquire_blocking().unwrap(), lease().acquire_blocking().unwrap());
    let row = |id: u64| format!("document.querySelector('tr[data-lease=\"{id}\"]')");
    page.wait_until(&format!("{} !== null && {} !== null", row(first.id()), row(second.id())));
    let text = page.text(&format!("{}.innerText", row(first.id())));
    for part in [first.id().to_string().as_str(), "local", "shared", "active", "of 1.00 GiB"] {
        assert!(text.contains(part), "no {part:?} in {text:?}");
    }
    let stream = first.device().new_stream().unwrap();
    let memory = cuda_async::DeviceBuffer::<u8>::uninitialized(&stream, 700 << 20).unwrap();
    let bar = format!("{}.querySelector('.bar > span').style.width", row(first.id()));
    page.wait_until(&format!("parseFloat({bar}) > 60"));
    page.wait_until("document.querySelector('#devices tbody').innerText.includes('2 of 8')");
    picture(&mut page, "light.png");
    page.set_dark();
    picture(&mut page, "dark.png");

    let id = first.id();
    drop((memory, stream));
    first.free();
    page.wait_until(&format!("{} === null && {} !== null", row(id), row(second.id())));
    page.wait_until("document.querySelector('#ends').innerText.includes('freed')");
    drop(node);
    page.wait_until("document.querySelector('#state').className === 'bad'");
    assert_eq!(page.violations(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: `cargo xtask ci browser` runs it"]
fn text_of_tenants_is_not_markup() {
    let markup = "<b id=\"injected\" onclick=\"alert(1)\">name</b><script>document.title = 'injected'</script>";
    let snapshot = move || Snapshot {
        devices: vec![DeviceStatus { name: markup.into(), ..DeviceStatus::default() }],
        leases: vec![LeaseStatus { id: 7, tenant: markup.into(), ..LeaseStatus::default() }],
        ..Snapshot::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    runtime.spawn(status::serve(listener, Vec::new(), snapshot).unwrap());
    let mut browser = Browser::start();
    let mut page = browser.open(&format!("http://{address}/"));
    page.wait_until("document.querySelector('tr[data-lease=\"7\"]') !== null");
    let row = page.text("document.querySelector('tr[data-lease=\"7\"]').innerText");
    assert!(row.contains(markup), "{row:?}");
    assert_eq!(page.text("String(document.querySelector('#injected'))"), "null");
    assert_eq!(page.text("document.title"), "cuda-node");
    assert_eq!(page.violations(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: `cargo xtask ci browser` runs it"]
fn policy_of_the_page_blocks_scripts_in_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    runtime.spawn(status::serve(listener, Vec::new(), Snapshot::default).unwrap());
    let mut browser = Browser::start();
    let mut page = browser.open(&format!("http://{address}/"));
    page.wait_until("document.querySelector('#state').textContent.startsWith('up for')");
    page.text(
        "(() => { const added = document.createElement('script'); added.textContent = 'document.title = \"run\"'; document.body.append(added); return ''; })()",
    );
    assert_eq!(page.text("document.title"), "cuda-node");
    page.wait_for_violation();
}
