//! `landfall console` against a coordinator that plays one, with and without a terminal.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path as Named, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::fake::{Fake, Seen, problem};

/// Generous: a loaded machine must not fail a test.
const LIMIT: Duration = Duration::from_secs(60);
const ID: &str = "2c5f3d0e-0f4b-4f0e-9d0a-5f1a2b3c4d5e";

#[derive(Clone)]
struct Consoles {
    seen: Seen,
    /// What is typed, as a machine echoes it.
    typed: broadcast::Sender<String>,
}

fn said(line: &Value) -> Result<Bytes, std::io::Error> {
    Ok(format!("{line}\n").into())
}

async fn open(State(state): State<Consoles>, Named(name): Named<String>, body: String) -> Response {
    let count = {
        let mut seen = state.seen.lock().unwrap();
        seen.push(format!("console {name} {body}"));
        seen.iter().filter(|what| what.starts_with("console")).count()
    };
    let ended = json!({"ended": {"code": "Conflict", "message": "bob took the console over", "hint": "open it again"}});
    let opened = json!({ "opened": ID });
    // "a\xff\0\r\n~."
    let bytes = json!({"output": "Yf8ADQp+Lg=="});
    let lines = match name.as_str() {
        "taken" => return problem(StatusCode::CONFLICT, "MachineBusy", "the console is open: ann"),
        "ends" => {
            vec![said(&opened), said(&bytes), said(&json!({"notice": "no power\u{1b}[2J"})), said(&bytes), said(&ended)]
        }
        "lost" if count == 1 => vec![said(&opened), said(&bytes)],
        "lost" => vec![said(&opened), said(&bytes), said(&ended)],
        _ => {
            // "login: "
            let first = stream::iter([said(&opened), said(&json!({"output": "bG9naW46IA=="}))]);
            let echo = stream::unfold(state.typed.subscribe(), |mut typed| async move {
                let characters = typed.recv().await.ok()?;
                Some((said(&json!({ "output": characters })), typed))
            });
            return Body::from_stream(first.chain(echo)).into_response();
        }
    };
    Body::from_stream(stream::iter(lines)).into_response()
}

async fn input(State(state): State<Consoles>, Json(body): Json<Value>) -> Json<Value> {
    state.seen.lock().unwrap().push(format!("input {} {}", body["characters"], body["sendBreak"]));
    drop(state.typed.send(body["characters"].as_str().unwrap().to_owned()));
    Json(json!({"number": body["number"]}))
}

/// The routes of consoles.
pub(crate) fn routes(api: &str, seen: Seen) -> Router {
    Router::new()
        .route(&format!("{api}/machines/{{name}}/console"), post(open))
        .route(&format!("{api}/machines/{{name}}/console/input"), post(input))
        .with_state(Consoles { seen, typed: broadcast::channel(64).0 })
}

/// Runs it without a terminal: the exit code, standard output and standard error.
fn piped(fake: &Fake, name: &str) -> (Option<i32>, Vec<u8>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    let output = command.args(["--server", &fake.server(), "console", name]).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn without_a_terminal_a_console_prints_the_bytes_alone() {
    let (code, out, err) = piped(&Fake::start(), "ends");
    assert_eq!(out, b"a\xff\0\r\n~.a\xff\0\r\n~.");
    assert!(err.contains("[landfall: no power") && !err.contains('\x1b'), "{err:?}");
    assert!(err.contains("bob took the console over"), "{err}");
    assert_eq!(code, Some(4));
}

#[test]
fn a_console_that_is_refused_says_why() {
    let (code, out, err) = piped(&Fake::start(), "taken");
    assert_eq!((code, out.len()), (Some(4), 0));
    assert!(err.contains("the console is open: ann"), "{err}");
}

#[test]
fn a_lost_connection_is_made_again_in_its_place() {
    let fake = Fake::start();
    let (_, out, err) = piped(&fake, "lost");
    assert_eq!(out, b"a\xff\0\r\n~.a\xff\0\r\n~.");
    assert!(err.contains("trying again") && err.contains("the console is open again"), "{err}");
    assert_eq!(fake.seen(), ["console lost {}".to_owned(), format!("console lost {{\"insteadOf\":\"{ID}\"}}")]);
}

/// The command in a terminal of its own, with the terminal's settings before and after it.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    shown: Vec<u8>,
}

impl Terminal {
    fn start(fake: &Fake) -> Self {
        let (landfall, server, dir) = (env!("CARGO_BIN_EXE_landfall"), fake.server(), fake.dir.path().display());
        let line = format!(
            "stty -g > {dir}/before; sh -c 'echo $$ > {dir}/pid; exec {landfall} --server {server} console node-1'; \
             echo code=$?; stty -g > {dir}/after"
        );
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("TERM", "dumb").env("SHELL", "/bin/sh");
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = stdout.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, output, shown: Vec::new() }
    }

    fn until(&mut self, wanted: &str) {
        while !String::from_utf8_lossy(&self.shown).contains(wanted) {
            let piece = self.output.recv_timeout(LIMIT);
            let shown = String::from_utf8_lossy(&self.shown).into_owned();
            self.shown.extend(piece.unwrap_or_else(|error| panic!("{wanted:?}: {error} after {shown:?}")));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end, and asserts that the terminal is as it was.
    fn ends(mut self, dir: &Path) {
        self.until("code=0");
        drop(self.keys);
        self.child.wait().unwrap();
        let [before, after] = ["before", "after"].map(|name| fs::read_to_string(dir.join(name)).unwrap());
        assert!(!before.is_empty());
        assert_eq!(before, after, "the terminal is as it was");
    }
}

#[test]
fn at_a_terminal_keys_go_to_the_machine() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no script(1), which makes a terminal");
        return;
    }
    let fake = Fake::start();
    let mut terminal = Terminal::start(&fake);
    terminal.until("~. after Enter ends it");
    terminal.until("login: ");
    // Ctrl-C is the machine's; the tilde within a line too.
    terminal.press("ro\x03ot~.");
    terminal.until("ro\x03ot~.");
    terminal.press("\r~?");
    terminal.until("send a break");
    terminal.press("~B~.");
    terminal.ends(fake.dir.path());
    let seen = fake.seen();
    // The key before the break goes with it, or alone if it was read first.
    let last: Vec<_> = seen.iter().skip(2).map(String::as_str).collect();
    let sent = ["input \"DQ==\" true"] == *last || ["input \"DQ==\" null", "input \"\" true"] == *last;
    assert!(sent && seen[1] == "input \"cm8Db3R+Lg==\" null", "what was typed before the end is sent: {seen:?}");
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no script(1), which makes a terminal");
        return;
    }
    for signal in ["TERM", "HUP", "INT"] {
        let fake = Fake::start();
        let mut terminal = Terminal::start(&fake);
        terminal.until("login: ");
        let pid = fs::read_to_string(fake.dir.path().join("pid")).unwrap();
        let sent = Command::new("kill").args([&format!("-{signal}"), pid.trim()]).status().unwrap();
        assert!(sent.success());
        terminal.ends(fake.dir.path());
    }
}
