//! A page of the documentation: parts that are made, between two marks, and sections that are written by hand.

use std::{fs, path::Path};

use crate::FOLDER;

/// Sections that every action's page has, in any order.
pub(crate) const SECTIONS: [&str; 6] =
    ["Example", "Fields", "A retry", "A restart of the machine", "A power cut", "Errors"];

const END: &str = "<!-- End of what is made. -->\n";

fn begin(part: &str) -> String {
    format!("<!-- Made by api/tests/actions_page: {part}. -->\n")
}

/// Whether the made parts are to be written.
pub(crate) fn blessing() -> bool {
    std::env::var_os("LANDFALL_BLESS").is_some_and(|value| value == "1")
}

/// The first text of a new action's page; the tests refuse it until a person explains the action.
fn begun(key: &str) -> String {
    let mut text = format!("# {key}\n\n{}{END}\n", begin("declaration"));
    for name in SECTIONS {
        let made = if name == "Fields" { format!("{}{END}", begin("fields")) } else { String::new() };
        text += &format!("## {name}\n{made}\n");
    }
    text
}

/// One page.
pub(crate) struct Page {
    name: String,
    pub(crate) text: String,
    changed: bool,
}

impl Page {
    /// The page of this name in `docs/actions/`.
    pub(crate) fn read(name: &str) -> Self {
        let path = Path::new(FOLDER).join(name);
        if let Some(key) = name.strip_suffix(".md").filter(|_| blessing() && !path.exists()) {
            fs::write(&path, begun(key)).unwrap();
        }
        let text = fs::read_to_string(path);
        let text = text.unwrap_or_else(|error| panic!("cannot read docs/actions/{name}: {error}"));
        Self { name: name.to_owned(), text, changed: false }
    }

    /// Compares a made part with what it is to be; under `LANDFALL_BLESS=1` takes it in.
    pub(crate) fn holds(mut self, part: &str, made: &str) -> Self {
        let begin = begin(part);
        let around = self.text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
        let Some((before, (written, after))) = around else {
            panic!("docs/actions/{} has no part that is made from the {part}: add the lines\n{begin}{END}", self.name);
        };
        if blessing() {
            self.changed |= written != made;
            self.text = format!("{before}{begin}{made}{END}{after}");
            return self;
        }
        let hint = "LANDFALL_BLESS=1 cargo test -p landfall-api --test actions_page writes it anew";
        assert_eq!(written, made, "docs/actions/{} is old; {hint}", self.name);
        self
    }

    /// Writes what [`Self::holds`] took in.
    pub(crate) fn written(self) {
        if self.changed {
            fs::write(Path::new(FOLDER).join(&self.name), self.text).unwrap();
        }
    }

    /// What stands under a heading of the second level, up to the next one.
    pub(crate) fn section(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.text.split_once(&format!("\n## {name}\n"))?;
        Some(rest.split("\n## ").next().unwrap_or(rest))
    }
}
