//! A headless Chromium, controlled over the DevTools protocol on two pipes.

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
