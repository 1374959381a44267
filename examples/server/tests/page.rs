//! The page of the server in a headless browser. `cargo xtask ci browser` installs Chromium and runs these tests; a
//! plain `cargo test` leaves them out. With `SERVER_PAGE_PICTURES=DIR` they write pictures of the page there.

use std::{f64::consts::TAU, net::SocketAddr, path::PathBuf, time::Duration};

use browser::{Browser, Page};
use cuda_async::Error;
use server_example::{Classifier, Limits, serve};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    sync::oneshot::{Sender, channel},
    task::JoinHandle,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const CANVAS: &str = "#canvas";

/// A digit as strokes.
type Strokes = Vec<Vec<(f64, f64)>>;

/// Returns points on straight lines from corner to corner.
fn lines(corners: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let line = |ends: &[(f64, f64)]| {
        let ((x, y), (to_x, to_y)) = (ends[0], ends[1]);
        (0..=10).map(f64::from).map(move |n| (x + n * (to_x - x) / 10.0, y + n * (to_y - y) / 10.0))
    };
    corners.windows(2).flat_map(line).collect()
}

/// Returns points on a part of an ellipse. Angles are parts of a turn from the top, clockwise.
fn arc(middle: (f64, f64), width: f64, height: f64, from: f64, to: f64) -> Vec<(f64, f64)> {
    let at = |n: u32| {
        let angle = TAU * (from + (to - from) * f64::from(n) / 30.0);
        (middle.0 + width / 2.0 * angle.sin(), middle.1 - height / 2.0 * angle.cos())
    };
    (0..=30).map(at).collect()
}

/// Returns points on a line that crosses itself in the middle, as an 8 of one stroke.
fn crossed_loop() -> Vec<(f64, f64)> {
    let at = |angle: f64| (0.5 + 0.16 * (2.0 * angle).sin(), 0.5 - 0.35 * angle.cos());
    (0..=60).map(|n| at(TAU * f64::from(n) / 60.0)).collect()
}

/// Returns the digits from 0 to 9.
fn digits() -> [Strokes; 10] {
    let two = [
        arc((0.5, 0.33), 0.36, 0.36, -0.25, 0.3),
        lines(&[(0.65, 0.42), (0.3, 0.85), (0.72, 0.85)]),
    ];
    let three =
        [arc((0.47, 0.33), 0.34, 0.34, -0.2, 0.48), arc((0.47, 0.67), 0.4, 0.36, 0.02, 0.7)];
    let five = [
        lines(&[(0.68, 0.15), (0.38, 0.15), (0.36, 0.45)]),
        arc((0.48, 0.63), 0.42, 0.42, -0.12, 0.7),
    ];
    let six = [
        lines(&[(0.6, 0.15), (0.42, 0.38), (0.34, 0.65)]),
        arc((0.5, 0.67), 0.32, 0.36, -0.25, 0.75),
    ];
    let nine = [
        arc((0.5, 0.33), 0.34, 0.36, 0.25, 1.25),
        lines(&[(0.67, 0.33), (0.64, 0.6), (0.55, 0.85)]),
    ];
    [
        vec![arc((0.4, 0.55), 0.4, 0.6, 0.0, 1.0)],
        vec![lines(&[(0.5, 0.15), (0.5, 0.85)])],
        vec![two.concat()],
        vec![three.concat()],
        vec![
            lines(&[(0.45, 0.15), (0.3, 0.55), (0.72, 0.55)]),
            lines(&[(0.6, 0.35), (0.58, 0.88)]),
        ],
        vec![five.concat()],
        vec![six.concat()],
        vec![lines(&[(0.3, 0.2), (0.7, 0.2), (0.42, 0.85)]), lines(&[(0.4, 0.5), (0.7, 0.5)])],
        vec![crossed_loop()],
        vec![nine.concat()],
    ]
}

fn zero() -> Vec<(f64, f64)> {
    digits()[0].concat()
}

fn one() -> Vec<(f64, f64)> {
    digits()[1].concat()
}

/// A server on the CPU device.
struct Server {
    address: SocketAddr,
    stop: Option<Sender<()>>,
    task: JoinHandle<cuda_async::Result<usize>>,
    runtime: Runtime,
}

impl Server {
    fn start(
        limits: Limits,
        load: impl Future<Output = cuda_async::Result<Classifier>> + Send + 'static,
    ) -> Result<Self> {
        let runtime = Runtime::new()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = channel();
        let shutdown = async { stopped.await.unwrap_or_default() };
        let task = runtime.spawn(serve(listener, limits, load, shutdown));
        Ok(Self { address, stop: Some(stop), task, runtime })
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn stop(mut self) -> Result {
        drop(self.stop.take());
        self.runtime.block_on(self.task)??;
        Ok(())
    }
}

fn cpu() -> impl Future<Output = cuda_async::Result<Classifier>> + Send {
    Classifier::open(Some("cpu".into()))
}

/// Waits until the page shows a text.
fn shows(page: &mut Page<'_>, text: &str) {
    page.wait_until(&format!(
        "document.querySelector('#answer').textContent.replace(/\\s+/g, ' ') === '{text}'"
    ));
}

fn is_bad(page: &mut Page<'_>) -> bool {
    page.text("document.querySelector('#answer').className") == "bad"
}

/// Returns the number of meters that show a probability of more than 0.5, as a text.
fn high_meters(page: &mut Page<'_>) -> String {
    page.text(
        "String([...document.querySelectorAll('meter')].filter((it) => it.value > 0.5).length)",
    )
}

/// Writes a picture of the page, if `SERVER_PAGE_PICTURES` is set.
fn picture(page: &mut Page<'_>, name: &str) -> Result {
    if let Some(folder) = std::env::var_os("SERVER_PAGE_PICTURES") {
        std::fs::write(PathBuf::from(folder).join(name), page.picture())?;
    }
    Ok(())
}

#[test]
#[ignore = "needs Chromium: `cargo xtask ci browser` runs it"]
fn page_reads_digits_and_reports_an_unreachable_server() -> Result {
    let server = Server::start(Limits::default(), cpu())?;
    let mut browser = Browser::start();
    let mut page = browser.open(&server.url());
    shows(&mut page, "Nothing is drawn.");
    // A small digit in a corner: the page centers and scales it.
    let small = vec![lines(&[(0.85, 0.7), (0.85, 0.9)])];
    for (name, strokes) in (0..).zip(digits()).chain([(1, small)]) {
        for stroke in &strokes {
            page.drag(CANVAS, stroke);
        }
        shows(&mut page, &format!("This is a {name}"));
        assert_eq!(high_meters(&mut page), "1");
        picture(&mut page, &format!("{name}.png"))?;
        page.click("#clear");
        shows(&mut page, "Nothing is drawn.");
        assert_eq!(high_meters(&mut page), "0");
    }
    page.touch(CANVAS, &one());
    shows(&mut page, "This is a 1");
    page.press("Escape");
    shows(&mut page, "Nothing is drawn.");
    page.drag(CANVAS, &zero());
    shows(&mut page, "This is a 0");
    // The first element in the order of the keyboard is the button that clears the drawing.
    page.press("Tab");
    assert_eq!(page.text("document.activeElement.id"), "clear");
    page.press("Enter");
    shows(&mut page, "Nothing is drawn.");

    server.stop()?;
    page.drag(CANVAS, &one());
    shows(&mut page, "The server cannot be reached. Check that it runs, and try again.");
    assert!(is_bad(&mut page));
    page.set_dark();
    picture(&mut page, "gone.png")?;
    assert_eq!(page.violations(), [""; 0]);
    Ok(())
}

#[test]
#[ignore = "needs Chromium: `cargo xtask ci browser` runs it"]
fn page_tries_again_when_the_server_is_ready() -> Result {
    let (loaded, load) = channel();
    let load = async { load.await.map_err(Error::other) };
    let server = Server::start(Limits::default(), load)?;
    let mut browser = Browser::start();
    let mut page = browser.open(&server.url());
    page.drag(CANVAS, &one());
    shows(&mut page, "The server is busy or not ready. Try again in a moment.");
    assert!(is_bad(&mut page));
    assert!(loaded.send(server.runtime.block_on(cpu())?).is_ok());
    page.wait_until(
        "fetch('/health').then((it) => { window.ready = it.ok; }), window.ready === true",
    );
    page.click("#again");
    shows(&mut page, "This is a 1");
    assert_eq!(page.text("String(document.querySelector('#again').hidden)"), "true");
    server.stop()
}

/// The batch waits longer than the deadline of its only request.
#[test]
#[ignore = "needs Chromium: `cargo xtask ci browser` runs it"]
fn page_reports_a_late_answer() -> Result {
    let deadline = Duration::from_millis(50);
    let limits = Limits { wait: Duration::from_secs(600), deadline, ..Limits::default() };
    let server = Server::start(limits, cpu())?;
    let mut browser = Browser::start();
    let mut page = browser.open(&server.url());
    page.wait_until(
        "fetch('/health').then((it) => { window.ready = it.ok; }), window.ready === true",
    );
    page.drag(CANVAS, &one());
    shows(&mut page, "The server did not answer in time. Try again.");
    assert!(is_bad(&mut page));
    Ok(())
}
