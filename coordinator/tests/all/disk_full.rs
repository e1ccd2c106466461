//! A disk that is full, read-only, or turns read-only: clear errors, nothing acknowledged lost, and on it goes once the disk
//! is mended. File systems of the tests' own, mounted in a mount namespace that no other process sees.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::site::agent::{Agent, has_attempts, patient_template};
use super::site::{API, Coordinator, LIMIT, Site, call, machine, program};
use serde_json::{Value, json};

/// A mount namespace with a file system of its own in it; gone when dropped.
struct Namespace {
    holder: Child,
    data: PathBuf,
}

impl Namespace {
    /// Runs `mount` (a shell script; `$0` is the data directory) in a new namespace, and keeps that.
    fn new(data: &Path, mount: &str) -> Self {
        std::fs::create_dir_all(data).unwrap();
        let mut holder = Command::new("unshare")
            // `cat` ends with this process, whichever way that ends.
            .args(["--mount", "sh", "-ec", &format!("{mount}\necho mounted\nexec cat")])
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n", "needs root, and mount and unshare of util-linux");
        Self { holder, data: data.to_owned() }
    }

    /// The command, inside.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.holder.id().to_string(), program]);
        command
    }

    fn sh(&self, script: &str) {
        assert!(self.command("sh").args(["-ec", script]).arg(&self.data).status().unwrap().success(), "{script}");
    }

    /// The data directory, as seen from outside.
    fn data(&self) -> PathBuf {
        let inside = self.data.strip_prefix("/").unwrap();
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(inside)
    }

    fn socket(&self) -> PathBuf {
        self.data().join("api.sock")
    }

    fn start(&self, site: &Site) -> Coordinator {
        Coordinator::spawn(self.command(program()).args(["--config".as_ref(), site.config().as_os_str()]))
    }

    /// Starts it and waits for its refusal.
    fn refused(&self, site: &Site) -> String {
        let output = self.command(program()).args(["--config".as_ref(), site.config().as_os_str()]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{said}");
        said
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
    }
}

fn site_in(mount: &str) -> (Site, Namespace) {
    let site = Site::new();
    let namespace = Namespace::new(&site.data(), mount);
    (site, namespace)
}

/// Changes one machine again and again, each time with a serial of 20 kB that begins with its number.
struct Writer {
    socket: PathBuf,
    answered: Option<u64>,
    next: u64,
}

impl Writer {
    fn new(namespace: &Namespace) -> Self {
        Self { socket: namespace.socket(), answered: None, next: 0 }
    }

    fn write(&mut self) -> (u16, Value) {
        let mut wanted = machine("m1", "52:54:00:00:00:99");
        wanted["spec"]["identity"]["serial"] = json!(format!("{:08}{}", self.next, "x".repeat(20_000)));
        let (status, answer) = call(&self.socket, "POST", &format!("{API}/apply"), &wanted).unwrap();
        if status == 200 {
            self.answered = Some(self.next);
        }
        self.next += 1;
        (status, serde_json::from_str(&answer).unwrap())
    }

    fn write_until_refused(&mut self) -> (u16, Value) {
        for _ in 0..10_000 {
            let answer = self.write();
            if answer.0 != 200 {
                return answer;
            }
        }
        panic!("200 MB fit")
    }

    /// What is there is what was answered last: neither older nor newer.
    fn check(&self) {
        let (status, answer) = call(&self.socket, "GET", &format!("{API}/machines/m1"), &Value::Null).unwrap();
        assert_eq!(status, 200, "{answer}");
        let machine: Value = serde_json::from_str(&answer).unwrap();
        let serial = machine["spec"]["identity"]["serial"].as_str().unwrap();
        assert_eq!(Some(serial[..8].parse().unwrap()), self.answered);
    }
}

fn clear((status, problem): (u16, Value)) {
    assert_eq!((status, &problem["code"]), (503, &json!("StoreUnavailable")), "{problem:#}");
    let hint = problem["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("disk") && !problem["causes"].as_array().unwrap().is_empty(), "{problem:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing_acknowledged_and_recovers_without_restart() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let (site, namespace) = site_in("mount -t tmpfs -o size=24m none \"$0\"");
    let coordinator = namespace.start(&site);
    let mut writer = Writer::new(&namespace);
    assert_eq!(writer.write().0, 200);
    let (status, answer) =
        call(&namespace.socket(), "POST", &format!("{API}/apply"), &patient_template(&site)).unwrap();
    assert_eq!(status, 200, "{answer}");
    let agent = Agent::start(&site, &namespace.socket(), "agent1", "52:54:00:00:00:01").await;
    agent.report(1).await;
    agent.handle.flush(LIMIT).await.unwrap();

    let ballast = namespace.data().join("ballast");
    let mut file = File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    clear(writer.write_until_refused());
    writer.check();
    agent.report(2).await;
    let early = agent.handle.flush(Duration::from_secs(3)).await;
    assert!(early.is_err(), "acknowledged, and there was no room for it");
    for _ in 0..20 {
        clear(writer.write());
    }
    writer.check();
    let (status, _) = call(&namespace.socket(), "GET", "/healthz", &Value::Null).unwrap();
    assert_eq!(status, 200, "reading goes on");

    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    let (status, answer) = writer.write();
    assert_eq!(status, 200, "{answer:#}");
    writer.check();
    agent.handle.flush(LIMIT).await.unwrap();
    agent.report(3).await;
    agent.handle.flush(LIMIT).await.unwrap();

    coordinator.kill();
    let _restarted = namespace.start(&site);
    writer.check();
    let (_, events) =
        call(&namespace.socket(), "GET", &format!("{API}/workflows/{}/events", agent.name), &Value::Null).unwrap();
    has_attempts(&events, &agent.name, 3);
}

#[test]
fn a_read_only_data_directory_is_refused_by_name() {
    let (site, namespace) = site_in("mount -t tmpfs -o size=24m none \"$0\"");
    let coordinator = namespace.start(&site);
    let mut writer = Writer::new(&namespace);
    assert_eq!(writer.write().0, 200);
    coordinator.kill();
    namespace.sh("mount -o remount,ro \"$0\"");
    let said = namespace.refused(&site);
    let place = site.data().display().to_string();
    assert!(said.contains("cannot write to") && said.contains(&place) && said.contains("read-only"), "{said}");
    namespace.sh("mount -o remount,rw \"$0\"");
    let _coordinator = namespace.start(&site);
    writer.check();
    assert_eq!(writer.write().0, 200);
}

/// As ext4 does by itself when it finds damage: `errors=remount-ro`.
#[test]
fn a_read_only_disk_is_reported_and_loses_nothing_answered() {
    let mount =
        "truncate -s 64M \"$0.img\"; mkfs.ext4 -q \"$0.img\"; mount -o loop,errors=remount-ro \"$0.img\" \"$0\"";
    let (site, namespace) = site_in(mount);
    let coordinator = namespace.start(&site);
    let mut writer = Writer::new(&namespace);
    for _ in 0..20 {
        assert_eq!(writer.write().0, 200);
    }
    namespace.sh("loop=$(sed -n \"s|^/dev/\\(loop[0-9]*\\) $0 .*|\\1|p\" /proc/mounts); echo 1 > /sys/fs/ext4/$loop/trigger_fs_error");
    for _ in 0..5 {
        clear(writer.write());
    }
    writer.check();
    coordinator.kill();
    let said = namespace.refused(&site);
    assert!(said.to_lowercase().contains("read-only"), "{said}");
    namespace.sh("umount \"$0\"; mount -o loop \"$0.img\" \"$0\"");
    let _coordinator = namespace.start(&site);
    writer.check();
    assert_eq!(writer.write().0, 200);
}
