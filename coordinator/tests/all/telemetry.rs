//! Progress and log lines of a real agent's session against the real process: they may come in any number, and delay
//! nothing that counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::besieged::{API, LIMIT, Site, request};
use landfall_api::message::{ActionRef, EventBody, LogLevel};
use landfall_api::{ErrorCode, Problem, Progress};
use landfall_session::Connection;
use serde_json::Value;
use tokio::{io::AsyncReadExt as _, io::AsyncWriteExt as _, net::UnixStream, time::timeout};

/// More than a person reads, and than the lines of one attempt that are kept.
const ENOUGH: u64 = 20_000;

async fn ask(site: &Site, route: &str) -> String {
    let socket = UnixStream::connect(site.dir.path().join("data/api.sock")).await.unwrap();
    let (status, answer) = request(socket, "GET", route, "").await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Lines of JSON in a body that comes in chunks.
fn records(body: &str) -> usize {
    body.lines().filter(|line| line.starts_with('{')).count()
}

/// What is counted under that name, 0 before the first.
async fn counted(site: &Site, name: &str) -> u64 {
    let metrics = ask(site, "/metrics").await;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned);
    line.map_or(0, |value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_of_logs_delays_no_heartbeat_or_event() {
    let site = Site::loopback();
    let mut coordinator = site.start(&[]);
    let run = site.run().await;
    let mut agent = site.agent().await;
    let workflow_uid = agent.assigned().await.workflow_uid;
    let action = ActionRef { workflow_uid, action_index: 0, attempt: 1 };
    agent.handle.report(action, EventBody::Started).await.unwrap();
    agent.handle.flush(LIMIT).await.unwrap();
    let before = coordinator.memory("VmRSS");

    let stop = Arc::new(AtomicBool::new(false));
    let (handle, stopped) = (agent.handle.clone(), stop.clone());
    let flood = std::thread::spawn(move || {
        let mut sent = 0;
        while !stopped.load(Ordering::Relaxed) {
            for _ in 0..100 {
                sent += 1;
                handle.log(action, LogLevel::Info, format!("{sent} {}", "x".repeat(1000)));
                let progress = Progress { raw_bytes: sent, stage: "write".into(), ..Progress::default() };
                handle.progress(action, progress);
            }
            // As fast as the queue between is emptied is as fast as it can come.
            std::thread::sleep(Duration::from_millis(1));
        }
        sent
    });
    // Until the coordinator had to leave lines out, and for some heartbeats more.
    let begun = Instant::now();
    let mut connection = agent.handle.connection();
    while counted(&site, "landfall_log_lines_left_out_total").await < ENOUGH / 10
        || begun.elapsed() < Duration::from_secs(5)
    {
        assert!(begun.elapsed() < LIMIT, "nothing was left out");
        let asked = Instant::now();
        timeout(LIMIT, ask(&site, &format!("{API}/machines"))).await.expect("an operator is answered meanwhile");
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
        assert!(matches!(*connection.borrow_and_update(), Connection::Connected { epoch: 1 }), "its session went on");
    }
    // An event goes through at once, and with it the last lines that were taken in.
    let problem = Problem::new(ErrorCode::DeviceIo, "the disk does not answer");
    let reported = Instant::now();
    agent.handle.report(action, EventBody::Failed { problem, retryable: false }).await.unwrap();
    agent.handle.flush(LIMIT).await.unwrap();
    assert!(reported.elapsed() < Duration::from_secs(10), "{:?}", reported.elapsed());
    let run: Value = serde_json::from_str(&ask(&site, &format!("{API}/workflows/{run}")).await).unwrap();
    assert_eq!(run["status"]["actions"][0]["logTail"].as_array().unwrap().len(), 50, "{run:#}");
    stop.store(true, Ordering::Relaxed);
    assert!(flood.join().unwrap() >= ENOUGH);
    let grown = coordinator.memory("VmRSS").saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB more", super::besieged::mib(grown));
    coordinator.require_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_are_followed_until_the_workflow_ends() {
    let site = Site::loopback();
    let _coordinator = site.start(&[]);
    let run = site.run().await;
    let mut agent = site.agent().await;
    let workflow_uid = agent.assigned().await.workflow_uid;
    let action = |action_index| ActionRef { workflow_uid, action_index, attempt: 1 };
    agent.handle.report(action(0), EventBody::Started).await.unwrap();
    for n in 0..10 {
        agent.handle.log(action(0), LogLevel::Info, format!("early {n}"));
    }
    let logs = format!("{API}/workflows/{run}/logs");
    let begun = Instant::now();
    while records(&ask(&site, &logs).await) < 10 {
        assert!(begun.elapsed() < LIMIT, "the lines did not come");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(records(&ask(&site, &format!("{logs}?tail=3")).await), 3);
    assert_eq!(records(&ask(&site, &format!("{logs}?action=restart")).await), 0);
    let socket = UnixStream::connect(site.dir.path().join("data/api.sock")).await.unwrap();
    assert_eq!(request(socket, "GET", &format!("{logs}?action=none"), "").await.0, 404);

    let mut follower = UnixStream::connect(site.dir.path().join("data/api.sock")).await.unwrap();
    let head = format!("GET {logs}?follow=true&action=write&tail=2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    follower.write_all(head.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains("early 9") {
        let read = timeout(LIMIT, follower.read(&mut buffer)).await.unwrap().unwrap();
        assert!(read > 0);
        seen.extend_from_slice(&buffer[..read]);
    }
    agent.handle.log(action(1), LogLevel::Info, "of another action");
    agent.handle.log(action(0), LogLevel::Error, "late");
    while !String::from_utf8_lossy(&seen).contains("late") {
        let read = timeout(LIMIT, follower.read(&mut buffer)).await.unwrap().unwrap();
        assert!(read > 0);
        seen.extend_from_slice(&buffer[..read]);
    }
    let problem = Problem::new(ErrorCode::DeviceIo, "the disk does not answer");
    agent.handle.report(action(0), EventBody::Failed { problem, retryable: false }).await.unwrap();
    timeout(LIMIT, follower.read_to_end(&mut seen)).await.expect("it ends with the run").unwrap();
    let seen = String::from_utf8_lossy(&seen);
    assert!(!seen.contains("early 7") && seen.contains("early 8") && !seen.contains("another"), "{seen}");
}
