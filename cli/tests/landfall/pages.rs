//! What people see, whole: the tables of every kind and the pages of describe.

use crate::fake::Fake;

/// Moments differ from run to run; ages and widths do not.
fn settled(text: &str) -> String {
    let bytes = text.as_bytes();
    let is_moment = |at: usize| {
        bytes.get(at..at + 19).is_some_and(|part| {
            part.iter().enumerate().all(|(i, b)| match i {
                4 | 7 => *b == b'-',
                10 => *b == b' ',
                13 | 16 => *b == b':',
                _ => b.is_ascii_digit(),
            })
        })
    };
    let mut out = String::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if is_moment(at) && !text[at..].starts_with("2026-01-01") {
            out.push_str("YYYY-MM-DD hh:mm:ss");
            at += 19;
        } else {
            out.push(c);
            at += c.len_utf8();
        }
    }
    out
}

#[test]
fn tables_of_every_kind() {
    let fake = Fake::start();
    let mut text = String::new();
    for kind in ["machines", "templates", "workflows", "secrets", "enrolmentrules", "pools"] {
        for form in ["table", "wide"] {
            text += &format!("$ landfall get {kind} -o {form}\n{}", fake.landfall(&["get", kind, "-o", form]).out);
        }
    }
    insta::assert_snapshot!(settled(&text));
}

#[test]
fn pages_of_describe() {
    let fake = Fake::start();
    let mut text = String::new();
    for subject in ["machine/node-1", "workflow/node-1-a", "template/mini", "secret/root-key", "rule/dell", "pool/web"]
    {
        text += &format!("$ landfall describe {subject}\n{}\n", fake.landfall(&["describe", subject]).out);
    }
    insta::assert_snapshot!(settled(&text));
}
