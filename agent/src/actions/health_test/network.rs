//! The network: a file is fetched again and again, and what the ports counted as damaged meanwhile is read.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use landfall_api::{ErrorCode, HealthReport, HealthTestKind, HttpMethod, ImageProof, Problem, Progress, SecretText};
use landfall_disk::{Access, Call, CallError, CancelFlag, WriteError, image_at, open_source, shown_name};

use super::super::at_once::failure;
use super::super::{final_failure, installed_root::may_act};
use super::{of_time, single, too_slow};
use crate::logging::Logged;
use crate::runner::{Failure, Job};

/// Read at once, bytes.
const PIECE: usize = 256 << 10;
/// So long, or half of a shorter test, nothing comes only from a network that fails.
const SILENT: Duration = Duration::from_secs(5);
/// So long, or a tenth of a shorter test, nothing comes before the server is asked why, and between two such questions.
const LULL: Duration = Duration::from_secs(1);
/// How long a server may take to answer whether it still has the file.
const ASK: Duration = Duration::from_secs(2);
/// Between looks whether the time is over, or the job stopped.
const LOOK: Duration = Duration::from_millis(100);
/// Between reports of progress.
const TICK: Duration = Duration::from_millis(500);
const PORTS: &str = "/sys/class/net";
/// The kernel's counters of damaged frames (Linux, Documentation/networking/statistics.rst). Dropped ones are none: a port also drops
/// what is not for it.
const COUNTERS: [&str; 2] = ["rx_errors", "tx_errors"];

/// Tests it. Blocking.
pub(super) fn test(job: &Job, url: &str, time: Duration, min_speed: Option<u64>) -> Result<Vec<HealthReport>, Failure> {
    let (started, began) = (Timestamp::now(), Instant::now());
    let before = damaged(Path::new(PORTS));
    // A URL's query is often a secret.
    let shown = shown_name(&image_at(url, ImageProof::Waived));
    job.doing.begin("test", &shown);
    let (over, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (asking, last, fault) = (CancelFlag::new(), AtomicU64::new(0), OnceLock::new());
    let fetched = thread::scope(|scope| {
        // A server that says nothing ends neither the test nor a cancel.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                stop.store(may_act(job).is_err() || began.elapsed() >= time, Ordering::Relaxed);
                thread::sleep(LOOK);
            }
        });
        // A server that was away and is back before the end leaves a silence, or a low speed, that is not the machine's.
        scope.spawn(|| {
            let (lull, mut asked) = (LULL.min(time / 10), began);
            while !over.load(Ordering::Relaxed) && fault.get().is_none() {
                let silent = began.elapsed().saturating_sub(Duration::from_millis(last.load(Ordering::Relaxed)));
                if silent >= lull && asked.elapsed() >= lull {
                    asked = Instant::now();
                    fault_of_server(url, &asking).into_iter().for_each(|why| _ = fault.set(why));
                }
                thread::sleep(LOOK.min(lull));
            }
        });
        let fetched = fetch(job, url, (began, time), &stop, &last);
        over.store(true, Ordering::Relaxed);
        asking.cancel();
        fetched
    });
    let Fetched { bytes, silent, broke_off } = fetched?;
    let bytes_per_second = speed(bytes, began.elapsed());
    if bytes == 0 {
        // Nothing says that it is the machine's fault: the log has what the connections ended with.
        let text = format!("nothing came from {shown} within {} s", time.as_secs_f64());
        let hint = "check the URL and its server; the log says why each connection ended";
        return Err(final_failure(Problem::new(ErrorCode::SourceUnreachable, text).hint(hint).at(shown)));
    }
    let slow = too_slow(&format!("{shown} comes with"), bytes_per_second, min_speed);
    let stopped = match broke_off {
        Some(error) => Some(format!("the connection broke off: {error}")),
        None if silent >= SILENT.min(time / 2) => {
            Some(format!("nothing came from {shown} for the last {} s", silent.as_secs_f64()))
        }
        None => None,
    };
    let (mut errors, mut damages) = (0, Vec::new());
    for (port, now) in damaged(Path::new(PORTS)) {
        // A port that came meanwhile counts from when its driver was loaded.
        let Some((_, known)) = before.iter().find(|(name, _)| *name == port) else { continue };
        let count = now.saturating_sub(*known);
        errors += count;
        damages.extend((count > 0).then(|| format!("port {port} counted {count} damaged frames")));
    }
    let asked = if stopped.is_some() { fault_of_server(url, &CancelFlag::new()) } else { None };
    let mut faults: Vec<String> = slow.into_iter().chain(stopped).collect();
    if let Some(why) = fault.into_inner().or(asked).filter(|_| errors == 0 && !faults.is_empty()) {
        let hint = "check that server, then run the test again";
        let text = format!("{}; the fault is the server's: {why}", faults.join("; "));
        let problem = Problem::new(ErrorCode::SourceUnreachable, text).hint(hint).at(shown);
        return Err(Failure { problem, retryable: true });
    }
    faults.extend(damages);
    Ok(single(
        job,
        HealthReport {
            bytes,
            bytes_per_second,
            errors,
            faults,
            ..HealthReport::begun(HealthTestKind::Network, "network", started)
        },
    ))
}

/// What came.
struct Fetched {
    bytes: u64,
    /// How long nothing had come at the end.
    silent: Duration,
    /// Why it ended before the time was over.
    broke_off: Option<String>,
}

/// Fetches until the time is over, or until the server fails after something came. `came`: when something came last, milliseconds
/// after the begin.
fn fetch(
    job: &Job, url: &str, (began, time): (Instant, Duration), stop: &AtomicBool, came: &AtomicU64,
) -> Result<Fetched, Failure> {
    // Nothing of it is kept, so nothing has to prove it.
    let image = image_at(url, ImageProof::Waived);
    let (mut piece, mut bytes, mut said, mut last) = (vec![0; PIECE], 0_u64, began, began);
    while began.elapsed() < time {
        let mut source = open_source(&image, false, &Logged).map_err(|error| failure(&error))?;
        while began.elapsed() < time {
            may_act(job)?;
            match source.read(&mut piece, stop) {
                Ok(0) => break,
                Ok(n) => {
                    (bytes, last) = (bytes + n as u64, Instant::now());
                    came.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
                }
                Err(error) => {
                    may_act(job)?;
                    let early = began.elapsed() < time;
                    // Nothing came, or the server answered something else: that says nothing of the machine.
                    let answered = !matches!(error, WriteError::Unreachable { .. } | WriteError::Truncated { .. });
                    if early && (bytes == 0 || answered) {
                        return Err(failure(&error));
                    }
                    let broke_off = early.then(|| error.to_string());
                    return Ok(Fetched { bytes, silent: last.elapsed(), broke_off });
                }
            }
            if said.elapsed() >= TICK {
                said = Instant::now();
                let (raw_bytes, bytes_per_second) = (bytes, speed(bytes, began.elapsed()));
                let so_far = of_time(time, time.saturating_sub(began.elapsed()));
                job.report.progress(job.action, Progress { raw_bytes, bytes_per_second, ..so_far });
            }
        }
    }
    may_act(job)?;
    Ok(Fetched { bytes, silent: last.elapsed(), broke_off: None })
}

/// Why the server, and not the network, ended the download, where its host shows that now. Silence shows nothing. An answer to this
/// small request shows nothing either: a network may lose large frames alone.
fn fault_of_server(url: &str, cancel: &CancelFlag) -> Option<String> {
    // As the test itself asks: some servers refuse HEAD.
    let first_byte = [("Range".to_owned(), SecretText::new("bytes=0-0"))];
    let call = Call {
        method: HttpMethod::Get,
        url,
        headers: &first_byte,
        body: None,
        access: &Access::default(),
        expected: &[],
        most: 0,
        within: Some(ASK),
    };
    match call.make(cancel) {
        Ok(answer) if answer.status >= 400 => Some(format!("it answered {}", answer.status)),
        Err(error @ CallError::NoAnswer { closed: true, .. }) => Some(error.to_string()),
        _ => None,
    }
}

fn speed(bytes: u64, time: Duration) -> u64 {
    (bytes as f64 / time.as_secs_f64().max(0.001)) as u64
}

/// Each port that is a device, and its damaged frames since it is there.
fn damaged(ports: &Path) -> Vec<(String, u64)> {
    let all = fs::read_dir(ports).into_iter().flatten().flatten().map(|one| one.path());
    let counted = all.filter(|port| port.join("device").exists()).map(|port| {
        let number =
            |counter: &str| fs::read_to_string(port.join("statistics").join(counter)).ok()?.trim().parse::<u64>().ok();
        let name = port.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        (name, COUNTERS.into_iter().filter_map(number).sum())
    });
    counted.collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use landfall_api::{HealthTest, message::ActionKind};

    use super::*;
    use crate::actions::testing;

    const TIME: Duration = Duration::from_millis(300);

    fn job(url: &str) -> Job {
        let test = HealthTest::Network { url: url.into(), time: TIME, min_speed: None };
        testing::job(ActionKind::HealthTest(test))
    }

    /// Serves 64 KiB to each that asks, for as long as the test lives.
    fn server() -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut head = [0; 4096];
                if stream.read(&mut head).unwrap_or(0) == 0 {
                    continue;
                }
                let head = "HTTP/1.1 200 OK\r\ncontent-length: 65536\r\nconnection: close\r\n\r\n";
                drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&[0; 65536])));
            }
        });
        url
    }

    #[test]
    fn a_file_is_fetched_until_the_time_is_over() {
        let url = server();
        let [report] = &test(&job(&url), &url, TIME, Some(1)).unwrap()[..] else { panic!("one report") };
        assert!(report.passed() && report.bytes > 2 * 65536, "{report:?}");
        let [slow] = &test(&job(&url), &url, TIME, Some(u64::MAX)).unwrap()[..] else { panic!("one report") };
        assert!(slow.faults[0].contains("and the limit is"), "{:?}", slow.faults);
    }

    #[test]
    fn a_network_that_dies_in_the_middle_fails() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/file?secret=x", listener.local_addr().unwrap());
        // Something listens there to the end, and says nothing more.
        let _listens = listener.try_clone().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            assert!(stream.read(&mut head).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 65536\r\n\r\nfirst").unwrap();
            // It stays open until the test has ended.
            drop(stream.read(&mut head));
        });
        let [report] = &test(&job(&url), &url, TIME, None).unwrap()[..] else { panic!("one report") };
        let [fault] = &report.faults[..] else { panic!("{report:?}") };
        assert!(fault.contains("for the last 0.") && !fault.contains("secret"), "{fault}");
        server.join().unwrap();
    }

    #[test]
    fn a_server_that_refuses_is_no_fault_of_the_machine() {
        let url = "http://127.0.0.1:1/file";
        let failure = test(&job(url), url, TIME, None).unwrap_err();
        assert_eq!((failure.problem.code, failure.problem.subject.as_str()), (ErrorCode::SourceUnreachable, url));
    }

    #[test]
    fn a_server_that_dies_is_no_fault_of_the_machine() {
        // It ends after the first bytes; then nothing listens there, or a server that lacks the file or cannot serve it.
        let unavailable = "503 Service Unavailable";
        for (then, wanted) in
            [(None, "Connection refused"), (Some("404 Not Found"), "404"), (Some(unavailable), "answered 503")]
        {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let url = format!("http://{}/file", listener.local_addr().unwrap());
            thread::spawn(move || {
                let answer = |text: &str| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut head = [0; 4096];
                    assert!(stream.read(&mut head).unwrap() > 0 && head.starts_with(b"GET "));
                    stream.write_all(text.as_bytes()).unwrap();
                };
                answer("HTTP/1.1 200 OK\r\ncontent-length: 65536\r\n\r\nfirst");
                while let Some(status) = then {
                    answer(&format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"));
                }
            });
            // Long enough for the first bytes to come early also on a busy host.
            let Failure { problem, .. } = test(&job(&url), &url, TIME * 4, None).unwrap_err();
            assert!(problem.code == ErrorCode::SourceUnreachable && problem.message.contains(wanted), "{problem}");
        }
    }

    #[test]
    fn a_server_that_was_away_is_not_the_machines_fault() {
        // For half the time it cannot serve the file. Then it goes on, too slowly in all, or says nothing.
        for (goes_on, wanted) in [(true, "and the limit is"), (false, "nothing came")] {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let url = format!("http://{}/file", listener.local_addr().unwrap());
            thread::spawn(move || {
                let (began, mut held) = (Instant::now(), Vec::new());
                while let Ok((mut stream, _)) = listener.accept() {
                    let mut head = [0; 4096];
                    let length = stream.read(&mut head).unwrap_or(0);
                    let text: &str = match head[..length].windows(9).any(|part| part == b"bytes=0-0") {
                        true if began.elapsed() < TIME * 3 => {
                            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
                        }
                        true => "",
                        false => "HTTP/1.1 200 OK\r\ncontent-length: 65536\r\n\r\nfirst",
                    };
                    // The test may have ended the connection.
                    drop(stream.write_all(text.as_bytes()));
                    if text.ends_with("first") && goes_on {
                        thread::spawn(move || {
                            thread::sleep((TIME * 3).saturating_sub(began.elapsed()));
                            while stream.write_all(b"more").is_ok() {
                                thread::sleep(LOOK / 4);
                            }
                        });
                    } else {
                        held.push(stream);
                    }
                }
            });
            let Failure { problem, .. } = test(&job(&url), &url, TIME * 6, Some(u64::MAX)).unwrap_err();
            let texts = [wanted, "the fault is the server's: it answered 503"];
            assert!(texts.iter().all(|text| problem.message.contains(text)), "{problem}");
            assert_eq!(problem.message.contains("nothing came"), !goes_on, "{problem}");
        }
    }

    #[test]
    fn damaged_frames_are_read_of_devices_alone() {
        let dir = tempfile::tempdir().unwrap();
        for (port, device) in [("eth0", true), ("lo", false)] {
            let statistics = dir.path().join(port).join("statistics");
            fs::create_dir_all(&statistics).unwrap();
            fs::write(statistics.join("rx_errors"), "5\n").unwrap();
            fs::write(statistics.join("tx_errors"), "2\n").unwrap();
            if device {
                fs::create_dir(dir.path().join(port).join("device")).unwrap();
            }
        }
        assert_eq!(damaged(dir.path()), [("eth0".to_owned(), 7)]);
    }
}
