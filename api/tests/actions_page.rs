//! The table in `docs/actions.md` says what the actions' declarations say.
//!
//! `LANDFALL_BLESS=1 cargo test -p landfall-api --test actions_page` writes it anew.

use std::{fs, path::Path};

use landfall_api::{ActionInfo, ActionSpec};

const BEGIN: &str = "<!-- Made from the declarations in api/src/action by api/tests/actions_page.rs. -->\n";
const END: &str = "<!-- End of what is made. -->\n";

fn table() -> String {
    let mut out = String::from(
        "| action | what it does | default timeout | attempts | protocol | may stand in | secrets may stand in |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (key, info) in ActionSpec::ALL {
        let ActionInfo { about, timeout, attempts, protocol, .. } = info;
        let branch = (!info.is_last_step() && info.no_branch.is_none()).then_some("branches");
        let places: Vec<&str> = branch.into_iter().chain(info.after_failure.then_some("`onFailure`")).collect();
        let secrets: Vec<String> = info.secrets.iter().map(|field| format!("`{field}`")).collect();
        let later = ActionSpec::later_fields().into_iter().filter(|(of, ..)| *of == key);
        let later: String = later.map(|(_, field, protocol)| format!(" (`{field}`: {protocol})")).collect();
        let (places, secrets) = (places.join(", "), secrets.join(", "));
        out.push_str(&format!(
            "| `{key}` | {about} | {timeout} | {attempts} | {protocol}{later} | {places} | {secrets} |\n"
        ));
    }
    out
}

#[test]
fn the_documentation_lists_every_action_as_declared() {
    // Cargo runs a test in the folder of its crate.
    let path = Path::new("../docs/actions.md");
    let page = fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table is marked");
    let (written, after) = rest.split_once(END).expect("the end of the table is marked");
    if std::env::var_os("LANDFALL_BLESS").is_some_and(|value| value == "1") {
        return fs::write(path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
    }
    let hint = "LANDFALL_BLESS=1 cargo test -p landfall-api --test actions_page writes docs/actions.md anew";
    assert_eq!(written, table(), "{hint}");
}
