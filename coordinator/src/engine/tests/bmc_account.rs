//! Accounts that machines set in their own BMCs: where the password is, and when it counts.

use std::path::{Path, PathBuf};

use landfall_api::message::ActionKind;
use landfall_api::{BmcAccount, BmcAccountResult, Secret};
use landfall_bmcsim::{BmcSim, Quirks};

use super::*;

const ADDRESS: &str = "192.0.2.9";

/// A template whose list sets an account with these fields.
fn listed(fields: &serde_json::Value) -> serde_json::Value {
    let actions = json!([{"name": "bmc", "bmcAccount": fields}, {"name": "restart", "reboot": {}}]);
    world::document("Template", "os", json!({"successOn": "reboot", "actions": actions}))
}

fn secret(name: &str, password: &str, more: serde_json::Value) -> serde_json::Value {
    let mut spec = more;
    spec["data"] = json!({"username": "landfall", "password": password});
    world::document("Secret", name, spec)
}

fn at_bmc(address: &str, credentials: &str) -> serde_json::Value {
    let mut machine = machine("m1", MAC);
    machine["spec"]["bmc"] = json!({"address": address, "credentials": credentials});
    machine
}

/// An agent that was sent an account, as the first action of a workflow.
struct Sent<'w> {
    agent: Agent<'w>,
    run: Uuid,
    attempt: u32,
    account: BmcAccount,
}

/// Starts the workflow.
async fn assigned(world: &World, fields: serde_json::Value) -> Sent<'_> {
    world.apply(listed(&fields)).await.unwrap();
    let run = world.provision(true).await.unwrap().metadata.uid.unwrap();
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    let sent = agent.assigned();
    let ActionKind::BmcAccount(account) = &sent.actions[0].kind else { panic!("{sent:?}") };
    assert!(!format!("{sent:?}").contains(account.password.expose()));
    Sent { agent, run, attempt: sent.start_attempt, account: account.clone() }
}

impl Sent<'_> {
    async fn reports(&self, attempt: u32, body: EventBody) {
        self.agent.report(self.run, 0, attempt, body).await.unwrap();
    }

    async fn fails(&self, said: &str, retryable: bool) {
        let problem = Problem::new(ErrorCode::BmcRefused, said);
        self.reports(self.attempt, EventBody::Started).await;
        self.reports(self.attempt, EventBody::Failed { problem, retryable }).await;
    }

    /// The BMC at this address has it.
    async fn sets(&self, address: &str) {
        let result = ActionResult::BmcAccount(BmcAccountResult { address: address.parse().unwrap(), user: 3 });
        self.reports(self.attempt, EventBody::Started).await;
        self.reports(self.attempt, EventBody::Finished { result }).await;
    }

    async fn ends(&self) {
        self.agent.does(self.run, 1, 1, ActionResult::Reboot).await;
    }
}

async fn document(world: &World, name: &str) -> Secret {
    match world.store.documents().get(Kind::Secret, name).await.unwrap() {
        Some(Document::Secret(secret)) => secret.into_inner(),
        other => panic!("{other:?}"),
    }
}

/// The values of a Secret as they are kept.
async fn kept(world: &World, name: &str) -> serde_json::Value {
    let bytes = world.store.secrets().get(&format!("secret/{name}"), Timestamp::UNIX_EPOCH).await.unwrap();
    serde_json::from_slice(&bytes.unwrap()).unwrap()
}

/// Whether the coordinator logs in at the machine's BMC.
async fn logs_in(world: &World) -> bool {
    world.engine.power().driver("m1").unwrap().look().await.unwrap();
    world.condition("BMCAuthenticated").await.unwrap().0 == ConditionStatus::True
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn a_new_password_is_sealed_before_its_agent_gets_it() {
    let (dir, _clock, world) = described_on_disk().await;
    let mut sent = assigned(&world, json!({})).await;
    let account = sent.account.clone();
    let password = account.password.expose();
    assert_eq!((account.username.as_str(), password.len()), ("landfall", 16));
    assert_eq!(kept(&world, "bmc-m1").await["pending"]["password"], password);
    assert!(document(&world, "bmc-m1").await.spec.bmcs.is_empty(), "of no use before the BMC has it");
    // The BMC's answer, and with it the password, gets into what the agent says.
    sent.fails(&format!("it does not take {password}"), true).await;
    sent.attempt += 1;
    sent.reports(sent.attempt, EventBody::Started).await;
    let (time, level, message) = (Timestamp::UNIX_EPOCH, LogLevel::Info, format!("set to {password}"));
    world.engine.telemetry().log(sent.run, LogLine { time, level, action_index: 0, attempt: sent.attempt, message });
    let logged = format!("{:?}", world.engine.telemetry().logs(sent.run).0);
    assert!(logged.contains("set to") && !logged.contains(password), "{logged}");
    assert!(world.machine().await.spec.bmc.is_none(), "not before it has succeeded");
    sent.sets(ADDRESS).await;

    let bmc = world.machine().await.spec.bmc.unwrap();
    assert_eq!((bmc.address.to_string(), bmc.credentials.as_str()), (format!("ipmi://{ADDRESS}"), "bmc-m1"));
    let made = document(&world, "bmc-m1").await;
    assert_eq!((made.spec.bmcs.as_slice(), made.status.unwrap().version), ([ADDRESS.to_owned()].as_slice(), 1));
    let values = kept(&world, "bmc-m1").await;
    assert_eq!((&values["data"]["password"], &values["pending"]), (&json!(password), &json!(null)));
    sent.ends().await;

    // The same again: the same password, and what a person made of spec.bmc stays.
    world.apply(at_bmc("redfish+https://bmc.example", "bmc-m1")).await.unwrap();
    let sent = assigned(&world, json!({})).await;
    assert_eq!(sent.account, account);
    sent.sets("192.0.2.10").await;
    assert_eq!(world.machine().await.spec.bmc.unwrap().address.to_string(), "redfish+https://bmc.example");
    let again = document(&world, "bmc-m1").await;
    assert_eq!((again.spec.bmcs.len(), again.status.unwrap().version), (2, 1), "it moved, and has the same password");
    for kind in Kind::ALL {
        let documents = world.store.documents().list(kind).await.unwrap().0;
        assert!(!serde_json::to_string(&documents).unwrap().contains(password));
    }
    let found = files(dir.path());
    assert!(!found.is_empty());
    for file in found {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(16).any(|part| part == password.as_bytes()), "in {}", file.display());
    }
}

#[tokio::test]
async fn a_persons_secret_is_set_as_it_is() {
    let world = World::new().await;
    let places = json!({"bmcs": [ADDRESS], "machines": ["m1"]});
    world.apply(secret("rack", "chosen-by-ann", places)).await.unwrap();
    world.apply(at_bmc("ipmi://192.0.2.9", "rack")).await.unwrap();
    let sent = assigned(&world, json!({"username": "other"})).await;
    assert_eq!((sent.account.username.as_str(), sent.account.password.expose()), ("landfall", "chosen-by-ann"));
    let before = (document(&world, "rack").await, kept(&world, "rack").await);
    sent.sets("192.0.2.77").await;
    assert_eq!((document(&world, "rack").await, kept(&world, "rack").await), before, "no place is added to it");
    assert!(world.store.documents().get(Kind::Secret, "bmc-m1").await.unwrap().is_none());
}

#[tokio::test]
async fn secrets_of_others_are_neither_overwritten_nor_shown() {
    let of_m1 = json!({"machines": ["m1"]});
    let named = |name: &str| Some(at_bmc("ipmi://192.0.2.9", name));
    for (found, machine, fields, code, expected) in [
        (secret("bmc-m1", "p", json!({})), None, json!({}), ErrorCode::AlreadyExists, "is one that a person wrote"),
        (secret("rack", "p", json!({})), named("rack"), json!({}), ErrorCode::Forbidden, "does not belong"),
        (
            secret("rack", "a very long password", of_m1.clone()),
            named("rack"),
            json!({}),
            ErrorCode::InvalidDocument,
            "takes",
        ),
        (
            secret("rack", "p", of_m1.clone()),
            named("none"),
            json!({}),
            ErrorCode::NotFound,
            "there is no secret \"none\"",
        ),
        (
            secret("rack", "p", of_m1),
            named("rack"),
            json!({"rotate": true}),
            ErrorCode::Forbidden,
            "its password is not rotated",
        ),
    ] {
        let world = World::new().await;
        world.apply(found).await.unwrap();
        let mut m2 = crate::engine::tests::machine("m2", "52:54:00:00:00:02");
        m2["spec"]["bmc"] = json!({"address": "ipmi://192.0.2.8", "credentials": "rack"});
        world.apply(m2).await.unwrap();
        if let Some(machine) = machine {
            world.apply(machine).await.unwrap();
        }
        let stored = world.store.documents().list(Kind::Secret).await.unwrap().0;
        world.apply(listed(&fields)).await.unwrap();
        let (name, _, _agent) = world.begins().await;
        let problem = world.run(&name).await.status.unwrap().problem.unwrap();
        assert!(problem.code == code && problem.message.contains(expected) && !problem.hint.is_empty(), "{problem}");
        assert_eq!(world.store.documents().list(Kind::Secret).await.unwrap().0, stored);
    }
}

#[tokio::test]
async fn a_rotated_password_counts_only_once_the_bmc_has_it() {
    let sim = BmcSim::start_ipmi(Quirks::default()).await;
    let world = World::new().await;
    world.apply(at_bmc(sim.address(), "bmc-m1")).await.unwrap();
    let sent = assigned(&world, json!({})).await;
    let old = sent.account.password.clone();
    sim.change(|state| state.accounts.password = old.expose().to_owned());
    sent.sets("127.0.0.1").await;
    sent.ends().await;
    assert!(logs_in(&world).await);

    let sent = assigned(&world, json!({"rotate": true})).await;
    let new = sent.account.password.clone();
    assert_ne!(new, old);
    sent.fails("busy", false).await;
    assert!(logs_in(&world).await, "the old one is in use still");
    let sent = assigned(&world, json!({"rotate": true})).await;
    assert_eq!(sent.account.password, new, "a BMC that has it already is asked for no other");
    sim.change(|state| state.accounts.password = new.expose().to_owned());
    sent.sets("127.0.0.1").await;
    assert!(logs_in(&world).await);
    assert_eq!((document(&world, "bmc-m1").await.status.unwrap().version, sim.seen().accounts.failed), (2, 0));

    // The agent comes back in the middle of the list: no third one.
    let values = kept(&world, "bmc-m1").await;
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    let sent = agent.assigned();
    assert!(matches!(sent.actions[0].kind, ActionKind::Hold(_)), "{sent:?}");
    assert_eq!(kept(&world, "bmc-m1").await, values);
}

#[tokio::test]
async fn another_machine_of_the_name_gets_another_password() {
    let world = World::new().await;
    let first = assigned(&world, json!({})).await;
    first.sets(ADDRESS).await;
    first.ends().await;
    // As if it had been made for a machine that was described before, and a rotation had not ended.
    let mut values = kept(&world, "bmc-m1").await;
    (values["made_for"], values["pending"]) = (
        json!(Uuid::from_u128(7)),
        json!({"workflow": Uuid::from_u128(8), "action": "bmc", "machine": Uuid::from_u128(7), "username": "landfall", "password": "known"}),
    );
    let bytes = serde_json::to_vec(&values).unwrap();
    world.store.secrets().put("secret/bmc-m1", &bytes, Timestamp::MAX).await.unwrap();
    let second = assigned(&world, json!({})).await;
    let known = [first.account.password.expose(), "known"];
    assert!(!known.contains(&second.account.password.expose()));
    second.sets("192.0.2.10").await;
    assert_eq!(document(&world, "bmc-m1").await.spec.bmcs, ["ipmi://192.0.2.10"].map(|a| a.replace("ipmi://", "")));
}

#[tokio::test]
async fn an_agent_cannot_say_that_what_it_likes_was_set() {
    let world = World::new().await;
    let mut taken = machine("m2", "52:54:00:00:00:02");
    taken["spec"]["bmc"] = json!({"address": "ipmi://192.0.2.8", "credentials": "rack"});
    world.apply(taken).await.unwrap();
    let sent = assigned(&world, json!({})).await;
    let said = |address: &str| {
        let result = ActionResult::BmcAccount(BmcAccountResult { address: address.parse().unwrap(), user: 3 });
        EventBody::Finished { result }
    };
    sent.reports(sent.attempt, EventBody::Started).await;
    let before = kept(&world, "bmc-m1").await;
    // Of an attempt that is not under way; then at another machine's BMC.
    for (attempt, address) in [(9, ADDRESS), (sent.attempt, "192.0.2.8")] {
        // Whether the report itself is taken is another matter.
        let _ = sent.agent.report(sent.run, 0, attempt, said(address)).await;
        assert_eq!((world.machine().await.spec.bmc, kept(&world, "bmc-m1").await), (None, before.clone()), "{address}");
    }
}

#[tokio::test]
async fn a_refused_login_holds_a_set_account_back_no_more() {
    // Also where the machine's agent is at another coordinator than the one that leads.
    for agent_is_elsewhere in [false, true] {
        let sim = BmcSim::start_ipmi(Quirks::default()).await;
        let pair = beside::pair().await;
        let world = &pair.a;
        world.apply(secret("rack", "by-ann", json!({"bmcs": ["127.0.0.1"], "machines": ["m1"]}))).await.unwrap();
        world.apply(at_bmc(sim.address(), "rack")).await.unwrap();
        assert!(!logs_in(world).await);
        sim.change(|state| state.accounts.password = "by-ann".to_owned());
        assert!(!logs_in(world).await, "not tried again");
        let has_agent = if agent_is_elsewhere { &pair.b } else { world };
        assigned(has_agent, json!({})).await.sets("127.0.0.1").await;
        assert!(logs_in(world).await, "elsewhere: {agent_is_elsewhere}");
    }
}
