use serde_json::json;

use super::*;

fn parameter(tree: Value) -> Parameter {
    serde_json::from_value(tree).unwrap()
}

fn refusal(declared: Value, value: &Value) -> Option<String> {
    parameter(declared).check("p", value).err().map(|fault| format!("{} | {}", fault.message, fault.hint))
}

#[test]
fn a_value_is_refused_with_rule_and_remedy() {
    for (declared, good, bad, said) in [
        (
            json!({"type": "text", "pattern": "a|ab"}),
            json!("ab"),
            json!("abc"),
            "parameter \"p\" is \"abc\", which does not match its pattern a|ab | write a value that matches the pattern \
             from beginning to end",
        ),
        (
            json!({"type": "text", "minLength": 2, "maxLength": 3}),
            json!("äöü"),
            json!("ä"),
            "parameter \"p\" is \"ä\", which has 1 characters; minLength is 2 | write text: 2 to 3 characters",
        ),
        (
            json!({"type": "text"}),
            json!("12"),
            json!(12),
            "parameter \"p\" is the number 12, and its type is text | write text",
        ),
        (
            json!({"type": "integer", "min": 1, "max": 8}),
            json!(8),
            json!(9),
            "parameter \"p\" is 9; max is 8 | write a whole number: 1 to 8",
        ),
        (
            json!({"type": "integer"}),
            json!(-3),
            json!(1.5),
            "parameter \"p\" is the number 1.5, and its type is integer | write a whole number, such as 42",
        ),
        (
            json!({"type": "boolean"}),
            json!(false),
            json!("yes"),
            "parameter \"p\" is the text \"yes\", and its type is boolean | write true or false",
        ),
        (
            json!({"type": "enum", "values": ["bookworm", "trixie"]}),
            json!("trixie"),
            json!("trixi"),
            "parameter \"p\" is \"trixi\", which is not among its values | did you mean \"trixie\"? Write one of \
             bookworm, trixie",
        ),
        (
            json!({"type": "list", "maxLength": 2, "items": {"type": "integer", "min": 1}}),
            json!([1, 2]),
            json!([1, 0]),
            "item 2 of parameter \"p\" is 0; min is 1 | write a whole number: at least 1",
        ),
        (
            json!({"type": "list", "maxLength": 2}),
            json!(["a", 1]),
            json!([1, 2, 3]),
            "parameter \"p\" has 3 items; maxLength is 2 | write a list: at most 2 items",
        ),
    ] {
        assert_eq!(refusal(declared.clone(), &good), None);
        assert_eq!(refusal(declared, &bad).as_deref(), Some(said));
    }
}

#[test]
fn a_secret_is_a_reference_and_never_repeated() {
    let secret = json!({"type": "secret"});
    assert_eq!(refusal(secret.clone(), &json!("my-db.pw_1")), None);
    for value in [json!("hunter2"), json!("Hunter2.x"), json!(4711), json!("a.b.hunter2"), json!(["hunter2"])] {
        let said = refusal(secret.clone(), &value).unwrap();
        assert!(!said.to_lowercase().contains("hunter2") && !said.contains("4711"), "{said}");
        assert!(said.contains("SECRET.KEY"), "{said}");
    }
}

#[test]
fn a_text_is_read_by_the_declared_type() {
    for (declared, text, value) in [
        (json!({}), "42", json!(42)),
        (json!({}), "a=b", json!("a=b")),
        (json!({"type": "text"}), "42", json!("42")),
        (json!({"type": "enum", "values": ["12"]}), "12", json!("12")),
        (json!({"type": "integer"}), "42", json!(42)),
        (json!({"type": "integer"}), "x", json!("x")),
        (json!({"type": "boolean"}), "true", json!(true)),
        (json!({"type": "list"}), "[1, \"a,b\"]", json!([1, "a,b"])),
        (json!({"type": "list"}), "a, 2", json!(["a", "2"])),
        (json!({"type": "list", "items": {"type": "integer"}}), "1,2", json!([1, 2])),
        (json!({"type": "list"}), "", json!([])),
        (json!({"type": "secret"}), "db.pw", json!("db.pw")),
    ] {
        assert_eq!(parameter(declared.clone()).read(text), value, "{declared} {text}");
    }
}

#[test]
fn a_pattern_has_at_most_1024_bytes() {
    let mut issues = Vec::new();
    parameter(json!({"type": "text", "pattern": "a".repeat(1025)})).faults("p", &mut issues);
    assert_eq!(issues.into_iter().map(|issue| issue.path).collect::<Vec<_>>(), ["p.pattern"]);
}

#[test]
fn a_long_value_is_checked_and_shown_within_bounds() {
    let said = refusal(json!({"type": "text", "pattern": "(a*)*b"}), &json!("a".repeat(MAX_MATCHED))).unwrap();
    assert!(said.len() < 400 && said.contains('…'), "{said}");
    let said = refusal(json!({"type": "text", "pattern": "a*"}), &json!("a".repeat(MAX_MATCHED + 1))).unwrap();
    assert!(said.contains("4097 bytes"), "{said}");
}

#[test]
fn a_list_has_at_most_1024_items() {
    let declared = json!({"type": "list", "items": {"type": "text", "pattern": "a"}});
    assert_eq!(refusal(declared.clone(), &json!(vec!["a"; 1024])), None);
    let refused = refusal(declared.clone(), &json!(vec!["a"; 1025])).unwrap();
    assert!(refused.contains("has 1025 items; the limit is 1024"), "{refused}");
    assert!(refusal(declared, &json!(["a", "b"])).unwrap().contains("item 2 of parameter"));
}

#[test]
fn type_and_rules_have_words() {
    let list = parameter(json!({"type": "list", "minLength": 1, "items": {"type": "text", "pattern": "a+"}}));
    assert_eq!(
        (list.type_in_words().as_str(), list.rules_in_words().as_str()),
        ("list of text", "at least 1 items; matches a+")
    );
    let number = parameter(json!({"type": "integer", "min": 1, "max": 8}));
    assert_eq!((number.type_in_words().as_str(), number.rules_in_words().as_str()), ("integer", "1 to 8"));
}
