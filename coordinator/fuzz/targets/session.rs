//! Sessions of one machine as it lives, lies and repeats itself: hellos, events in and out of order, receipts, fences, with
//! runs asked for and stopped between them, and the coordinator started again. Terminal states never change, a restart
//! forgets nothing, and nothing that an agent says is a fault of the coordinator's own.
//!
//! Input: steps, a byte and its operands each.
#![no_main]

use std::collections::BTreeMap;

use landfall_api::{Authority, Shared, Workflow};
use landfall_coordinator::{engine::Engine, fuzzing, session, tls::Peer};
use landfall_coordinator_fuzz::{Input, MAC, ask, call, described, engine, framed, run};
use landfall_proto::v1::{self, event, session_request::Message};
use landfall_store::{MAX_DOCUMENT_BYTES, Store};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use uuid::Uuid;

/// More steps tell nothing new.
const STEPS: usize = 48;
const INTERNAL: &str = "13";

struct Story {
    store: Store,
    engine: Engine,
    machine: Uuid,
    runs: Vec<Shared<Workflow>>,
    /// Messages of the session under way.
    said: Vec<u8>,
}

impl Story {
    fn uid(&self, which: u8) -> String {
        let runs = self.runs.len().max(1);
        let run = self.runs.get(usize::from(which) % runs);
        run.and_then(|run| run.metadata.uid).map_or_else(|| Uuid::from_u128(7).to_string(), |uid| uid.to_string())
    }

    fn receipt(&self, input: &mut Input<'_>) -> v1::DiskReceipt {
        let how = input.u8();
        v1::DiskReceipt {
            disk: Some(disk(how >> 4)),
            receipt: Some(v1::Receipt {
                machine_uid: self.machine.to_string(),
                workflow_uid: self.uid(how),
                workflow_name: "w".into(),
                generation: 1,
                action_index: u32::from(how >> 2 & 3),
                image_digest: String::new(),
                state: i32::from(how & 3),
                written_at: Some(time(how)),
            }),
        }
    }

    fn say(&mut self, message: Message) {
        framed(&v1::SessionRequest { message: Some(message) }.encode_to_vec(), &mut self.said);
    }

    fn hello(&mut self, input: &mut Input<'_>) {
        let how = input.u8();
        let receipts = (0..how & 1).map(|_| self.receipt(input)).collect();
        let running = (how & 2 != 0).then(|| v1::RunningAction {
            workflow_uid: self.uid(how >> 4),
            action_index: u32::from(how >> 6),
            attempt: 1,
        });
        self.say(Message::Hello(v1::Hello {
            versions: Some(v1::Versions { software: "0.1.0".into(), protocol: 1 }),
            identity: Some(v1::Identity { macs: vec![MAC.into()], ..v1::Identity::default() }),
            boot_id: format!("boot-{}", how >> 2 & 3),
            disks: vec![disk(0)],
            receipts,
            last_epoch: u64::from(how >> 5),
            running,
            enrolled_boottime_ms: u64::from(how),
            ..v1::Hello::default()
        }));
    }

    fn event(&mut self, input: &mut Input<'_>) {
        let (what, at, seq) = (input.u8(), input.u8(), input.u8());
        let event = match what % 7 {
            0 => event::Event::Started(v1::ActionStarted {}),
            1 => event::Event::Finished(v1::ActionFinished {
                result: Some(v1::action_finished::Result::WriteImage(v1::WriteImageResult {
                    receipt: (what & 8 != 0).then(|| self.receipt(input)),
                    written: what & 16 != 0,
                    stored_bytes: u64::MAX,
                    raw_bytes: u64::from(seq),
                    written_bytes: 1,
                    elapsed: Some(prost_types::Duration { seconds: i64::MIN, nanos: -1 }),
                })),
            }),
            2 => event::Event::Finished(v1::ActionFinished {
                result: Some(v1::action_finished::Result::CloudInit(v1::CloudInitResult {
                    root_device: "vda1".into(),
                })),
            }),
            3 => event::Event::Finished(v1::ActionFinished {
                result: Some(v1::action_finished::Result::Reboot(v1::RebootResult {})),
            }),
            4 => event::Event::Failed(v1::ActionFailed {
                problem: Some(v1::Problem {
                    code: input.text(),
                    message: "m".repeat(usize::from(seq) << 10),
                    causes: vec!["c".into(); usize::from(at)],
                    last_log_lines: vec!["l".repeat(9000); usize::from(what >> 4)],
                    ..v1::Problem::default()
                }),
                retryable: what & 8 != 0,
            }),
            5 => event::Event::ReceiptWritten(self.receipt(input)),
            _ => event::Event::Finished(v1::ActionFinished { result: None }),
        };
        self.say(Message::Event(v1::Event {
            workflow_uid: self.uid(at >> 4),
            action_index: u32::from(at & 3),
            attempt: u32::from(at >> 2 & 3),
            seq: u64::from(seq % 9),
            time: Some(time(seq)),
            event: Some(event),
        }));
    }

    /// The session so far, through the real service.
    async fn session(&mut self) {
        let mut request = call("Session", std::mem::take(&mut self.said));
        request.extensions_mut().insert(Peer::Machine(fuzzing::machine_certificate("m1", self.machine)));
        let (status, grpc, _) = ask(session::router(self.engine.clone()), request).await;
        assert_eq!(status, 200);
        assert!(grpc.as_deref() != Some(INTERNAL), "a fault of the coordinator's own");
    }

    async fn check(&mut self) {
        let machine = self.store.machine("m1").await.expect("a store").expect("a machine");
        let bytes = serde_json::to_vec(&machine).expect("JSON").len();
        assert!(bytes < MAX_DOCUMENT_BYTES, "a machine of {bytes} bytes");
        for run in &mut self.runs {
            let now = self.store.workflow(&run.metadata.name).await.expect("a store").expect("a run");
            let (was, is) = (run.status.as_ref(), now.status.as_ref());
            let ended = was.is_some_and(|status| status.phase.is_terminal());
            assert!(!ended || was.map(|s| s.phase) == is.map(|s| s.phase), "a terminal state changed");
            let bytes = serde_json::to_vec(&now).expect("JSON").len();
            assert!(bytes < MAX_DOCUMENT_BYTES, "a run of {bytes} bytes");
            *run = now;
        }
    }

    async fn step(&mut self, input: &mut Input<'_>) {
        let authority = |force| Authority { person: "ann".into(), at: jiff::Timestamp::UNIX_EPOCH, force };
        match input.u8() % 10 {
            0 | 1 => self.hello(input),
            2..=4 => self.event(input),
            5 => {
                let bytes = u64::from(input.u8()) << 24;
                self.say(Message::Heartbeat(v1::Heartbeat { uptime_ms: 1, peak_rss_bytes: bytes }));
            }
            6 => {
                let epoch = input.u8().into();
                self.say(Message::FenceAck(v1::FenceAck { epoch }));
            }
            7 => {
                self.session().await;
                self.check().await;
            }
            8 => match input.u8() {
                how @ 0..128 => {
                    if let Ok(run) = self
                        .engine
                        .requests()
                        .provision("m1", "os", BTreeMap::new(), authority(how & 1 != 0), None)
                        .await
                    {
                        self.runs.push(run);
                    }
                }
                which => {
                    let runs = self.runs.len().max(1);
                    let name = self.runs.get(usize::from(which) % runs).map(|run| run.metadata.name.clone());
                    // An ended run cannot be stopped; that is no fault.
                    let _outcome = self.engine.requests().cancel(&name.unwrap_or_default(), authority(false)).await;
                }
            },
            _ => {
                // Started again over the same store: the same story.
                self.said.clear();
                self.engine = engine(&self.store).await;
                self.engine.upkeep().tick().await.expect("a tick");
                self.check().await;
            }
        }
    }
}

fn disk(n: u8) -> v1::DiskId {
    v1::DiskId { serial: format!("D{n}"), size_bytes: 1 << 30, ..v1::DiskId::default() }
}

fn time(n: u8) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: 1_700_000_000 + i64::from(n), nanos: 0 }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    run(async {
        let store = Store::memory();
        let engine = engine(&store).await;
        described(&engine).await;
        let machine = store.machine("m1").await.expect("a store").expect("a machine").metadata.uid.unwrap_or_default();
        let mut story = Story { store, engine, machine, runs: Vec::new(), said: Vec::new() };
        for _ in 0..STEPS {
            if input.0.is_empty() {
                break;
            }
            story.step(&mut input).await;
        }
        story.session().await;
        story.check().await;
    });
});
