//! The table in `docs/conditions.md` says what the declarations of conditions say.
//!
//! `LANDFALL_BLESS=1 cargo test -p landfall-api --test conditions_page` writes it anew.

use std::{fs, path::Path};

use landfall_api::{ConditionType, Reason};

const BEGIN: &str = "<!-- Made from the declarations in api/src/condition.rs by api/tests/conditions_page.rs. -->\n";
const END: &str = "<!-- End of what is made. -->\n";

fn tables() -> String {
    let mut out = String::from("| condition | what it says | reasons |\n|---|---|---|\n");
    for (kind, about) in ConditionType::KNOWN {
        let mut reasons: Vec<String> = kind.reasons().iter().map(|reason| format!("`{reason}`")).collect();
        if *kind == ConditionType::Provisioned {
            reasons.push("an error code".to_owned());
        }
        out.push_str(&format!("| `{kind}` | {} | {} |\n", about.trim(), reasons.join(", ")));
    }
    out.push_str("\n| reason | what it says |\n|---|---|\n");
    for (reason, about) in Reason::KNOWN {
        out.push_str(&format!("| `{reason}` | {} |\n", about.trim()));
    }
    out
}

#[test]
fn the_documentation_lists_every_condition_as_declared() {
    // Cargo runs a test in the folder of its crate.
    let path = Path::new("../docs/conditions.md");
    let page = fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table is marked");
    let (written, after) = rest.split_once(END).expect("the end of the table is marked");
    if std::env::var_os("LANDFALL_BLESS").is_some_and(|value| value == "1") {
        return fs::write(path, format!("{before}{BEGIN}{}{END}{after}", tables())).unwrap();
    }
    let hint = "LANDFALL_BLESS=1 cargo test -p landfall-api --test conditions_page writes docs/conditions.md anew";
    assert_eq!(written, tables(), "{hint}");
}
