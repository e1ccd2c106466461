//! The real coordinator process with the agent's real session library: an install over loopback, with the coordinator
//! killed in the middle of it.

use std::{net::TcpStream, process::Command};

use super::site::agent::{done_receipt, session, written};
use super::site::{Coordinator, LIMIT, Site, document, machine, request};
use landfall_api::SecretText;
use landfall_api::message::{
    ActionKind, ActionRef, ActionResult, Assignment, CloudInitResult, EventBody, PhoneHomeReport,
};
use landfall_session::{Instruction, https_client, phone_home};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

const MAC: &str = "52:54:00:00:00:01";

/// The machine's boot script.
fn script(site: &Site) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", site.http)).unwrap();
    request(&mut stream, "GET", &format!("/boot/ipxe?mac={MAC}"), "").unwrap().1
}

async fn assigned(instructions: &mut mpsc::Receiver<Instruction>) -> Box<Assignment> {
    match timeout(LIMIT, instructions.recv()).await.unwrap().unwrap() {
        Instruction::Assign { assignment, .. } => assignment,
        other => panic!("an assignment was expected, not {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_install_survives_a_killed_coordinator() {
    // Already installed by another test is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    let site = Site::new();
    let coordinator = Coordinator::start(&site.config());
    let url = format!("http://127.0.0.1:{}/images/os.zst", site.http);
    let actions = json!([
        {"name": "write", "writeImage": {"image": {"url": url, "digest": format!("sha256:{}", "0a".repeat(32))}}},
        {"name": "seed", "cloudInit": {}},
        {"name": "restart", "reboot": {}},
    ]);
    site.api("POST", "/apply", &machine("m1", MAC));
    site.api("POST", "/apply", &document("Template", "os", json!({"actions": actions})));
    let run = site.api("POST", "/machines/m1/provision", &json!({"template": "os"}));
    let name = run["metadata"]["name"].as_str().unwrap().to_owned();

    let (handle, mut instructions, target) = session(&script(&site), "m1", MAC).await;
    let assignment = assigned(&mut instructions).await;
    assert_eq!((assignment.start_index, assignment.start_attempt), (0, 1));
    let action = |index| ActionRef { workflow_uid: assignment.workflow_uid, action_index: index, attempt: 1 };
    handle.report(action(0), EventBody::Started).await.unwrap();
    handle.flush(LIMIT).await.unwrap();

    // Killed in mid-write; the agent goes on, and finishes the write while no coordinator listens.
    drop(coordinator);
    let done = done_receipt(&assignment, "m1");
    handle.report(action(0), EventBody::ReceiptWritten { receipt: done.clone() }).await.unwrap();
    handle.report(action(0), EventBody::Finished { result: written(done) }).await.unwrap();

    let coordinator = Coordinator::start(&site.config());
    handle.report(action(1), EventBody::Started).await.unwrap();
    let result = ActionResult::CloudInit(CloudInitResult { root_device: "vda1".into() });
    handle.report(action(1), EventBody::Finished { result }).await.unwrap();
    handle.report(action(2), EventBody::Started).await.unwrap();
    handle.report(action(2), EventBody::Finished { result: ActionResult::Reboot }).await.unwrap();
    handle.flush(LIMIT).await.unwrap();
    let run = site.api("GET", &format!("/workflows/{name}"), &Value::Null);
    assert_eq!(run["status"]["phase"], "Rebooting", "{run:#}");
    for action in run["status"]["actions"].as_array().unwrap() {
        assert_eq!((&action["state"], &action["attempt"]), (&json!("Succeeded"), &json!(1)), "{run:#}");
    }
    // Nothing was ordered a second time.
    assert!(!matches!(instructions.try_recv(), Ok(Instruction::Assign { .. })));
    assert!(!script(&site).contains("landfall.token="), "what was installed is to start");

    let ActionKind::CloudInit(seed) = &assignment.actions[1].kind else { panic!("a seed") };
    let unit = seed.phone_home.as_ref().unwrap();
    let client = https_client(target.pins(), None).unwrap();
    phone_home(&client, &unit.url, &unit.bearer_token, &PhoneHomeReport::default()).await.unwrap();
    let forged = SecretText::new(format!("{}.00", assignment.workflow_uid));
    assert!(!phone_home(&client, &unit.url, &forged, &PhoneHomeReport::default()).await.unwrap_err().retryable);
    let machine = site.api("GET", "/machines/m1", &Value::Null);
    assert_eq!(machine["status"]["phase"], "Provisioned", "{machine:#}");
    assert_eq!(machine["status"]["facts"]["memoryBytes"], 512 << 20);
    drop(coordinator);
}

#[test]
fn a_second_coordinator_on_the_same_data_is_refused() {
    let site = Site::new();
    let _first = Coordinator::start(&site.config());
    let second = Command::new(env!("CARGO_BIN_EXE_landfall-coordinator"))
        .args(["--config".as_ref(), site.config().as_os_str()])
        .output()
        .unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success() && said.contains("in use by another process"), "{said}");
}

#[test]
fn check_names_what_is_missing() {
    let site = Site::new();
    let check = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall-coordinator"));
        command.args(["--check".as_ref(), "--config".as_ref(), site.config().as_os_str()]).output().unwrap()
    };
    assert!(check().status.success());
    std::fs::remove_file(site.dir.path().join("vmlinuz")).unwrap();
    let said = String::from_utf8(check().stderr).unwrap();
    assert!(said.contains("boot.kernel") && said.contains("vmlinuz"), "{said}");
}
