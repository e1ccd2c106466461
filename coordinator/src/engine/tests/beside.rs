//! Two coordinators with one database: each has the agents that came to it, and either may be asked.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use landfall_machine::{Input, has_begun};
use landfall_store::{CONFIRMED_WITHIN, MemoryStore, SecretStore, StoreError};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::faulty::Faulty;
use super::*;

const A: &str = "https://10.77.0.1:7443";
const B: &str = "https://10.77.0.2:7443";

/// As [`World`] has it.
const LEASE: Duration = Duration::from_secs(600);

/// Both, and what ends their following.
pub(super) struct Pair {
    pub(super) a: World,
    pub(super) b: World,
    _followed: DropGuard,
}

/// Each question takes as long as it takes the other one to ask the same.
struct Slow(MemoryStore);

#[async_trait]
impl SecretStore for Slow {
    async fn put(&self, name: &str, value: &[u8], expires: Timestamp) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        self.0.put(name, value, expires).await
    }
    async fn get(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        tokio::task::yield_now().await;
        SecretStore::get(&self.0, name, now).await
    }
    async fn swap(
        &self, name: &str, old: Option<&[u8]>, value: &[u8], expires: Timestamp, now: Timestamp,
    ) -> Result<bool, StoreError> {
        tokio::task::yield_now().await;
        self.0.swap(name, old, value, expires, now).await
    }
    async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        tokio::task::yield_now().await;
        self.0.consume(name, now).await
    }
    async fn purge(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.0.purge(now).await
    }
}

/// The first of the two leads.
pub(super) async fn pair() -> Pair {
    pair_over(Store::memory()).await
}

async fn pair_over(store: Store) -> Pair {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let a = World::beside(store.clone(), clock.clone(), A).await;
    let b = World::beside(store, clock, B).await;
    a.engine.fleet().beside().set_lead(Some(Arc::new(|| Duration::ZERO)));
    let stop = CancellationToken::new();
    for engine in [a.engine.clone(), b.engine.clone()] {
        let stop = stop.clone();
        tokio::spawn(async move { engine.others().follow(stop).await });
    }
    let a = a.described().await;
    let known = || b.engine.fleet().index().machine_of_mac(MAC.parse().unwrap()).is_some();
    eventually(async || known().then_some(())).await;
    Pair { a, b, _followed: stop.drop_guard() }
}

/// What comes true when the other one has followed.
async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let look = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.unwrap()
}

impl Pair {
    async fn holder(&self) -> Option<String> {
        self.a.machine().await.status.unwrap().session.unwrap().coordinator
    }
}

impl Agent<'_> {
    /// Waits until its stream has ended; what it was sent before.
    async fn ends(&mut self) -> Vec<ToAgent> {
        let received = async {
            let mut all = Vec::new();
            while let Some(message) = self.opened.to_agent.recv().await {
                all.push(message);
            }
            all
        };
        tokio::time::timeout(Duration::from_secs(60), received).await.unwrap()
    }

    /// The next message that is no renewal of its lease.
    async fn hears(&mut self) -> Option<ToAgent> {
        loop {
            match tokio::time::timeout(Duration::from_secs(60), self.opened.to_agent.recv()).await.unwrap() {
                Some(ToAgent::LeaseRenewal { .. }) => {}
                other => return other,
            }
        }
    }

    /// The same agent connects again, with the list of a run.
    fn again(&self, run: Uuid) -> Hello {
        Hello { last_epoch: self.opened.epoch, holds: Some(run), ..hello("b1", "D1", vec![]) }
    }
}

#[tokio::test]
async fn an_agent_at_one_heeds_requests_at_another() {
    let pair = pair().await;
    let run = pair.a.provision(false).await.unwrap();
    let (name, uid) = (run.metadata.name.clone(), run.metadata.uid.unwrap());
    let machine = pair.b.enroll(b"key").await.unwrap().machine_uid;
    let mut agent = pair.b.connect(hello("b1", "D1", vec![])).await;
    agent.assigned();
    assert_eq!(pair.holder().await.as_deref(), Some(B));
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();

    pair.a.engine.requests().pause(&name, pair.a.ann(false)).await.unwrap();
    assert!(agent.ends().await.is_empty());
    let mut agent = pair.b.connect(agent.again(uid)).await;
    let control = |message| match message {
        Some(ToAgent::Control { control, .. }) => control.paused,
        other => panic!("{other:?}"),
    };
    assert!(control(agent.hears().await));
    // What is asked where its session is needs no other one, and what it says there ends none.
    pair.b.engine.requests().resume(&name, pair.b.ann(false)).await.unwrap();
    assert!(!control(agent.hears().await));
    let wrote = EventBody::ReceiptWritten { receipt: receipt(machine, uid, ReceiptState::Intent) };
    agent.report(uid, 0, 1, wrote).await.unwrap();
    for world in [&pair.a, &pair.b] {
        world.engine.upkeep().tick().await.unwrap();
    }
    pair.a.engine.requests().cancel(&name, pair.a.ann(false)).await.unwrap();
    assert!(agent.ends().await.is_empty());
    let mut agent = pair.b.connect(agent.again(uid)).await;
    assert!(matches!(agent.hears().await, Some(ToAgent::Cancel { workflow_uid, .. }) if workflow_uid == uid));
}

#[tokio::test]
async fn a_request_elsewhere_is_not_lost_behind_a_report() {
    let pair = pair().await;
    let (name, uid, mut agent) = pair.b.under_way().await;
    pair.a.engine.requests().pause(&name, pair.a.ann(false)).await.unwrap();
    // Nothing was followed in between.
    let wrote = EventBody::ReceiptWritten { receipt: receipt(agent.uid, uid, ReceiptState::Intent) };
    agent.report(uid, 0, 1, wrote).await.unwrap();
    agent.ends().await;
    let mut agent = pair.b.connect(agent.again(uid)).await;
    assert!(matches!(agent.hears().await, Some(ToAgent::Control { control: Control { paused: true, .. }, .. })));
}

#[tokio::test]
async fn an_idle_agent_begins_what_another_was_asked_for() {
    let pair = pair().await;
    let first = pair.a.provision(false).await.unwrap();
    pair.b.enroll(b"key").await.unwrap();
    let mut agent = pair.b.connect(hello("b1", "D1", vec![])).await;
    agent.assigned();
    pair.b.engine.requests().cancel(&first.metadata.name, pair.b.ann(false)).await.unwrap();
    agent.opened.to_agent.try_recv().unwrap();
    pair.b.engine.sessions().fence_acknowledged(agent.uid, agent.opened.epoch).await.unwrap();

    let second = pair.a.provision(true).await.unwrap();
    agent.ends().await;
    let mut agent = pair.b.connect(Hello { last_epoch: agent.opened.epoch, ..hello("b1", "D1", vec![]) }).await;
    let assigned = async || {
        pair.b.engine.upkeep().steps().settle(agent.uid, agent.opened.epoch).await.unwrap();
        agent.received()
    };
    let Some(ToAgent::Assign(list)) = eventually(assigned).await.into() else { panic!("no list") };
    assert_eq!(Some(list.workflow_uid), second.metadata.uid);
}

#[tokio::test]
async fn an_agent_that_comes_to_another_leaves_the_first() {
    let pair = pair().await;
    let (name, uid, mut agent) = pair.b.under_way().await;
    let moved = pair.a.connect(agent.again(uid)).await;
    assert_eq!(pair.holder().await.as_deref(), Some(A));
    // Its next event has its number from the first one's log.
    moved.seq.lock().unwrap().clone_from(&agent.seq.lock().unwrap());
    // Before the other one has followed, and after that: the number is not taken by what comes there.
    let late = agent.report(uid, 0, 1, EventBody::Skipped).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::Fenced);
    assert_eq!(pair.a.store.events().list(uid, 0, 9).await.unwrap().len(), 1, "the one of before");
    let epoch = agent.opened.epoch;
    assert!(agent.ends().await.is_empty());
    let late = agent.report(uid, 0, 1, EventBody::Skipped).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::Fenced);
    pair.b.engine.sessions().close_session(agent.uid, epoch, "gone").await.unwrap();
    let done = receipt(agent.uid, uid, ReceiptState::Done);
    moved.report(uid, 0, 1, EventBody::Finished { result: written(done) }).await.unwrap();
    let status = pair.b.run(&name).await.status.unwrap();
    assert_eq!(status.actions[0].state, ActionState::Succeeded);
}

#[tokio::test]
async fn a_second_computer_waits_for_the_first_coordinators_word() {
    let pair = pair().await;
    let (_, uid, agent) = pair.b.under_way().await;
    let other = || hello("b2", "D2", vec![]);
    let refused = pair.a.open(agent.uid, other()).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::MachineBusy, "{}", refused.problem);
    // However long it is: only there is it known what was promised.
    pair.a.later(3600);
    pair.b.engine.sessions().heartbeat(agent.uid, agent.opened.epoch, vitals(0)).await.unwrap();
    let refused = pair.a.open(agent.uid, other()).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::MachineBusy, "{}", refused.problem);
    // It is not heard there any more: one lease from when that is seen.
    pair.b.engine.sessions().close_session(agent.uid, agent.opened.epoch, "gone").await.unwrap();
    let refused = pair.a.open(agent.uid, other()).await.unwrap_err();
    assert_eq!((refused.problem.code, refused.retry_after), (ErrorCode::AmbiguousIdentity, Some(LEASE)));
    pair.a.later(599);
    pair.a.open(agent.uid, other()).await.unwrap_err();
    // Silent for a while, heard again in the same session, and silent again: what was promised then counts.
    let renewed = pair.b.connect(agent.again(uid)).await;
    pair.b.later(20);
    pair.b.engine.upkeep().tick().await.unwrap();
    pair.a.open(agent.uid, other()).await.unwrap_err();
    pair.b.later(60);
    pair.b.engine.sessions().heartbeat(agent.uid, renewed.opened.epoch, vitals(0)).await.unwrap();
    pair.b.later(20);
    pair.b.engine.upkeep().tick().await.unwrap();
    pair.a.later(595);
    let refused = pair.a.open(agent.uid, other()).await.unwrap_err();
    assert_eq!(refused.retry_after, Some(LEASE));
    let agent = renewed;
    // Heard again at the first, before the lease is over: everything begins again.
    let agent = pair.b.connect(agent.again(uid)).await;
    pair.a.later(2);
    let refused = pair.a.open(agent.uid, other()).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::MachineBusy, "{}", refused.problem);
    pair.b.engine.sessions().close_session(agent.uid, agent.opened.epoch, "gone").await.unwrap();
    pair.a.open(agent.uid, other()).await.unwrap_err();
    pair.a.later(600);
    pair.a.open(agent.uid, other()).await.unwrap();
    assert_eq!(pair.holder().await.as_deref(), Some(A));
}

#[tokio::test]
async fn machines_of_a_coordinator_that_is_gone_are_taken_over() {
    let faulty = Arc::new(Faulty::default());
    let pair = pair_over(faulty.store()).await;
    let (name, uid, agent) = pair.b.under_way().await;
    pair.a.engine.others().take_over(&|_: &str| true).await.unwrap();
    assert_eq!(pair.holder().await.as_deref(), Some(B), "it is there");
    // Its agent comes to a coordinator that is there, while the machines of one that is gone are taken over.
    let looks = AtomicI64::new(0);
    let comes = |url: &str| url == A || looks.fetch_add(1, Ordering::Relaxed) > 0;
    pair.a.engine.others().take_over(&comes).await.unwrap();
    let of_a_third = || Input::TakeOver("https://10.77.0.3:7443".to_owned());
    pair.a.engine.upkeep().steps().hand_in("m1", of_a_third()).await.unwrap();
    // As where it has come to the one that takes over, before that has its turn.
    let mut agent = agent;
    pair.b.engine.upkeep().steps().hand_in("m1", of_a_third()).await.unwrap();
    pair.b.engine.sessions().heartbeat(agent.uid, agent.opened.epoch, vitals(0)).await.unwrap();
    assert!(matches!(agent.received(), Some(ToAgent::LeaseRenewal { .. })), "it is still heard");
    assert_eq!(pair.holder().await.as_deref(), Some(B), "it is with another one now");
    // It died after it had stored this, and before it had applied it.
    let done = receipt(agent.uid, uid, ReceiptState::Done);
    let finished = record(uid, (0, 1), 2, EventBody::Finished { result: written(done.clone()) });
    pair.a.store.events().append(u64::MAX, vec![finished]).await.unwrap();
    // The commit takes 20 s, in which that one may have promised more.
    let steady = pair.a.steady.clone();
    faulty.overtake(move |_| {
        steady.fetch_add(20, Ordering::SeqCst);
    });
    pair.a.engine.others().take_over(&|url: &str| url == A).await.unwrap();
    assert_eq!(pair.holder().await.as_deref(), Some(A));
    assert_eq!(pair.a.condition("Connected").await.unwrap().0, ConditionStatus::False);
    // It was there after all: what it still has of the machine ends.
    assert!(agent.ends().await.is_empty());
    let late = pair.b.engine.sessions().heartbeat(agent.uid, agent.opened.epoch, vitals(0)).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::Fenced);
    assert_eq!(pair.a.run(&name).await.status.unwrap().actions[0].state, ActionState::Succeeded);
    let refused = pair.a.open(agent.uid, hello("b2", "D2", vec![])).await.unwrap_err();
    assert_eq!(refused.retry_after, Some(LEASE + CONFIRMED_WITHIN), "its agent may act on what it was promised");
    pair.a.connect(agent.again(uid)).await;
}

#[tokio::test]
async fn a_certificate_from_another_coordinator_counts_at_once() {
    let pair = pair().await;
    pair.b.apply(machine("m2", "52:54:00:00:00:02")).await.unwrap();
    let certificate = certificate(pair.b.store.machine("m2").await.unwrap().unwrap().metadata.uid.unwrap());
    let certificates = pair.a.engine.certificates();
    assert!(certificates.check_certificate(&certificate).is_err(), "it has not heard of that machine yet");
    certificates.check_for_call(&certificate).await.unwrap();
    // One that is refused is so by the newest state, or not for good.
    let unknown = super::certificate(Uuid::from_u128(7));
    let refused = certificates.check_for_call(&unknown).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unauthenticated, "{refused}");
    let asked = (0..40).map(|_| certificates.check_for_call(&unknown));
    let codes: Vec<_> =
        futures::future::join_all(asked).await.into_iter().map(|judged| judged.unwrap_err().code).collect();
    assert!(codes.contains(&ErrorCode::StoreUnavailable), "{codes:?}");
}

#[tokio::test]
async fn a_deleted_machine_goes_when_its_agent_elsewhere_has_stopped() {
    let pair = pair().await;
    let (_, _, mut agent) = pair.b.under_way().await;
    pair.a.engine.documents().delete(Kind::Machine, "m1", "ann").await.unwrap();
    let hears = tokio::time::timeout(Duration::from_secs(60), agent.opened.to_agent.recv()).await.unwrap();
    assert!(matches!(hears, Some(ToAgent::Fenced { .. })), "{hears:?}");
    assert!(pair.a.store.machine("m1").await.unwrap().is_some(), "its agent may be writing");
    pair.b.engine.sessions().fence_acknowledged(agent.uid, agent.opened.epoch).await.unwrap();
    assert!(pair.a.store.machine("m1").await.unwrap().is_none());
}

#[tokio::test]
async fn time_passes_for_a_machine_at_one_coordinator() {
    let pair = pair().await;
    let (name, _, agent) = pair.b.under_way().await;
    pair.a.later(3600);
    pair.b.engine.sessions().heartbeat(agent.uid, agent.opened.epoch, vitals(0)).await.unwrap();
    let before = pair.a.run(&name).await;
    pair.a.engine.upkeep().tick().await.unwrap();
    assert_eq!(pair.a.run(&name).await, before, "it hears nothing of that agent");
    let places = async || Some(pair.a.engine.fleet().index().admission.places()).filter(|places| *places == 1);
    eventually(places).await;
    // A machine without a session is the leading one's.
    let machine = |number: u8| machine(&format!("w{number}"), &format!("52:54:00:00:01:{number:02x}"));
    pair.b.apply(machine(1)).await.unwrap();
    let found = pair.b.store.machine("w1").await.unwrap().unwrap();
    assert!(pair.a.engine.fleet().has(&found) && !pair.b.engine.fleet().has(&found));
}

#[tokio::test]
async fn a_coordinator_that_starts_again_has_no_agent() {
    let pair = pair().await;
    let (.., agent) = pair.b.under_way().await;
    let (store, clock) = (pair.b.store.clone(), pair.b.clock.clone());
    let again = World::beside(store, clock, B).await;
    assert_eq!(
        pair.a.condition("Connected").await.unwrap().0,
        ConditionStatus::False,
        "others would wait for its word"
    );
    let refused = again.open(agent.uid, hello("b2", "D2", vec![])).await.unwrap_err();
    assert_eq!(refused.retry_after, Some(LEASE + CONFIRMED_WITHIN));
}

#[tokio::test]
async fn of_two_requests_at_two_coordinators_one_begins() {
    let pair = pair().await;
    let (first, second) = tokio::join!(pair.a.provision(false), pair.b.provision(false));
    let refused = first.and(second).unwrap_err();
    assert_eq!(refused.code, ErrorCode::MachineBusy);
    assert_eq!(pair.a.store.workflows().await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_two_keys_at_two_coordinators_one_has_the_token() {
    let memory = Arc::new(MemoryStore::default());
    let pair = pair_over(Store::new(memory.clone(), memory, Arc::new(Slow(MemoryStore::default())))).await;
    pair.a.provision(false).await.unwrap();
    let Decision::RunAgent { token, .. } = pair.a.boot().await else { panic!("the agent is wanted") };
    let both =
        async || tokio::join!(pair.a.enroll_with(token.clone(), b"one"), pair.b.enroll_with(token.clone(), b"two"));
    let (refused, first) = match both().await {
        (Ok(_), Err(refused)) => (refused, true),
        (Err(refused), Ok(_)) => (refused, false),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused.code, ErrorCode::TokenRefused);
    assert!(refused.message.contains("another key"), "{refused}");
    let alarm = pair.a.condition("IdentityAmbiguous").await.unwrap();
    assert_eq!(alarm, (ConditionStatus::True, "TokenReused".into()));
    // The same key that asks at both gets a certificate of each.
    let key: &[u8] = if first { b"one" } else { b"two" };
    let (a, b) = tokio::join!(pair.a.enroll_with(token.clone(), key), pair.b.enroll_with(token.clone(), key));
    assert!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
}

#[tokio::test]
async fn events_stay_whose_workflow_was_just_made_at_another_coordinator() {
    let pair = pair().await;
    let run = pair.b.provision(false).await.unwrap();
    let uid = run.metadata.uid.unwrap();
    pair.b.store.events().append(u64::MAX, vec![record(uid, (0, 1), 1, EventBody::Started)]).await.unwrap();
    let removals = pair.a.engine.upkeep().removals();
    assert!(pair.a.engine.fleet().index().workflow_name(uid).is_none(), "it has not heard of that workflow yet");
    removals.retain_events(9).await.unwrap();
    assert_eq!(pair.b.store.events().list(uid, 0, 9).await.unwrap().len(), 1);
    pair.a.engine.cease_to_lead();
    assert_eq!(removals.retain_events(0).await.unwrap_err().code, ErrorCode::StoreUnavailable, "it does not lead");
}

#[tokio::test]
async fn claims_of_the_coordinator_that_led_before_count() {
    let pair = pair().await;
    for number in 2..=4 {
        let mut described = machine(&format!("m{number}"), &format!("52:54:00:00:00:{number:02x}"));
        described["metadata"]["labels"] = json!({"rack": "r7"});
        pair.a.apply(described).await.unwrap();
    }
    let spec = json!({"template": "os", "matchLabels": {"rack": "r7"}, "replicas": 1});
    pair.a.apply(document("Pool", "web", spec)).await.unwrap();
    let claimed = async || {
        let machines = pair.a.store.machines().await.unwrap();
        machines.iter().filter(|machine| machine.status.as_ref().is_some_and(|status| status.pool.is_some())).count()
    };
    let (a, b) = (pair.a.engine.pools(), pair.b.engine.pools());
    assert_eq!(b.tick().await.unwrap_err().code, ErrorCode::StoreUnavailable, "it does not lead");
    assert_eq!(claimed().await, 0);
    a.tick().await.unwrap();
    assert_eq!(claimed().await, 1);
    pair.b.engine.begin_to_lead(Arc::new(|| Duration::ZERO), true).await.unwrap();
    b.tick().await.unwrap();
    assert_eq!(claimed().await, 1);
}

#[tokio::test]
async fn what_is_done_alone_is_not_stored_after_its_turn() {
    let faulty = Arc::new(Faulty::default());
    let world = World::beside(faulty.store(), Arc::new(AtomicI64::new(1_000_000)), A).await.described().await;
    let secret = || document("Secret", "login", json!({ "data": { "word": "x" } }));
    world.apply(secret()).await.unwrap();
    let begins = world.provision(false).await.unwrap().metadata.name;
    let enrolled = world.enroll(b"key").await.unwrap();
    faulty.others_had_turns.store(true, Ordering::SeqCst);
    let renewed = || document("Secret", "login", json!({ "data": { "word": "y" } }));
    for given in [machine("node-2", "52:54:00:00:00:02"), renewed()] {
        assert_eq!(world.apply(given).await.unwrap_err().code, ErrorCode::StoreUnavailable);
    }
    let deleted = world.engine.documents().delete(Kind::Secret, "login", "ann").await;
    assert_eq!(deleted.unwrap_err().code, ErrorCode::StoreUnavailable);
    drop(world.open(enrolled.machine_uid, hello("boot-1", "disk-1", Vec::new())).await);
    assert!(!has_begun(&world.run(&begins).await), "it begins in a turn that is over");
    faulty.others_had_turns.store(false, Ordering::SeqCst);
    world.apply(machine("node-2", "52:54:00:00:00:02")).await.unwrap();
    let opened = world.open(enrolled.machine_uid, hello("boot-1", "disk-1", Vec::new())).await.unwrap();
    assert!(has_begun(&world.run(&begins).await));
    drop(opened);
}
