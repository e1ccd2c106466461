//! Serial consoles through BMCs: what the BMC sees is asserted at the BMC.

use landfall_api::{Characters, ConsoleInput, ConsoleLine, ConsoleRequest, Problem};
use landfall_bmcsim::{BmcSim, PASSWORD, Quirks, USERNAME};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::OpenConsole;

/// Generous: a loaded machine must not fail a test.
const LIMIT: Duration = Duration::from_secs(60);
const TAKE_OVER: ConsoleRequest = ConsoleRequest { take_over: true, instead_of: None };

fn secret(password: &str) -> serde_json::Value {
    let data = json!({"username": USERNAME, "password": password});
    document("Secret", "bmc", json!({"data": data, "bmcs": ["127.0.0.0/8", "http://127.0.0.0/8"]}))
}

/// A world whose machine `m1` has a BMC at that address, and perhaps a console.
async fn world(address: &str, console: Option<&str>, password: &str) -> World {
    let world = World::new().await;
    world.apply(secret(password)).await.unwrap();
    let mut document = machine("m1", MAC);
    document["spec"]["bmc"] = json!({"address": address, "credentials": "bmc"});
    if let Some(console) = console {
        document["spec"]["bmc"]["console"] = console.into();
    }
    world.apply(document).await.unwrap();
    world
}

async fn open(world: &World, person: &str, request: ConsoleRequest) -> Result<OpenConsole, Problem> {
    world.engine.power().open_console("m1", person, request).await
}

async fn next(console: &mut OpenConsole) -> Option<ConsoleLine> {
    timeout(LIMIT, console.next()).await.expect("a line in time")
}

/// The next thing that is said to a person.
async fn notice(console: &mut OpenConsole) -> String {
    loop {
        match next(console).await {
            Some(ConsoleLine::Notice(text)) => return text,
            Some(ConsoleLine::Output(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn ended(console: &mut OpenConsole) -> Problem {
    loop {
        match next(console).await {
            Some(ConsoleLine::Ended(problem)) => return problem,
            Some(_) => {}
            None => panic!("it has ended without a reason"),
        }
    }
}

fn input(console: &OpenConsole, number: u64, text: &str) -> ConsoleInput {
    let characters = Characters(text.into());
    ConsoleInput { console: console.id, number, characters, send_break: text.is_empty() }
}

async fn free(sim: &BmcSim) {
    let wanted = |state: &landfall_bmcsim::State| state.serial.owner.is_none() && state.accounts.sessions.is_empty();
    sim.until("the end of the console and its session", wanted).await;
}

#[tokio::test]
async fn a_console_passes_both_ways_and_ends_with_its_reader() {
    let sim = BmcSim::start_ipmi(Quirks::default()).await;
    let world = world(sim.address(), None, PASSWORD).await;
    let mut console = open(&world, "ann", ConsoleRequest::default()).await.unwrap();
    sim.writes(b"login: \xff\0");
    assert_eq!(next(&mut console).await, Some(ConsoleLine::Output(Characters(b"login: \xff\0".to_vec()))));
    let power = world.engine.power();
    for (number, text, taken) in [(1, "ro", 1), (1, "ro", 1), (2, "ot\r", 2), (1, "ro", 2), (3, "", 3)] {
        let answer = power.type_at_console("m1", "ann", input(&console, number, text)).await.unwrap();
        assert_eq!(answer.number, taken);
    }
    sim.until("what was typed", |state| state.serial.typed == b"root\r" && state.serial.breaks == 1).await;
    for (person, given, code) in [
        ("bob", input(&console, 4, "x"), ErrorCode::NotFound),
        ("ann", input(&console, 4, &"x".repeat(1025)), ErrorCode::InvalidDocument),
        ("ann", ConsoleInput { console: Uuid::nil(), ..input(&console, 4, "x") }, ErrorCode::NotFound),
    ] {
        assert_eq!(power.type_at_console("m1", person, given).await.unwrap_err().code, code);
    }
    // The power has a session of its own meanwhile.
    let mut driver = power.driver("m1").unwrap();
    driver.look().await.unwrap();
    assert_eq!(world.condition("PowerKnown").await.unwrap().0, ConditionStatus::True);
    assert_eq!(sim.seen().accounts.sessions.len(), 2);
    // The one before was given up by its sender.
    power.type_at_console("m1", "ann", input(&console, 7, "exit\r")).await.unwrap();
    drop(console);
    sim.until("the end of the console", |state| state.accounts.sessions.len() == 1).await;
    assert_eq!(String::from_utf8(sim.seen().serial.typed).unwrap(), "root\rexit\r", "typed just before the end");
    assert_eq!((sim.seen().serial.owner, sim.seen().serial.deactivated), (None, 1));
}

#[tokio::test]
async fn a_second_reader_learns_who_has_the_console() {
    let sim = BmcSim::start_ipmi(Quirks { console_taken: true, ..Quirks::default() }).await;
    let world = world(sim.address(), None, PASSWORD).await;
    let busy = open(&world, "ann", ConsoleRequest::default()).await.err().unwrap();
    assert_eq!(busy.code, ErrorCode::MachineBusy, "another program has it at the BMC");
    assert!(busy.hint.contains("--take-over"), "{busy:?}");
    let mut first = open(&world, "ann", TAKE_OVER).await.unwrap();
    let refused = open(&world, "bob", ConsoleRequest::default()).await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::MachineBusy);
    assert!(refused.message.contains("ann, since") && refused.hint.contains("--take-over"), "{refused:?}");
    let stolen = ConsoleRequest { take_over: false, instead_of: Some(first.id) };
    assert!(open(&world, "bob", stolen).await.is_err(), "it is not theirs");
    let mut second = open(&world, "bob", TAKE_OVER).await.unwrap();
    let problem = ended(&mut first).await;
    assert!(problem.message.contains("bob took the console over"), "{problem:?}");
    assert_eq!(next(&mut first).await, None);
    // A reader whose connection was lost, and who is back before the coordinator knows.
    let again = ConsoleRequest { take_over: false, instead_of: Some(second.id) };
    let third = open(&world, "bob", again).await.unwrap();
    ended(&mut second).await;
    drop((first, second, third));
    free(&sim).await;
}

#[tokio::test]
async fn a_console_that_the_bmc_ends_is_opened_again() {
    let sim = BmcSim::start_ipmi(Quirks::default()).await;
    let world = world(sim.address(), None, PASSWORD).await;
    let mut console = open(&world, "ann", ConsoleRequest::default()).await.unwrap();
    sim.end_console();
    assert!(notice(&mut console).await.contains("the console was lost"));
    assert!(notice(&mut console).await.contains("open again"));
    sim.writes(b"x");
    assert_eq!(next(&mut console).await, Some(ConsoleLine::Output(Characters(b"x".to_vec()))));
    // Another program at the BMC: it is theirs from then on.
    sim.change(|state| state.quirks.console_taken = true);
    sim.end_console();
    assert_eq!(ended(&mut console).await.code, ErrorCode::MachineBusy);
    free(&sim).await;
}

#[tokio::test]
async fn a_refused_account_is_shown_to_the_console_once() {
    let sim = BmcSim::start_ipmi(Quirks { lockout_after: Some(1), ..Quirks::default() }).await;
    let world = world(sim.address(), None, "wrong").await;
    let tries = || sim.seen().requests.iter().filter(|request| *request == "payload 0x12").count();
    for _ in 0..2 {
        let refused = open(&world, "ann", ConsoleRequest::default()).await.err().unwrap();
        assert!(refused.message.contains("refuse"), "{refused:?}");
    }
    // Neither the power nor another coordinator tries it.
    world.engine.power().driver("m1").unwrap().look().await.unwrap();
    let restarted = World::over(world.store.clone(), world.clock.clone()).await;
    restarted.engine.power().driver("m1").unwrap().look().await.unwrap();
    assert!(open(&restarted, "ann", ConsoleRequest::default()).await.is_err());
    assert_eq!((tries(), sim.seen().accounts.failed), (1, 0));
    restarted.apply(secret(PASSWORD)).await.unwrap();
    drop(open(&restarted, "ann", ConsoleRequest::default()).await.unwrap());
    free(&sim).await;
}

#[tokio::test]
async fn a_machine_with_redfish_needs_an_address_of_ipmi() {
    let (redfish, ipmi) = (BmcSim::start(Quirks::default()).await, BmcSim::start_ipmi(Quirks::default()).await);
    let without = world(redfish.address(), None, PASSWORD).await;
    let refused = open(&without, "ann", ConsoleRequest::default()).await.err().unwrap();
    assert!(refused.hint.contains("spec.bmc.console: ipmi://127.0.0.1"), "{refused:?}");
    // The account of the console may be refused where that of the power is right.
    ipmi.change(|state| state.accounts.password = "other".into());
    let world = world(redfish.address(), Some(ipmi.address()), PASSWORD).await;
    let refused = open(&world, "ann", ConsoleRequest::default()).await.err().unwrap();
    assert!(refused.message.contains("refuses the account"), "{refused:?}");
    world.engine.power().driver("m1").unwrap().look().await.unwrap();
    assert_eq!(world.condition("PowerKnown").await.unwrap().0, ConditionStatus::True);
    let restarted = World::over(world.store.clone(), world.clock.clone()).await;
    let tries = ipmi.seen().requests.len();
    assert!(open(&restarted, "ann", ConsoleRequest::default()).await.is_err());
    assert_eq!(ipmi.seen().requests.len(), tries, "also after a restart it is not asked");
    // Another version of the Secret is tried at once, and what was refused is forgotten then.
    redfish.change(|state| state.accounts.password = "other".into());
    restarted.apply(secret("other")).await.unwrap();
    assert!(restarted.machine().await.status.unwrap().bmc.unwrap().console_refused.is_some());
    drop(open(&restarted, "ann", ConsoleRequest::default()).await.unwrap());
    assert_eq!(restarted.machine().await.status.unwrap().bmc.unwrap().console_refused, None);
    free(&ipmi).await;
    let mut elsewhere = secret("other");
    elsewhere["spec"]["bmcs"] = json!(["http://127.0.0.0/8"]);
    restarted.apply(elsewhere).await.unwrap();
    let refused = open(&restarted, "ann", ConsoleRequest::default()).await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::Forbidden, "the Secret must name the console's host too");
}

#[tokio::test]
async fn consoles_end_with_their_document_and_their_coordinator() {
    let sim = BmcSim::start_ipmi(Quirks::default()).await;
    let world = world(sim.address(), None, PASSWORD).await;
    let (stop, power) = (CancellationToken::new(), world.engine.clone());
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { power.power().run(stop).await }
    });
    let mut console = open(&world, "ann", ConsoleRequest::default()).await.unwrap();
    let mut other = machine("m1", MAC);
    other["spec"]["bmc"] = json!({"address": sim.address(), "credentials": "bmc", "ways": ["pxeOnce"]});
    world.apply(other).await.unwrap();
    assert!(ended(&mut console).await.message.contains("document"));
    let mut console = open(&world, "ann", ConsoleRequest::default()).await.unwrap();
    stop.cancel();
    assert_eq!(next(&mut console).await, None, "without a last word, so that its reader comes back");
    timeout(LIMIT, running).await.unwrap().unwrap();
    free(&sim).await;
}
