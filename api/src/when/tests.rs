use proptest::prelude::*;
use serde_json::json;

use super::*;

fn scope() -> Value {
    json!({"machine": {"name": "m1", "labels": {"rack": "r7", "zone-a": "x"}, "macs": ["52:54:00:00:00:01"], "uid": null,
        "facts": {"memoryBytes": 8_589_934_592_u64, "firmware": {"mode": "uefi"}}},
        "params": {"n": 3, "on": true, "list": ["a", 2], "f": 1.0}})
}

fn holds(text: &str) -> Result<bool, WhenFault> {
    When::parse(text)?.holds(&scope())
}

#[test]
fn conditions_mean_what_they_say() {
    for (text, is) in [
        ("machine.name == 'm1'", true),
        ("machine.name != \"m1\"", false),
        ("machine.facts.memoryBytes >= 8589934592", true),
        ("machine.facts.memoryBytes > 8589934592", false),
        ("params.n < 4 and params.n > 2", true),
        ("params.n <= 2 or params.n == 3", true),
        ("false or true and false", false),
        ("(true or false) and not false", true),
        ("not params.on == true", false),
        ("not (params.on and params.n == 4)", true),
        ("machine.labels.rack in [\"r6\", 'r7']", true),
        ("machine.labels.rack not in [\"r6\", 'r7']", false),
        ("2 in params.list and 'b' not in params.list", true),
        ("params.list[0] == 'a'", true),
        ("machine.labels[\"zone-a\"] == 'x'", true),
        ("machine.labels.gone is defined", false),
        ("machine.uid is not defined", true),
        ("machine.labels.gone is defined and machine.labels.gone == 'x'", false),
        ("params.f == 1", true),
        ("params.n == '3'", false),
        ("'a' < 'b'", true),
        ("-1 < 0", true),
        ("'it\\'s' == \"it's\"", true),
        ("params.on", true),
        ("android.x is not defined", true),
    ] {
        assert_eq!(holds(text), Ok(is), "{text}");
    }
}

#[test]
fn what_has_no_value_is_refused_by_name() {
    for (text, said) in [
        ("machine.labels.gone == 'x'", "machine.labels.gone is not defined"),
        ("params.n", "the number 3 is neither true nor false"),
        ("params.n < 'x'", "the number 3 and the text \"x\" have no order"),
        ("'a' in machine.name", "\"in\" needs a list on its right, not the text \"m1\""),
    ] {
        assert_eq!(holds(text).unwrap_err().message, said, "{text}");
    }
}

#[test]
fn what_does_not_parse_is_refused() {
    for text in [
        "", " ", "a ==", "== a", "(a", "a)", "[1, 2", "[1 2]", "a b", "a and", "a is", "a is b", "1 is defined",
        "x(1)", "a.b()", "a | lower", "a + 1", "{{ a }}", "\"open", "a.", "a[b]", "a[-1]", "99999999999999999999",
        "not", "and", "a == b == c", "1.5", "a = b", "a && b", "ä",
    ] {
        assert!(When::parse(text).is_err(), "{text}");
    }
    assert!(When::parse(&format!("{}a{}", "(".repeat(17), ")".repeat(17))).unwrap_err().message.contains("deeper"));
    assert!(When::parse(&format!("{} a", "not ".repeat(17))).unwrap_err().message.contains("deeper"));
    assert!(When::parse(&format!("{}a{}", "(".repeat(16), ")".repeat(16))).is_ok());
    assert!(When::parse(&"a or ".repeat(300)).unwrap_err().message.contains("1500 bytes"));
}

/// The condition is that of `own`.
fn list() -> Vec<Value> {
    let item = |name: &str, field: &str, value: Value| json!({"name": name, field: value});
    let mut list = vec![
        item("call", "http", json!({"url": "http://h/", "result": "text"})),
        item("my-call", "http", json!({"url": "http://h/"})),
        item("site", "include", json!({"template": "t"})),
        json!({"name": "disks", "forEach": {}, "wait": {"for": "1s"}}),
        item("beside", "wait", json!({"for": "1s"})),
        item("before", "wait", json!({"for": "1s"})),
        item("own", "wait", json!({"for": "1s"})),
        item("later", "wait", json!({"for": "1s"})),
    ];
    for (index, branch) in [(4, "a"), (5, "b"), (6, "b")] {
        list[index]["branch"] = branch.into();
    }
    list
}

fn faults(text: &str, disk: bool) -> Vec<String> {
    let parameters = json!({"n": {"type": "integer"}, "t": {"type": "text"}, "l": {"type": "list", "items": {"type": "text"}},
        "b": {"type": "boolean"}, "pw": {"type": "secret"}, "any": {}});
    let parameters = serde_json::from_value(parameters).unwrap();
    let others = Others::seen_from(&list(), 6);
    let found = When::parse(text).unwrap().faults(&WhenScope { parameters: &parameters, disk, others: &others });
    found.into_iter().map(|fault| fault.message).collect()
}

#[test]
fn names_and_types_are_checked_before_any_machine() {
    for fine in [
        "machine.facts.memoryBytes > 1 and machine.facts.disks[0].id.serial == 'x'",
        "machine.facts.firmware.mode == 'uefi' and machine.macs[0] in ['x'] and machine.name in params.l",
        "params.any == 1 or params.any == 'x' or params.any",
        "params.b and not params.b == false and params.l[0] == params.t",
        "machine.labels.rack is defined",
        "results.before.succeeded and results.call.status == 200 and results.call.body in ['a']",
    ] {
        assert_eq!(faults(fine, false), [""; 0], "{fine}");
    }
    for (text, said) in [
        ("machine.fact.x == 1", "machine.fact.x is unknown"),
        ("machine.facts.memoryGb > 1", "machine.facts.memoryGb is unknown"),
        ("machine.facts.memory > 1", "machine.facts.memory is no value"),
        ("machine.facts.memoryBytes > '1'", "a number is compared with text"),
        ("params.m == 1", "the template has no parameter \"m\""),
        ("params.t == 1", "text is compared with a number"),
        ("params.t", "params.t is text, which is neither true nor false"),
        ("params.b < true", "true or false and true or false have no order"),
        ("params.n in params.t", "\"in\" needs a list on its right, not text"),
        ("params.pw == 'x'", "parameter \"pw\" is a secret, which no condition may name"),
        ("secrets.db.pw == 'x'", "\"secrets\" is an unknown name"),
        ("results.write.status == 1", "no action of this list is called \"write\""),
        ("results.own.succeeded", "the condition of \"own\" names its own result"),
        ("results.later.succeeded", "action \"later\" comes later, and has no result yet"),
        ("results.beside.succeeded", "action \"beside\" runs at the same time, in another branch"),
        ("results.disks.succeeded", "\"disks\" stands for one action for each disk"),
        ("results.site.succeeded", "\"site\" stands for the list of another template"),
        ("results.before.status == 1", "only http has the result status, and \"before\" is none"),
        ("results[\"my-call\"].body == 'x'", "action \"my-call\" keeps nothing of the answer's body"),
        ("results.call.code == 1", "an action has no result \"code\""),
        ("results.call.status == '1'", "a number is compared with text"),
        ("results.call", "results.call is no value"),
        ("disk.rotational", "\"disk\" is known only in a loop over disks"),
        ("rack == 1", "\"rack\" is an unknown name"),
    ] {
        assert_eq!(faults(text, false), [said], "{text}");
    }
    for fine in [
        "disk.rotational and disk.number == 1", "disk.serial == 'x' and disk.sizeBytes > 1", "disk.transport == 'nvme'",
    ] {
        assert_eq!(faults(fine, true), [""; 0], "{fine}");
    }
    assert_eq!(faults("disk.colour == 'red'", true), ["disk.colour is unknown"]);
}

fn folded(text: &str) -> Result<String, WhenFault> {
    let action = |name: &str| match name {
        "call" => Some(NamedAction::Listed("site-call".into())),
        "gone" => Some(NamedAction::LeftOut),
        _ => None,
    };
    Ok(match When::parse(text)?.fold(&scope(), &action)? {
        Folded::Decided(decided) => decided.to_string(),
        Folded::Depends(left) => left.to_string(),
    })
}

#[test]
fn what_no_result_decides_is_decided_before() {
    for (text, left) in [
        ("results.call.succeeded", "results[\"site-call\"].succeeded"),
        ("params.on and results.call.status == 201", "results[\"site-call\"].status == 201"),
        ("not params.on and results.call.status == 201", "false"),
        ("results.call.status == 201 and not params.on", "false"),
        ("params.on or results.call.status == 201", "true"),
        ("results.call.status in params.list", "results[\"site-call\"].status in [\"a\", 2]"),
        (
            "results.call.body == machine.name or (not results.call.succeeded and params.n == 3)",
            "results[\"site-call\"].body == \"m1\" or not results[\"site-call\"].succeeded",
        ),
        (
            "results.call.succeeded and (results.call.status < 300 or results.call.body is not defined)",
            "results[\"site-call\"].succeeded and (results[\"site-call\"].status < 300 or not results[\"site-call\"].body is defined)",
        ),
        ("results.gone.succeeded", "false"),
        ("not results.gone.succeeded and results.gone.status is not defined", "true"),
        ("machine.name == 'm1'", "true"),
    ] {
        assert_eq!(folded(text).unwrap(), left, "{text}");
    }
    for (text, said) in [
        ("results.other.succeeded", "no action before this one is called \"other\""),
        ("results.gone.status == 1", "results.gone.status is not defined, because that action is not in the list"),
        ("results.call.status == machine.labels.gone", "machine.labels.gone is not defined"),
        ("results.call.status == params.f", "with its values in place the condition cannot be carried to the agent"),
    ] {
        let fault = folded(text).unwrap_err().message;
        assert!(fault.starts_with(said), "{text}: {fault}");
    }
}

#[test]
fn what_is_left_is_decided_by_outcomes() {
    let called = ActionOutcome { succeeded: true, status: Some(201), body: Some("new".into()) };
    let left_out = ActionOutcome::left_out();
    let scope = results_scope([("site-call", &called), ("other", &left_out)]);
    for (text, is) in [
        ("results[\"site-call\"].status == 201 and results[\"site-call\"].body == \"new\"", Ok(true)),
        ("results.other.succeeded", Ok(false)),
        ("results.other.status is defined", Ok(false)),
        ("results.other.status == 1", Err("results.other.status is not defined".to_owned())),
        ("results.unknown.succeeded", Err("results.unknown.succeeded is not defined".to_owned())),
    ] {
        assert_eq!(When::parse(text).unwrap().holds(&scope).map_err(|fault| fault.message), is, "{text}");
    }
}

proptest! {
    #[test]
    fn what_is_left_means_what_was_written(
        text in "((not )?(results[.]call[.]succeeded|params[.]on|machine[.]name == 'm1'|results[.]call[.]status (==|<) 2|\\(true or results[.]call[.]succeeded\\)) (and|or) ){1,5}results[.]call[.]succeeded",
        succeeded in any::<bool>(),
        status in 1..4_u16,
    ) {
        let outcome = ActionOutcome { succeeded, status: Some(status), body: None };
        let mut whole = scope();
        whole["results"] = results_scope([("call", &outcome)])["results"].clone();
        let expected = When::parse(&text).unwrap().holds(&whole).unwrap();
        let left = folded(&text).unwrap();
        let decided = match left.as_str() {
            "true" => true,
            "false" => false,
            rest => When::parse(rest).unwrap().holds(&results_scope([("site-call", &outcome)])).unwrap(),
        };
        prop_assert_eq!(decided, expected, "{} became {}", text, left);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-c.\\[\\]()'\"0-9 <>=!,-]{0,60}|(a|b|not|and|or|in|is|defined|[()]| ){0,40}") {
        if let Ok(when) = When::parse(&text) {
            // Evaluated or refused; and the same each time.
            prop_assert_eq!(when.holds(&scope()), when.holds(&scope()));
        }
    }
}
