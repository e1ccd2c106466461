//! Actions that are done only if a condition over results holds.

use landfall_api::{ActionOutcome, Http, HttpMethod, ImageAccess, KeepBody, When, message::KnownResult};

use super::*;

const LONG: Duration = Duration::from_secs(600);

fn call() -> ActionKind {
    ActionKind::Http(Http {
        url: "http://h/".into(),
        method: HttpMethod::Get,
        headers: Vec::new(),
        body: None,
        expect_status: Vec::new(),
        keep: KeepBody::Text,
        access: ImageAccess::default(),
        secret: false,
    })
}

/// A call, two actions with these conditions, and the reboot.
fn list(conditions: [&str; 2]) -> Vec<AssignedAction> {
    let named = |name: &str, kind| AssignedAction { name: name.into(), ..step(kind, LONG, 2, "") };
    let conditional = |(name, text): (&str, &str)| AssignedAction {
        when: Some(text).filter(|text| !text.is_empty()).map(|text| When::parse(text).unwrap()),
        ..named(name, seed())
    };
    let [one, two] = [("one", conditions[0]), ("two", conditions[1])].map(conditional);
    vec![named("call", call()), one, two, step(ActionKind::Reboot(RebootSpec {}), LONG, 1, "")]
}

fn done(count: usize) -> Vec<Act> {
    (0..count).map(|_| Act::Succeed).collect()
}

#[tokio::test(start_paused = true)]
async fn an_action_whose_condition_fails_is_left_out() {
    let list = list(["results.call.status == 200", "not results.one.succeeded and results.call.body == 'go'"]);
    let scene = stage(run_of(list, &[(0, 1)]), done(3));
    assert_eq!(scene.task.await.unwrap(), Outcome::Reboot);
    let want = ["0.1 started", "0.1 finished", "1.1 skipped", "2.1 started", "2.1 finished"];
    assert_eq!(scene.reports.all()[..5], want);
}

#[tokio::test(start_paused = true)]
async fn results_of_an_earlier_agent_decide_as_well() {
    let known =
        |status| KnownResult { index: 0, outcome: ActionOutcome { succeeded: true, status: Some(status), body: None } };
    for (status, reports) in
        [(201, ["1.2 started", "1.2 finished", "2.1 started"]), (200, ["1.2 skipped", "2.1 started", "2.1 finished"])]
    {
        let list = list(["results.call.status == 201", ""]);
        let run = Assignment { results: vec![known(status)], ..run_of(list, &[(1, 2)]) };
        let scene = stage(run, done(3));
        assert_eq!(scene.task.await.unwrap(), Outcome::Reboot);
        assert_eq!(scene.reports.all()[..3], reports);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_result_fails_the_action_and_does_nothing() {
    let scene = stage(run_of(list(["results.call.status == 201", ""]), &[(1, 1)]), Vec::new());
    let Outcome::Failed(problem) = scene.task.await.unwrap() else { panic!("it failed") };
    assert!(problem.message.contains("results.call.status is not defined"), "{problem}");
    assert_eq!(scene.reports.all(), ["1.1 started", "1.1 failed InvalidTemplate false"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_to_stop_is_not_left_out() {
    let scene = stage(run_of(list(["results.call.status == 200", ""]), &[(0, 1)]), vec![Act::Succeed]);
    scene.stop.send_replace(Some(Stop::Cancelled("a person".into())));
    assert!(matches!(scene.task.await.unwrap(), Outcome::Stopped(_)));
    assert!(!scene.reports.all().iter().any(|report| report.contains("skipped")));
}

#[test]
fn what_was_left_out_is_none_for_later_actions() {
    let run = Arc::new(run_of(list(["", ""]), &[(0, 1)]));
    let outcomes = Outcomes::new(run.clone());
    outcomes.note(0, ActionOutcome::done());
    assert!(Arc::ptr_eq(&outcomes.as_done(), &run));
    outcomes.note(1, ActionOutcome::left_out());
    let done = outcomes.as_done();
    let holds: Vec<bool> = done.actions.iter().map(|action| matches!(action.kind, ActionKind::Hold(_))).collect();
    assert_eq!(holds, [false, true, false, false]);
}
