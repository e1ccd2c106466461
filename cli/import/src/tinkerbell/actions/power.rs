//! Restarts and power-off, by whatever container they were made.

use super::{Context, List, Source, empty};

pub(super) fn add(source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    let key = if source.image == "reboot" { "reboot" } else { "powerOff" };
    list.items.push(source.done(key, empty(), context));
    true
}

/// The action that a command stands for: `reboot`, `powerOff` or none.
pub(super) fn meant(command: &[String]) -> Option<&'static str> {
    let words = command.join(" ");
    let has = |word: &str| words.split(|c: char| c.is_whitespace() || "'\";/&|".contains(c)).any(|found| found == word);
    if words.contains("sysrq-trigger") {
        let sent = |letter: &str| words.contains(&format!("echo {letter} >"));
        return if sent("o") { Some("powerOff") } else { sent("b").then_some("reboot") };
    }
    if has("poweroff") || has("halt") {
        return Some("powerOff");
    }
    has("reboot").then_some("reboot")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_ends_the_machine_is_recognised() {
        let meant = |words: &[&str]| meant(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(
            meant(&["sh", "-c", "echo 1 > /proc/sys/kernel/sysrq && echo b > /proc/sysrq-trigger"]),
            Some("reboot")
        );
        assert_eq!(meant(&["/sbin/reboot"]), Some("reboot"));
        assert_eq!(meant(&["sh", "-c", "sleep 1; poweroff -f"]), Some("powerOff"));
        assert_eq!((meant(&["sleep", "2"]), meant(&[])), (None, None));
    }
}
