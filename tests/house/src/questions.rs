//! Questions that only the machine crate answers. The coordinator asks it (`has_ended`, `is_running`, `identity::has_alarm`);
//! code beside it that compares a phase or a condition would be a second opinion.

use std::collections::BTreeMap;

/// Code that decides by a phase, a condition or a lease has to name one of these.
const ANSWERS: [&str; 8] = [
    "WorkflowPhase::", "MachinePhase::", "ConditionType::", "ConditionStatus::", "phase.is_terminal()", "derive::set(",
    "derive::holds(", ".leased",
];

/// The lines of the coordinator, outside the machine crate and tests, that answer such a question themselves: path, line number
/// and line.
pub fn answered_elsewhere(texts: &BTreeMap<String, String>) -> Vec<String> {
    texts.iter().filter(|(path, _)| is_asker(path)).flat_map(|(path, text)| answers(path, text)).collect()
}

fn is_asker(path: &str) -> bool {
    let tests = path.contains("/tests/") || path.ends_with("tests.rs") || path.ends_with("conformance.rs");
    let beside = ["coordinator/src/", "coordinator/boot/src/", "coordinator/edge/src/", "coordinator/store/src/"];
    beside.iter().any(|folder| path.starts_with(folder)) && path.ends_with(".rs") && !tests
}

fn answers(path: &str, text: &str) -> Vec<String> {
    let code = text.lines().zip(1u32..).take_while(|(line, _)| !line.starts_with("#[cfg(test)]"));
    let answers =
        |line: &str| !line.trim_start().starts_with("//") && ANSWERS.iter().any(|answer| line.contains(answer));
    code.filter(|(line, _)| answers(line)).map(|(line, n)| format!("{path}:{n}: {}", line.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_outside_the_machine_crate_is_named() {
        let text = "// WorkflowPhase::Failed\nif status.phase.is_terminal() {}\n#[cfg(test)]\nWorkflowPhase::Failed;\n";
        let file = |path: &str| (path.to_owned(), text.to_owned());
        let files =
            ["coordinator/src/a.rs", "coordinator/machine/src/b.rs", "coordinator/src/tests.rs", "cli/src/c.rs"];
        let found = answered_elsewhere(&files.map(file).into());
        assert_eq!(found, ["coordinator/src/a.rs:2: if status.phase.is_terminal() {}"]);
    }
}
