//! What the person who runs a coordinator does to it: a service manager, a supervisor's probes, a reload, a look at its host.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::besieged::{API, Coordinator, LIMIT, Site, request};
use landfall_edge::testing::ports;
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixStream};

const PROGRAM: &str = env!("CARGO_BIN_EXE_landfall-coordinator");

/// No event tells of it: looked at again and again, for a bounded time.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn site(more: &str) -> Site {
    Site::new("127.0.0.1", ports(), more)
}

async fn get(path: &Path, route: &str) -> (u16, String) {
    request(UnixStream::connect(path).await.unwrap(), "GET", route, "").await
}

fn figure(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{metrics}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_is_notified_and_a_drain_succeeds() {
    let site = site("");
    let socket = site.dir.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = Command::new(PROGRAM);
    command.arg("--config").arg(site.dir.path().join("c.toml")).env("NOTIFY_SOCKET", &socket);
    command.env("WATCHDOG_USEC", "10000000");
    let mut coordinator = Coordinator::start(command, site.dir.path().join("log"));
    let heard = || {
        let mut buffer = [0; 256];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let beats = std::cell::Cell::new(0);
    let notified = || loop {
        match heard() {
            beat if beat == "WATCHDOG=1" => beats.set(beats.get() + 1),
            other => return other,
        }
    };
    assert_eq!(notified(), "READY=1");
    if beats.get() == 0 {
        assert_eq!(heard(), "WATCHDOG=1");
    }
    coordinator.signal("HUP");
    assert!(notified().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(notified(), "READY=1");
    coordinator.signal("TERM");
    assert_eq!(notified(), "STOPPING=1");
    let status = until("the end", async || coordinator.ended()).await;
    assert!(status.success(), "{status}\n{}", coordinator.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_need_a_viewer_except_on_their_own_port() {
    let [own] = ports();
    let site = site(&format!("[metrics]\nlisten = \"127.0.0.1:{own}\"\n"));
    let _coordinator = site.start(&[]);
    site.run().await;
    let ask =
        async |route: &str| request(TcpStream::connect(("127.0.0.1", own)).await.unwrap(), "GET", route, "").await;
    assert_eq!(ask("/healthz").await.0, 200);
    let (status, answer) = ask("/readyz").await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(status, 200, "{answer:#}");
    let checks: Vec<_> = answer["checks"].as_array().unwrap().iter().map(|c| c["check"].as_str().unwrap()).collect();
    assert_eq!(checks, ["store", "documents", "boot services", "deadlines", "clock", "certificate authority"]);
    let (status, metrics) = ask("/metrics").await;
    assert_eq!(status, 200);
    assert_eq!(figure(&metrics, "landfall_machines{phase=\"Provisioning\"}"), 1.0);
    assert_eq!(figure(&metrics, "landfall_workflows{phase=\"Pending\"}"), 1.0);
    assert!(figure(&metrics, "landfall_store_commit_seconds_count") >= 3.0);
    assert!(figure(&metrics, "landfall_store_bytes{file=\"db\"}") > 0.0);
    assert!(figure(&metrics, "process_resident_memory_bytes") > 1e6);
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("landfall_") || name.starts_with("process_"), "{line}");
        assert!(value.parse::<f64>().is_ok() && !name.contains("m1"), "{line}");
    }
    assert_eq!(ask("/apis/landfall.dev/v1alpha1/machines").await.0, 404, "nothing else is there");

    let (anonymous, viewers) = (site.tls_client(&[b"http/1.1"], false), site.tls_client(&[b"http/1.1"], true));
    for (route, anybody) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 401)] {
        assert_eq!(site.operator(&anonymous, route).await, anybody, "{route}");
        assert_eq!(site.operator(&viewers, route).await, 200, "{route}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_applies_what_it_can_and_keeps_valid_settings() {
    let site = site("");
    let coordinator = site.start(&[]);
    let (path, socket) = (site.dir.path().join("c.toml"), site.dir.path().join("data/api.sock"));
    let manifests = site.dir.path().join("manifest.d");
    std::fs::create_dir(&manifests).unwrap();
    let right = std::fs::read_to_string(&path).unwrap();
    let said = async |text: &str| until(text, async || coordinator.log().contains(text).then_some(())).await;

    std::fs::write(&path, format!("{right}lase = \"9s\"\n")).unwrap();
    coordinator.signal("HUP");
    said("there is no key \"lase\" here; did you mean \"lease\"?").await;
    said("the previous one stays in force").await;

    let more = format!(
        "lease = \"11m\"\ncertificate_ttl = \"2h\"\n[manifests]\ndirectory = {manifests:?}\n[log]\nfilter = \"debug\"\n"
    );
    std::fs::write(&path, format!("{right}{more}")).unwrap();
    coordinator.signal("HUP");
    said("changed=\"limits.lease, manifests.directory, log.filter\"").await;
    said("RUST_LOG is set and has priority over log.filter").await;
    said("these changes need a restart keys=\"limits.certificate_ttl\"").await;

    // The directory is watched from now on, faults and all.
    let machine = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": {"name": "n1"},
        "spec": {"identity": {"macs": ["52:54:00:00:00:09"]}}});
    std::fs::write(manifests.join("a.json"), machine.to_string()).unwrap();
    std::fs::write(manifests.join("b.yaml"), "kind: Machine\nmetadata: {nam: x}\n").unwrap();
    let applied = until("the apply", async || {
        let (status, answer) = get(&socket, &format!("{API}/machines/n1")).await;
        (status == 200).then_some(answer)
    });
    let machine: Value = serde_json::from_str(&applied.await).unwrap();
    assert_eq!(machine["metadata"]["labels"]["landfall.dev/manifest"], "a.json", "{machine:#}");
    let report = until("the report", async || {
        let report: Value = serde_json::from_str(&get(&socket, &format!("{API}/manifests")).await.1).unwrap();
        (report["files"].as_array().unwrap().len() == 2).then_some(report)
    });
    let report = report.await;
    let subject = report["files"][1]["problems"][0]["subject"].as_str().unwrap();
    assert!(subject.starts_with("b.yaml:"), "{report:#}");
    let history = get(&socket, &format!("{API}/machines/n1/history")).await.1;
    assert!(history.contains("manifest/a.json"), "{history}");
}

fn doctor(site: &Site) -> (Output, Value) {
    let output = Command::new(PROGRAM)
        .args(["doctor", "-o", "json", "--config"])
        .arg(site.dir.path().join("c.toml"))
        .output()
        .unwrap();
    let answer = serde_json::from_slice(&output.stdout).unwrap();
    (output, answer)
}

fn found<'a>(answer: &'a Value, check: &str) -> Vec<&'a Value> {
    answer["checks"].as_array().unwrap().iter().filter(|c| c["check"] == check).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_reports_faults_before_and_during_a_run() {
    let site = site("");
    let (output, answer) = doctor(&site);
    assert!(output.status.success(), "{answer:#}");
    assert!(found(&answer, "port").iter().all(|c| c["message"].as_str().unwrap().ends_with("is free")), "{answer:#}");
    assert!(!site.dir.path().join("data").exists(), "it makes nothing");

    let coordinator = site.start(&[]);
    let (output, answer) = doctor(&site);
    assert!(output.status.success(), "{answer:#}");
    assert!(
        found(&answer, "port").iter().all(|c| c["message"].as_str().unwrap().ends_with("is the coordinator's")),
        "{answer:#}"
    );
    for check in ["certificate authority", "operator's certificate", "server's certificate", "file modes"] {
        assert_eq!(found(&answer, check)[0]["level"], "ok", "{answer:#}");
    }
    drop(coordinator);

    let taken = std::net::TcpListener::bind(site.tls_address()).unwrap();
    let chmod = Command::new("chmod").arg("644").arg(site.dir.path().join("data/pki/ca.key")).status().unwrap();
    assert!(chmod.success());
    let (output, answer) = doctor(&site);
    assert_eq!(output.status.code(), Some(1));
    let port = found(&answer, "port").into_iter().find(|c| c["level"] == "fail").unwrap();
    assert!(port["message"].as_str().unwrap().contains("(tls.listen) is used by"), "{answer:#}");
    assert!(found(&answer, "file modes")[0]["hint"].as_str().unwrap().starts_with("run chmod"), "{answer:#}");
    drop(taken);
    let text = Command::new(PROGRAM).args(["doctor", "--config"]).arg(site.dir.path().join("c.toml")).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("fail  file modes") && text.contains("-> run chmod"), "{text}");
}
