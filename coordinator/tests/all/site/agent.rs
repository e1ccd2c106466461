//! An agent's real session with the site's coordinator; its computer does nothing.

use std::path::Path;
use std::sync::{Arc, Mutex};

use landfall_api::message::{
    ActionRef, ActionResult, Assignment, EventBody, Identity, LogLevel, Proof, Vitals, WriteImageResult,
};
use landfall_api::{DiskId, DiskReceipt, ErrorCode, MachineFacts, Problem, Receipt, ReceiptState, SecretText};
use landfall_session::{
    AgentKey, Host, Instruction, Looking, Seen, Session, SessionConfig, SessionHandle, Target, boot_time, enroll,
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};
use uuid::Uuid;

use super::{LIMIT, Site, call, document, machine, request};

/// A computer that does nothing; its disk has its name.
struct Computer(String);

pub(crate) fn disk(name: &str) -> DiskId {
    DiskId { serial: name.into(), size_bytes: 1 << 30, ..DiskId::default() }
}

impl Host for Computer {
    fn look(&self) -> Looking<'_> {
        let facts = MachineFacts { memory_bytes: 512 << 20, ..MachineFacts::default() };
        Seen { facts, ..Seen::disks(vec![disk(&self.0)], vec![]) }.at_once()
    }
    fn vitals(&self) -> Vitals {
        Vitals { uptime: boot_time(), peak_rss_bytes: 1 << 20 }
    }
}

/// The word after `name` on the script's kernel command line.
pub(crate) fn word(script: &str, name: &str) -> String {
    let at = script.find(name).unwrap_or_else(|| panic!("no {name} in {script}"));
    script[at + name.len()..].split_whitespace().next().unwrap().to_owned()
}

/// Where the script's coordinators are; the last one that it names is the first choice.
pub(crate) fn target(script: &str) -> Target {
    let pins = vec![word(script, "landfall.ca=").parse().unwrap()];
    let named = script.split_whitespace().filter_map(|word| word.strip_prefix("landfall.coordinator="));
    let mut urls: Vec<_> = named.collect();
    urls.reverse();
    Target::of(&urls, pins).unwrap()
}

/// The session of a machine with that name and address, as its boot script starts it, and the coordinator that it is with.
pub(crate) async fn session(
    script: &str, name: &str, mac: &str,
) -> (SessionHandle, mpsc::Receiver<Instruction>, Target) {
    let config = enrolled(script, name, mac).await;
    let target = config.target.clone();
    let (handle, instructions) = begin(config, name);
    (handle, instructions, target)
}

/// The session of a machine that has its certificate.
pub(crate) fn begin(config: SessionConfig, name: &str) -> (SessionHandle, mpsc::Receiver<Instruction>) {
    Session::start(config, Arc::new(Computer(name.to_owned())))
}

/// A machine with its certificate, before its session.
pub(crate) async fn enrolled(script: &str, name: &str, mac: &str) -> SessionConfig {
    let target = target(script);
    let identity = Identity { macs: vec![mac.parse().unwrap()], ..Identity::default() };
    let key = AgentKey::generate().unwrap();
    let proof = Proof::BootToken(SecretText::new(word(script, "landfall.token=")));
    let boot_id = format!("boot-{name}");
    let enrolled = enroll(&target, "0.1.0", &identity, &boot_id, &proof, &key).await.unwrap();
    assert_eq!(enrolled.machine_name, name);
    SessionConfig {
        target,
        credentials: enrolled.credentials,
        software: "0.1.0".into(),
        identity,
        boot_id,
        enrolled_at: boot_time(),
    }
}

/// Of an image that was written to the disk of that name.
pub(crate) fn done_receipt(assignment: &Assignment, name: &str) -> DiskReceipt {
    let receipt = Receipt {
        machine_uid: assignment.machine_uid,
        workflow_uid: assignment.workflow_uid,
        workflow_name: assignment.workflow_name.clone(),
        generation: assignment.generation,
        action_index: 0,
        image_digest: None,
        state: ReceiptState::Done,
        written_at: jiff::Timestamp::UNIX_EPOCH,
    };
    DiskReceipt { disk: disk(name), receipt }
}

/// The result of that write.
pub(crate) fn written(receipt: DiskReceipt) -> ActionResult {
    ActionResult::WriteImage(WriteImageResult {
        receipt: Some(receipt),
        written: true,
        stored_bytes: 7,
        raw_bytes: 7,
        written_bytes: 7,
        elapsed_ms: 1000,
    })
}

/// What a machine that boots gets from this site; its agent dials this site first.
pub(crate) fn boot_script(site: &Site, mac: &str) -> String {
    let mut stream = std::net::TcpStream::connect((site.host, site.http)).unwrap();
    let script = request(&mut stream, "GET", &format!("/boot/ipxe?mac={mac}"), "").unwrap().1;
    format!("{script} landfall.coordinator={}", site.url())
}

/// The same of a boot medium that was made before there were others: it names this site alone.
pub(crate) fn script_of_one(site: &Site, mac: &str) -> String {
    let (own, script) = (format!("landfall.coordinator={}", site.url()), boot_script(site, mac));
    let words = script.split(' ').filter(|word| *word == own || !word.contains("landfall.coordinator="));
    words.collect::<Vec<_>>().join(" ")
}

/// An agent with a run under way.
pub(crate) struct Agent {
    pub(crate) handle: SessionHandle,
    assignment: Assignment,
    /// The machine's name.
    machine: String,
    /// The run's name.
    pub(crate) name: String,
    /// What the coordinator said besides that this run is the machine's.
    pub(crate) heard: Arc<Mutex<Vec<String>>>,
}

/// A template whose first action may fail a hundred times.
pub(crate) fn patient_template(site: &Site) -> Value {
    let url = format!("http://127.0.0.1:{}/images/os.zst", site.http);
    let image = json!({"url": url, "digest": format!("sha256:{}", "0a".repeat(32))});
    let write = json!({"name": "write", "writeImage": {"image": image}, "retry": {"maxAttempts": 100}});
    document("Template", "os", json!({"actions": [write, {"name": "restart", "reboot": {}}]}))
}

impl Agent {
    /// Describes a machine, asks for a run of the template `os`, boots, enrols, and takes the assignment.
    pub(crate) async fn start(site: &Site, socket: &Path, name: &str, mac: &str) -> Self {
        Self::start_by(boot_script, site, socket, name, mac).await
    }

    /// The same by a boot script of the caller's choice.
    pub(crate) async fn start_by(
        script: impl Fn(&Site, &str) -> String, site: &Site, socket: &Path, name: &str, mac: &str,
    ) -> Self {
        let post = |path: &str, body: &Value| {
            let (status, answer) = call(socket, "POST", &format!("{}{path}", super::API), body).unwrap();
            assert_eq!(status, 200, "{answer}");
            serde_json::from_str::<Value>(&answer).unwrap()
        };
        post("/apply", &machine(name, mac));
        let run = post(&format!("/machines/{name}/provision"), &json!({"template": "os"}));
        let script = script(site, mac);
        let (handle, mut instructions, _) = session(&script, name, mac).await;
        let first = timeout(LIMIT, instructions.recv()).await.unwrap().unwrap();
        let Instruction::Assign { assignment, .. } = first else { panic!("an assignment was expected, not {first:?}") };
        // Whatever else it receives, it goes on.
        let (uid, heard) = (assignment.workflow_uid, Arc::<Mutex<Vec<_>>>::default());
        tokio::spawn(hear(instructions, uid, heard.clone()));
        let run = run["metadata"]["name"].as_str().unwrap().to_owned();
        Self { handle, assignment: *assignment, machine: name.to_owned(), name: run, heard }
    }

    /// Says a line of an attempt's log.
    pub(crate) fn say(&self, attempt: u32, message: &str) {
        self.handle.log(self.action(0, attempt), LogLevel::Info, message);
    }

    /// Reports a failed attempt, as a download that broke; it is acknowledged once `flush` says so.
    pub(crate) async fn report(&self, attempt: u32) {
        let failed =
            EventBody::Failed { problem: Problem::new(ErrorCode::SourceUnreachable, "broke"), retryable: true };
        for body in [EventBody::Started, failed] {
            self.handle.report(self.action(0, attempt), body).await.unwrap();
        }
    }

    /// Reports that this attempt succeeds, and the rest of the run; the same.
    pub(crate) async fn ends(&self, attempt: u32) {
        let receipt = done_receipt(&self.assignment, &self.machine);
        let write = [
            EventBody::Started,
            EventBody::ReceiptWritten { receipt: receipt.clone() },
            EventBody::Finished { result: written(receipt) },
        ];
        for body in write {
            self.handle.report(self.action(0, attempt), body).await.unwrap();
        }
        for body in [EventBody::Started, EventBody::Finished { result: ActionResult::Reboot }] {
            self.handle.report(self.action(1, 1), body).await.unwrap();
        }
    }

    const fn action(&self, action_index: u32, attempt: u32) -> ActionRef {
        ActionRef { workflow_uid: self.assignment.workflow_uid, action_index, attempt }
    }
}

async fn hear(mut instructions: mpsc::Receiver<Instruction>, run: Uuid, heard: Arc<Mutex<Vec<String>>>) {
    while let Some(instruction) = instructions.recv().await {
        match instruction {
            Instruction::Assign { assignment, .. } if assignment.workflow_uid == run => {}
            // It tries again by itself.
            Instruction::Refused { problem, .. } if problem.code == ErrorCode::StoreUnavailable => {}
            other => heard.lock().unwrap().push(format!("{other:?}")),
        }
    }
}

/// Fails unless the run's events have each attempt up to this one, once.
pub(crate) fn has_attempts(events: &str, run: &str, upto: u64) {
    let lines: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for attempt in 1..=upto {
        for reason in ["Started", "Failed"] {
            let is = |line: &&Value| line["attempt"] == json!(attempt) && line["reason"] == json!(reason);
            assert_eq!(
                lines.iter().filter(is).count(),
                1,
                "{run}: attempt {attempt} {reason} was acknowledged:\n{events}"
            );
        }
    }
}
