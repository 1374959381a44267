//! A headless Chromium for tests of web pages, controlled over the DevTools protocol on two pipes. The tests
//! `status_page` of `cuda-node` and `page` of `examples/server` use it. Every failure is a panic, as in a test.
//!
//! The crate `headless_chrome` has no touches and no drags, listens on a TCP port, and compiles 118 crates instead of
//! 25.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use command_fds::{CommandFdExt, FdMapping};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The longest wait for a state of the page. A test that waits longer has found a bug.
const LONG: Duration = Duration::from_secs(60);

/// A browser with its own profile. Dropping it kills the browser.
pub struct Browser {
    child: Child,
    requests: PipeWriter,
    replies: BufReader<PipeReader>,
    next: u64,
    /// The messages of the browser's log that are errors.
    errors: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts the program of the environment variable `CHROMIUM`, by default `chromium`.
    pub fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let ((to_browser, requests), (replies, from_browser)) = (pipe().unwrap(), pipe().unwrap());
        let program = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".into());
        let mut command = Command::new(&program);
        // `--no-sandbox`: CI runs as root, and the page is our own.
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.args(["--no-first-run", "--remote-debugging-pipe", "--window-size=1280,1000"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let pipes = vec![
            FdMapping { parent_fd: to_browser.into(), child_fd: 3 },
            FdMapping { parent_fd: from_browser.into(), child_fd: 4 },
        ];
        command.fd_mappings(pipes).unwrap();
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        let (replies, errors) = (BufReader::new(replies), Vec::new());
        Self { child, requests, replies, next: 0, errors, _profile: profile }
    }

    /// Opens a page, and waits until it is loaded.
    pub fn open(&mut self, url: &str) -> Page<'_> {
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call(None, "Target.attachToTarget", target);
        let session = session["sessionId"].as_str().unwrap().to_owned();
        let mut page = Page { browser: self, session };
        page.call("Log.enable", json!({}));
        page.call("Page.navigate", json!({ "url": url }));
        page.wait_until(&format!(
            "document.readyState === 'complete' && location.href === '{url}'"
        ));
        page
    }

    /// Calls a method and waits for its result.
    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut request = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut message = Vec::new();
            self.replies.read_until(0, &mut message).unwrap();
            assert_eq!(message.pop(), Some(0), "the browser ended");
            let message: Value = serde_json::from_slice(&message).unwrap();
            let entry = &message["params"]["entry"];
            if message["method"] == "Log.entryAdded" && entry["level"] == "error" {
                self.errors.push(entry["text"].as_str().unwrap().to_owned());
            }
            if message["id"] == self.next {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// An open page.
pub struct Page<'a> {
    browser: &'a mut Browser,
    session: String,
}

impl Page<'_> {
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        let result = self.call("Runtime.evaluate", params);
        // The page may not be there yet.
        result["result"]["value"].clone()
    }

    /// Evaluates an expression that is a text.
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.evaluate(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}")).to_owned()
    }

    /// Waits until an expression is true.
    pub fn wait_until(&mut self, expression: &str) {
        let started = Instant::now();
        while self.evaluate(expression) != true {
            assert!(
                started.elapsed() < LONG,
                "waited too long until {expression}; the page is {}",
                self.evaluate("document.body.innerText"),
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks the middle of an element, which `selector` names.
    pub fn click(&mut self, selector: &str) {
        self.drag(selector, &[(0.5, 0.5)]);
    }

    /// Moves the mouse with a pressed button over points of an element. A point is a part of the element's width and of
    /// its height: (0, 0) is the top left corner, (1, 1) the bottom right one.
    pub fn drag(&mut self, selector: &str, points: &[(f64, f64)]) {
        let points = self.positions(selector, points);
        let mut event = |kind: &str, (x, y): (f64, f64)| {
            let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", params);
        };
        event("mousePressed", points[0]);
        points.iter().for_each(|point| event("mouseMoved", *point));
        event("mouseReleased", points[points.len() - 1]);
    }

    /// Does the same as [`drag`](Page::drag) with a finger.
    pub fn touch(&mut self, selector: &str, points: &[(f64, f64)]) {
        let points = self.positions(selector, points);
        let mut event = |kind: &str, points: &[(f64, f64)]| {
            let points: Vec<_> = points.iter().map(|(x, y)| json!({ "x": x, "y": y })).collect();
            self.call("Input.dispatchTouchEvent", json!({ "type": kind, "touchPoints": points }));
        };
        event("touchStart", &points[..1]);
        points.iter().for_each(|point| event("touchMove", &[*point]));
        event("touchEnd", &[]);
    }

    /// Returns the positions of points of an element in the window.
    fn positions(&mut self, selector: &str, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let sides = format!(
            "(() => {{ const box = document.querySelector('{selector}').getBoundingClientRect(); \
             return [box.left, box.top, box.width, box.height]; }})()"
        );
        let sides = self.evaluate(&sides);
        let side = |index: usize| sides[index].as_f64().unwrap_or_else(|| panic!("no {selector}"));
        let [left, top, width, height] = [0, 1, 2, 3].map(side);
        points.iter().map(|(x, y)| (left + x * width, top + y * height)).collect()
    }

    /// Presses and releases a key, as `Escape`, `Tab` or `Enter`.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => panic!("no code of the key {key} is known"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut params =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if key == "Enter" && kind == "keyDown" {
                // Without a text the key does not click the focused button.
                params["text"] = "\r".into();
            }
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// Shows the page as in a dark theme.
    pub fn set_dark(&mut self) {
        let dark = json!({ "name": "prefers-color-scheme", "value": "dark" });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [dark] }));
    }

    /// A picture of the page, as a PNG file.
    pub fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        data_encoding::BASE64.decode(picture["data"].as_str().unwrap().as_bytes()).unwrap()
    }

    /// The violations of the page's content security policy so far.
    pub fn violations(&mut self) -> Vec<String> {
        // The browser sends the entries of its log in front of the reply.
        self.evaluate("0");
        let of_policy = |error: &&String| error.contains("Content Security Policy");
        self.browser.errors.iter().filter(of_policy).cloned().collect()
    }

    /// Waits until the page has violated its content security policy.
    pub fn wait_for_violation(&mut self) {
        let started = Instant::now();
        while self.violations().is_empty() {
            assert!(started.elapsed() < LONG, "the policy blocks nothing");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
