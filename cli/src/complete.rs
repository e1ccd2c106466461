//! What may come next on an incomplete command line: pure, from the command's definition. The caller requests names
//! that only the coordinator knows.

use clap::{Arg, Command};
use landfall_api::Kind;

/// What fits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Words, each with a description.
    pub(crate) words: Vec<(String, String)>,
    /// In addition, names that the definition does not contain.
    pub(crate) names: Option<Names>,
    /// A file belongs here.
    pub(crate) files: bool,
    /// What stands before the part that is completed, such as `machine/`.
    pub(crate) before: String,
    /// The part that is completed.
    pub(crate) typed: String,
    /// Connection options in the line so far.
    pub(crate) connection: Vec<(String, String)>,
}

/// Names that are not in the command's definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Of documents.
    Of(Kind),
    /// Of workflows, and of machines as `machine/NAME`.
    Runs,
    /// Of workflows and machines alike.
    Subjects,
    Contexts,
}

/// The connection options.
const CONNECTION: [&str; 8] = ["server", "context", "ca", "ca_pin", "cert", "key", "token_file", "token_command"];

/// Reads the words before the last and offers what fits the last.
pub(crate) fn offer(root: &Command, words: &[String]) -> Offer {
    // bash treats `=` as a separate word.
    let words = joined(words);
    let (typed, before) = words.split_last().map_or((String::new(), &[][..]), |(last, rest)| (last.clone(), rest));
    let mut at = root;
    let mut chain = vec![root];
    let (mut given, mut wants, mut only_words) = (Vec::new(), None, false);
    let mut connection = Vec::new();
    for word in before {
        if let Some(arg) = wants.take() {
            remember(arg, word, &mut connection);
        } else if !only_words && word == "--" {
            only_words = true;
        } else if !only_words && word.starts_with('-') && word.len() > 1 {
            if let Some((arg, value)) = option(&chain, word) {
                match value {
                    Some(value) => remember(arg, &value, &mut connection),
                    None if arg.get_action().takes_values() => wants = Some(arg),
                    None => {}
                }
            }
        } else if let Some(below) = at.find_subcommand(word).filter(|_| given.is_empty()) {
            at = below;
            chain.push(below);
        } else {
            given.push(word.clone());
        }
    }
    let mut offer = Offer { connection, typed: typed.clone(), ..Offer::default() };
    if let Some(arg) = wants {
        values(at, arg, &given, &mut offer);
    } else if let Some((flag, value)) = typed.split_once('=').filter(|(flag, _)| flag.starts_with("--")) {
        if let Some((arg, _)) = option(&chain, flag) {
            offer.before = format!("{flag}=");
            offer.typed = value.to_owned();
            values(at, arg, &given, &mut offer);
        }
    } else if typed.starts_with('-') && !only_words {
        options(&chain, &mut offer);
    } else {
        if given.is_empty() {
            let about = |c: &Command| c.get_about().map(ToString::to_string).unwrap_or_default();
            let shown = at.get_subcommands().filter(|c| !c.is_hide_set());
            offer.words.extend(shown.map(|c| (c.get_name().to_owned(), about(c))));
        }
        let positionals: Vec<&Arg> = at.get_positionals().collect();
        // The last one may take many.
        if let Some(arg) = positionals.get(given.len()).or(positionals.last().filter(|a| takes_many(a))) {
            values(at, arg, &given, &mut offer);
        }
    }
    let typed = offer.typed.clone();
    offer.words.retain(|(word, _)| word.starts_with(&typed));
    offer
}

/// `--output`, `=`, `js` as `--output=js`.
fn joined(words: &[String]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut open = false;
    for word in words {
        match out.last_mut() {
            Some(last) if word == "=" && last.starts_with("--") && !last.contains('=') => {
                last.push('=');
                open = true;
            }
            Some(last) if open => {
                last.push_str(word);
                open = false;
            }
            _ => out.push(word.clone()),
        }
    }
    out
}

fn takes_many(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|n| n.max_values() > 1)
}

fn remember(arg: &Arg, value: &str, connection: &mut Vec<(String, String)>) {
    if CONNECTION.contains(&arg.get_id().as_str()) {
        connection.push((arg.get_id().as_str().to_owned(), value.to_owned()));
    }
}

/// Every option that may stand here: the command's own and the global ones above it.
fn allowed<'a>(chain: &[&'a Command]) -> Vec<&'a Arg> {
    let mut out: Vec<&Arg> = Vec::new();
    for (above, command) in chain.iter().rev().enumerate() {
        let here = |a: &&Arg| !a.is_positional() && (above == 0 || a.is_global_set());
        for arg in command.get_arguments().filter(here) {
            // A definition that was built has the global ones in every command.
            if !out.iter().any(|known| known.get_id() == arg.get_id()) {
                out.push(arg);
            }
        }
    }
    out
}

/// The option that a word is, and the value that stands in the same word.
fn option<'a>(chain: &[&'a Command], word: &str) -> Option<(&'a Arg, Option<String>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v.to_owned())));
        return allowed(chain).into_iter().find(|a| a.get_long() == Some(name)).map(|a| (a, value));
    }
    let mut letters = word.strip_prefix('-')?.chars();
    let mut found = None;
    while let Some(letter) = letters.next() {
        let arg = allowed(chain).into_iter().find(|a| a.get_short() == Some(letter))?;
        if arg.get_action().takes_values() {
            let rest = letters.as_str().trim_start_matches('=');
            return Some((arg, (!rest.is_empty()).then(|| rest.to_owned())));
        }
        found = Some((arg, None));
    }
    found
}

fn options(chain: &[&Command], offer: &mut Offer) {
    let about = |arg: &Arg| arg.get_help().map(ToString::to_string).unwrap_or_default();
    for arg in allowed(chain).into_iter().filter(|a| !a.is_hide_set()) {
        if let Some(long) = arg.get_long() {
            offer.words.push((format!("--{long}"), first_line(&about(arg))));
        }
    }
    offer.words.push(("--help".into(), "Print help".into()));
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// What fits as an argument's value. By the argument's name: the same word means the same everywhere.
fn values(command: &Command, arg: &Arg, given: &[String], offer: &mut Offer) {
    let possible = arg.get_possible_values();
    let shown = possible.iter().filter(|v| !v.is_hide_set());
    let about = |v: &clap::builder::PossibleValue| v.get_help().map(|h| first_line(&h.to_string())).unwrap_or_default();
    offer.words.extend(shown.map(|v| (v.get_name().to_owned(), about(v))));
    match arg.get_id().as_str() {
        "machine" | "machines" => offer.names = Some(Names::Of(Kind::Machine)),
        "template" => offer.names = Some(Names::Of(Kind::Template)),
        "workflow" | "workflows" => offer.names = Some(Names::Runs),
        "subject" => offer.names = Some(Names::Subjects),
        "context" => offer.names = Some(Names::Contexts),
        "name" if ["use", "set"].contains(&command.get_name()) => offer.names = Some(Names::Contexts),
        "words" => documents(given, offer),
        "path" => kinds(offer),
        "output" if possible.is_empty() && offer.words.is_empty() && command.get_name() != "backup" => {
            let forms = ["table", "wide", "json", "yaml", "name", "jsonpath=", "custom-columns="];
            offer.words.extend(forms.map(|form| (form.to_owned(), String::new())));
        }
        "what" => {
            let forms = ["condition=", "phase=", "create", "delete"];
            offer.words.extend(forms.map(|form| (form.to_owned(), String::new())));
        }
        "server" => offer.words.extend(["unix:///", "https://"].map(|form| (form.to_owned(), String::new()))),
        "filename" | "ca" | "cert" | "key" | "token_file" | "out" | "output" => {
            offer.files = offer.words.is_empty();
        }
        _ => {}
    }
}

fn kinds(offer: &mut Offer) {
    offer.words.extend(Kind::ALL.map(|kind| (kind.plural().to_owned(), kind.about().to_owned())));
}

/// Kinds first, then names of that kind; or `KIND/NAME` each time.
fn documents(given: &[String], offer: &mut Offer) {
    if let Some((word, typed)) = offer.typed.split_once('/') {
        offer.names = Kind::from_word(word).map(Names::Of);
        (offer.before, offer.typed) = (format!("{word}/"), typed.to_owned());
        return;
    }
    match given.first() {
        None => kinds(offer),
        Some(first) if first.contains('/') => {
            offer.words.extend(Kind::ALL.map(|kind| (format!("{}/", kind.singular()), kind.about().to_owned())));
        }
        Some(first) => offer.names = Kind::from_word(first).map(Names::Of),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn of(words: &[&str]) -> Offer {
        let mut command = Cli::command();
        command.build();
        offer(&command, &words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    fn words(line: &[&str]) -> Vec<String> {
        of(line).words.into_iter().map(|(word, _)| word).collect()
    }

    #[test]
    fn commands_options_and_values_are_completed() {
        assert_eq!(words(&["pro"]), ["provision"]);
        assert!(words(&[""]).contains(&"get".to_owned()) && !words(&[""]).contains(&"__complete".to_owned()));
        assert_eq!(words(&["context", "l"]), ["list"]);
        assert_eq!(words(&["get", "m", "--show"]), ["--show-labels"]);
        assert_eq!(words(&["get", "m", "--serv"]), ["--server"]);
        assert_eq!(words(&["events", "x", "-o", "w"]), ["wide"]);
        assert_eq!(words(&["events", "x", "--output", "=", "js"]), ["json"]);
        assert_eq!(of(&["events", "x", "--output=js"]).before, "--output=");
        assert_eq!(words(&["get", "m", "-o", "custom"]), ["custom-columns="]);
        assert_eq!(words(&["completion", "z"]), ["zsh"]);
        assert_eq!(words(&["token", "create", "ci", "--role", "ad"]), ["admin"]);
    }

    #[test]
    fn names_are_requested_only_at_name_positions() {
        let names = |line: &[&str]| of(line).names;
        assert_eq!(names(&["provision", ""]), Some(Names::Of(Kind::Machine)));
        assert_eq!(names(&["provision", "node-1", "-t", ""]), Some(Names::Of(Kind::Template)));
        assert_eq!(names(&["provision", "node-1", "--wait", "--template", "d"]), Some(Names::Of(Kind::Template)));
        assert_eq!(names(&["provision", "node-1", ""]), Some(Names::Of(Kind::Machine)), "of several");
        assert_eq!(names(&["approve", "node-1", ""]), None);
        assert_eq!(names(&["get", "wf", ""]), Some(Names::Of(Kind::Workflow)));
        assert_eq!(names(&["get", "wf", "a", "b"]), Some(Names::Of(Kind::Workflow)));
        assert_eq!(names(&["watch", "a", ""]), Some(Names::Of(Kind::Machine)));
        assert_eq!(names(&["logs", ""]), Some(Names::Subjects));
        assert_eq!(names(&["cancel", ""]), Some(Names::Runs));
        assert_eq!(names(&["--context", ""]), Some(Names::Contexts));
        assert_eq!(names(&["context", "use", ""]), Some(Names::Contexts));
        let slash = of(&["describe", "machine/no"]);
        assert_eq!(
            (slash.names, slash.before.as_str(), slash.typed.as_str()),
            (Some(Names::Of(Kind::Machine)), "machine/", "no")
        );
        assert!(words(&["get", ""]).contains(&"machines".to_owned()));
        assert_eq!(words(&["get", "m/a", "work"]), ["workflow/"]);
    }

    #[test]
    fn the_shell_completes_files() {
        assert!(of(&["apply", "-f", ""]).files && of(&["man", "--out", "x"]).files && of(&["backup", "-o", ""]).files);
        assert!(!of(&["get", ""]).files);
        let found = of(&["--context", "lab", "get", "--server=unix:///s", "m", ""]).connection;
        assert_eq!(found, [("context".into(), "lab".into()), ("server".into(), "unix:///s".into())]);
    }
}
