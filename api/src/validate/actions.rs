//! What the actions of a list mean together: their names, what may follow what, branches, and what success is.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{LABEL_HINT, Lists, Rules, is_dns_label};
use crate::{
    ActionSpec, DurationSpec, KexecSpec, SuccessOn,
    check::{self, has_expression, join},
    stages::{Stage, stages},
};

/// Largest number of actions in a list: what a status document of one MiB holds with room for problems and progress.
const MAX_ACTIONS: usize = 64;

/// Branches of one stage: more disks at once than the agent has threads for.
const MAX_BRANCHES: usize = 8;

/// What may stand in `onFailure`: nothing that writes a disk.
const AFTER_FAILURE: [&str; 3] = ["hold", "reboot", "powerOff"];

impl Rules<'_> {
    pub(super) fn lists(&mut self, lists: &Lists<'_>, root: &str) {
        let (main, after) = (join(root, "actions"), join(root, "onFailure"));
        if lists.actions.is_empty() {
            self.say(&main, "there is no action", "list at least one, such as writeImage");
        }
        let mut names = BTreeSet::new();
        self.each(lists.actions, &main, &mut names);
        self.each(lists.on_failure, &after, &mut names);
        self.branches(lists.actions, &main);
        for (i, action) in lists.on_failure.iter().enumerate() {
            let path = format!("{after}[{i}]");
            if let Some(key) = kind(action).filter(|key| !AFTER_FAILURE.contains(key)) {
                let message =
                    format!("{key} cannot stand in onFailure: what failed may have left the disk half written");
                self.say(join(&path, key), message, format!("onFailure takes {}", AFTER_FAILURE.join(", ")));
            }
            if action.get("branch").is_some_and(|b| !b.is_null()) {
                self.say(join(&path, "branch"), "onFailure has no branches", "remove the field");
            }
        }
        self.success(lists, &join(root, "successOn"));
    }

    fn each<'v>(&mut self, actions: &'v [Value], path: &str, names: &mut BTreeSet<&'v str>) {
        if actions.len() > MAX_ACTIONS {
            let message = format!("there are {} actions; at most {MAX_ACTIONS} are taken", actions.len());
            self.say(path, message, "split the list into several templates");
        }
        let last = actions.len().saturating_sub(1);
        for (i, action) in actions.iter().enumerate() {
            let path = format!("{path}[{i}]");
            check::action(action, &path, self.expressions, self.issues);
            let Some(action) = action.as_object() else { continue };
            if let Some(name) = action.get("name").and_then(Value::as_str) {
                let at = join(&path, "name");
                if has_expression(name) {
                    let hint = "problems and people find actions by it; write a plain name";
                    self.say(at, "an action's name is fixed text", hint);
                } else if !is_dns_label(name) {
                    self.say(at, format!("\"{name}\" cannot be an action's name"), LABEL_HINT);
                } else if !names.insert(name) {
                    self.say(at, format!("two actions are called \"{name}\""), "give each its own name");
                }
            }
            self.retry(action, &path);
            for key in ActionSpec::KEYS {
                let (Some(spec), at) = (action.get(key), join(&path, key)) else { continue };
                match (key, spec) {
                    ("writeImage", Value::Object(spec)) => self.write_image(spec, &at),
                    ("cloudInit", Value::Object(spec)) => {
                        self.cloud_init(spec, &at);
                        self.meant_disk(spec, disks_written(actions, i), &at);
                    }
                    ("kexec", Value::Object(spec)) => {
                        self.kexec(spec, &at);
                        self.meant_disk(spec, disks_written(actions, i), &at);
                    }
                    ("clearDisks", Value::Object(spec)) => {
                        let disks = spec.get("disks").and_then(Value::as_array);
                        for (n, disk) in disks.into_iter().flatten().enumerate() {
                            self.selector(Some(disk), &format!("{at}.disks[{n}]"));
                        }
                        if branch(&Value::Object(action.clone())).is_some() {
                            let hint = "remove its branch: what another branch writes meanwhile must not be cleared";
                            self.say(join(&path, "branch"), "clearDisks cannot stand in a branch", hint);
                        }
                    }
                    ("hold", spec)
                        if spec.get("message").and_then(Value::as_str).is_some_and(|m| m.trim().is_empty()) =>
                    {
                        let hint = "say what the person is to do before the run goes on";
                        self.say(join(&at, "message"), "a hold without a message tells nobody anything", hint);
                    }
                    _ => {}
                }
                if ActionSpec::LAST_STEPS.contains(&key) {
                    if i != last {
                        let message = format!("actions stand after this {key} and would never run");
                        self.say(&at, message, format!("make {key} the last action"));
                    }
                    if branch(&Value::Object(action.clone())).is_some() {
                        let hint = "remove its branch, so that it waits for every one of them";
                        self.say(join(&path, "branch"), format!("{key} cannot stand in a branch"), hint);
                    }
                }
            }
        }
    }

    /// Zero durations do not parse; what is left is how the numbers go together.
    fn retry(&mut self, action: &Map<String, Value>, path: &str) {
        let Some(retry) = action.get("retry") else { return };
        if retry.get("maxAttempts").and_then(Value::as_u64).is_some_and(|n| !(1..=100).contains(&n)) {
            self.say(
                format!("{path}.retry.maxAttempts"),
                "the number of attempts is out of range",
                "write 1 (no retry) to 100",
            );
        }
        let duration = |field: &str| retry.get(field).and_then(Value::as_str)?.parse::<DurationSpec>().ok();
        if let (Some(first), Some(most)) = (duration("initialBackoff"), duration("maxBackoff"))
            && first > most
        {
            let message = format!("the first wait, {first}, is longer than the longest, {most}");
            self.say(format!("{path}.retry.initialBackoff"), message, "raise maxBackoff, or lower this");
        }
    }

    fn branches(&mut self, actions: &[Value], path: &str) {
        for (i, action) in actions.iter().enumerate() {
            let Some(name) = branch(action) else { continue };
            let at = format!("{path}[{i}].branch");
            if has_expression(name) {
                self.say(at, "a branch's name is fixed text", "what runs at once is the template's to say");
            } else if !is_dns_label(name) {
                self.say(at, format!("\"{name}\" cannot be a branch's name"), LABEL_HINT);
            }
        }
        for stage in stages(actions.iter().map(branch)) {
            if let Some(first) = stage.lanes.get(MAX_BRANCHES).and_then(|lane| lane.first()) {
                let message = format!("{} branches would run at once; at most {MAX_BRANCHES} do", stage.lanes.len());
                let hint = "put an action without a branch between them, which makes two stages";
                self.say(format!("{path}[{first}].branch"), message, hint);
            }
            self.same_disk(&stage, actions, path);
        }
    }

    /// The same selector in two branches means the same disk. Others are compared when the disks are known.
    fn same_disk(&mut self, stage: &Stage, actions: &[Value], path: &str) {
        let mut seen: Vec<(usize, &Value)> = Vec::new();
        for (lane, indices) in stage.lanes.iter().enumerate() {
            for index in indices {
                let Some(disk) = actions.get(*index).and_then(|a| a.get("writeImage")).map(|w| w.get("disk")) else {
                    continue;
                };
                let disk = disk.unwrap_or(&Value::Null);
                if seen.iter().any(|(other, known)| *other != lane && *known == disk) {
                    let at = format!("{path}[{index}].writeImage.disk");
                    let hint = "give each branch a disk of its own, or remove the branches";
                    self.say(at, "two branches that run at once select the same disk", hint);
                }
                seen.push((lane, disk));
            }
        }
    }

    /// The kernel takes one line of bounded length, and the first NUL would end it.
    fn kexec(&mut self, spec: &Map<String, Value>, path: &str) {
        self.selector(spec.get("disk"), &join(path, "disk"));
        let Some(line) = spec.get("cmdline").and_then(Value::as_str).filter(|line| !has_expression(line)) else {
            return;
        };
        let at = join(path, "cmdline");
        if line.trim().is_empty() {
            let hint = "remove the field to take the installed system's own, or write all of it, root= included";
            self.say(at, "a command line without a word cannot find its root file system", hint);
        } else if line.chars().any(char::is_control) {
            self.say(
                at,
                "a kernel's command line is one line without control characters",
                "join its lines with spaces",
            );
        } else if line.len() > KexecSpec::MAX_CMDLINE {
            let message = format!("the command line has {} bytes", line.len());
            self.say(at, message, format!("a kernel takes at most {}; shorten it", KexecSpec::MAX_CMDLINE));
        }
    }

    /// Without a selector `cloudInit` and `kexec` mean the disk that was written before it, so there must be exactly one.
    fn meant_disk(&mut self, spec: &Map<String, Value>, written: usize, path: &str) {
        if written == 1 || spec.get("disk").is_some_and(|disk| !disk.is_null()) {
            return;
        }
        let message = match written {
            0 => "no disk is written before, and disk does not say which is meant",
            _ => "several disks are written before, and disk does not say which is meant",
        };
        self.say(join(path, "disk"), message, "add a disk selector, such as disk: { serial: … }");
    }

    fn success(&mut self, lists: &Lists<'_>, path: &str) {
        let last = lists.actions.last().and_then(kind).unwrap_or_default();
        match lists.success_on {
            None => {}
            Some(SuccessOn::Reboot) if ActionSpec::LAST_STEPS.contains(&last) => {}
            Some(SuccessOn::Reboot) => {
                let hint = "end the list with reboot, kexec or powerOff, or remove successOn";
                self.say(path, "the machine never goes down in this list", hint);
            }
            Some(SuccessOn::PhoneHome) => {
                if !ActionSpec::STARTS_SYSTEM.contains(&last) {
                    let hint = "end the list with reboot or kexec, or write successOn: reboot";
                    self.say(path, "nothing starts the system that is to phone home", hint);
                }
                if !lists.actions.iter().any(installs_unit) {
                    let hint = "add a cloudInit action whose phoneHome is enabled, or write successOn: reboot";
                    self.say(path, "no action installs the unit that phones home", hint);
                }
            }
        }
    }
}

fn kind(action: &Value) -> Option<&'static str> {
    ActionSpec::KEYS.into_iter().find(|key| action.get(key).is_some())
}

fn branch(action: &Value) -> Option<&str> {
    action.get("branch").and_then(Value::as_str)
}

/// An expression counts as what it will most likely be: the unit is installed.
fn installs_unit(action: &Value) -> bool {
    action.get("cloudInit").is_some_and(|spec| {
        spec.get("phoneHome").and_then(|unit| unit.get("enabled")).and_then(Value::as_bool) != Some(false)
    })
}

/// How many disks may have been written when the action at `index` begins: all before it, and all of its own stage.
fn disks_written(actions: &[Value], index: usize) -> usize {
    let own = stages(actions.iter().map(branch)).into_iter().find(|stage| stage.span().contains(&index));
    let end = own.filter(|stage| stage.lanes.len() > 1).map_or(index, |stage| stage.span().end);
    actions.iter().take(end).filter(|a| a.get("writeImage").is_some()).count()
}
