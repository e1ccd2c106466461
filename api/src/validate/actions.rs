//! Rules across the actions of a list: names, order, branches, and success.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::Lists;
use crate::action::{Fault, Rules};
use crate::dns_label::{LABEL_HINT, is_dns_label};
use crate::issue::{has_expression, join};
use crate::stages::{Stage, stages};
use crate::{ActionInfo, ActionSpec, DurationSpec, Others, StorageSpec, SuccessOn, When, WhenScope, check, list_item};

/// Largest number of actions in a list: what a status document of one MiB holds with room for problems and progress.
pub const MAX_ACTIONS: usize = 64;

/// What needs the disks of a layout as they are to start, beside what ends a list.
const NEED_DISKS: [&str; 7] =
    ["efiBoot", "exec", "growRoot", "identity", "installBootloader", "runContainer", "writeImage"];

/// Branches of one stage: more disks at once than the agent has threads for.
const MAX_BRANCHES: usize = 8;

impl Rules<'_> {
    pub(super) fn lists(&mut self, lists: &Lists<'_>, root: &str) {
        let (main, after) = (join(root, "actions"), join(root, "onFailure"));
        if lists.actions.is_empty() {
            self.say(&main, "there is no action", "list at least one, such as writeImage");
        }
        let mut names = BTreeSet::new();
        self.each(lists, lists.actions, &main, &mut names);
        self.each(lists, lists.on_failure, &after, &mut names);
        self.branches(lists.actions, &main);
        for (i, action) in lists.on_failure.iter().enumerate() {
            let path = format!("{after}[{i}]");
            if let Some((key, _)) = kind(action).filter(|(_, info)| !info.after_failure) {
                let message =
                    format!("{key} is not allowed in onFailure: the failed action may have left the disk half written");
                self.say(
                    join(&path, key),
                    message,
                    format!("onFailure takes {}", ActionSpec::keys_where(|i| i.after_failure).join(", ")),
                );
            }
            if action.get("branch").is_some_and(|b| !b.is_null()) {
                self.say(join(&path, "branch"), "branches are not allowed in onFailure", "remove the field");
            }
            for (field, _) in list_item::FIELDS.iter().filter(|(field, _)| action.get(field).is_some()) {
                self.say(
                    join(&path, field),
                    format!("{field} is not allowed in onFailure"),
                    "list the actions themselves",
                );
            }
        }
        self.success(lists, &join(root, "successOn"));
    }

    fn each<'v>(&mut self, lists: &Lists<'_>, actions: &'v [Value], path: &str, names: &mut BTreeSet<&'v str>) {
        if actions.len() > MAX_ACTIONS {
            let message = format!("there are {} actions; the limit is {MAX_ACTIONS}", actions.len());
            self.say(path, message, "split the list into several templates");
        }
        let last = actions.len().saturating_sub(1);
        for (i, action) in actions.iter().enumerate() {
            let path = format!("{path}[{i}]");
            check::action(action, &path, lists.expressions, self.issues());
            let Some(action) = action.as_object() else { continue };
            if let Some(name) = action.get("name").and_then(Value::as_str) {
                let at = join(&path, "name");
                if has_expression(name) {
                    let hint = "the name identifies the action in problems; write a plain name";
                    self.say(at, "an action's name must be fixed text", hint);
                } else if !is_dns_label(name) {
                    self.say(at, format!("\"{name}\" cannot be an action's name"), LABEL_HINT);
                } else if !names.insert(name) {
                    self.say(at, format!("two actions are called \"{name}\""), "give each its own name");
                }
            }
            self.retry(action, &path);
            for (field, fault) in outlived(action) {
                self.fault(join(&path, &field), Some(fault));
            }
            list_item::check(action, &path, lists.template, self);
            self.condition(actions, i, &path, lists.expressions);
            for (key, info) in ActionSpec::ALL {
                let (Some(spec), at) = (action.get(key), join(&path, key)) else { continue };
                if let Value::Object(spec) = spec {
                    ActionSpec::check(key, spec, &at, self);
                    if ActionSpec::means_written_disk(key, spec) && !lists.is_open() {
                        self.meant_disk(spec, systems_written(actions, i), &at);
                    }
                }
                if info.is_last_step() && i != last {
                    let message = format!("the actions after this {key} would never run");
                    self.say(&at, message, format!("make {key} the last action"));
                }
                let waits = "remove its branch, so that it waits for every one of them";
                let no_branch = info.no_branch.or_else(|| info.is_last_step().then_some(waits));
                if let Some(hint) = no_branch.filter(|_| action.get("branch").is_some_and(Value::is_string)) {
                    self.say(join(&path, "branch"), format!("{key} is not allowed in a branch"), hint);
                }
            }
        }
    }

    /// A condition over results. Of a template, its names and types are checked where its parameters are known.
    fn condition(&mut self, actions: &[Value], index: usize, path: &str, expressions: bool) {
        let Some(action) = actions.get(index) else { return };
        let Some(text) = action.get("when").and_then(Value::as_str) else { return };
        let (when, at) = (When::parse(text), join(path, "when"));
        if let (Ok(when), Some((key, _))) = (&when, kind(action).filter(|(_, info)| info.is_last_step()))
            && when.names_results()
        {
            let message = format!("{key} cannot depend on results: without it the list would have no end");
            self.say(&at, message, "decide by machine or params, or end the list without it");
        }
        if expressions {
            return;
        }
        let (parameters, others) = (BTreeMap::new(), Others::seen_from(actions, index));
        let faults = match when {
            Ok(when) => when.faults(&WhenScope { parameters: &parameters, disk: false, others: &others }),
            Err(fault) => vec![fault],
        };
        for fault in faults {
            self.say(&at, fault.message, fault.hint);
        }
    }

    /// Zero durations do not parse; this checks the numbers against each other.
    fn retry(&mut self, action: &Map<String, Value>, path: &str) {
        let Some(retry) = action.get("retry") else { return };
        if retry.get("maxAttempts").and_then(Value::as_u64).is_some_and(|n| !(1..=100).contains(&n)) {
            self.say(
                format!("{path}.retry.maxAttempts"),
                "the number of attempts is out of range",
                "write 1 (no retry) to 100",
            );
        }
        if retry.get("maxRestarts").and_then(Value::as_u64).is_some_and(|n| n > 100) {
            self.say(
                format!("{path}.retry.maxRestarts"),
                "the number of unexpected restarts is out of range",
                "write 0 (none) to 100",
            );
        }
        let duration = |field: &str| retry.get(field).and_then(Value::as_str)?.parse::<DurationSpec>().ok();
        if let (Some(first), Some(most)) = (duration("initialBackoff"), duration("maxBackoff"))
            && first > most
        {
            let message = format!("the first wait, {first}, is longer than the longest, {most}");
            self.say(format!("{path}.retry.initialBackoff"), message, "increase maxBackoff, or decrease this");
        }
    }

    fn branches(&mut self, actions: &[Value], path: &str) {
        for (i, action) in actions.iter().enumerate() {
            let Some(name) = branch(action) else { continue };
            let at = format!("{path}[{i}].branch");
            if has_expression(name) {
                self.say(at, "a branch's name must be fixed text", "branches are fixed in the template");
            } else if !is_dns_label(name) {
                self.say(at, format!("\"{name}\" cannot be a branch's name"), LABEL_HINT);
            }
        }
        for stage in stages(actions.iter().map(branch)) {
            if let Some(first) = stage.lanes.get(MAX_BRANCHES).and_then(|lane| lane.first()) {
                let message =
                    format!("{} branches would run at the same time; the limit is {MAX_BRANCHES}", stage.lanes.len());
                let hint = "put an action without a branch between them, which makes two stages";
                self.say(format!("{path}[{first}].branch"), message, hint);
            }
            self.same_disk(&stage, actions, path);
            self.filled_to_the_end(&stage, actions, path);
        }
    }

    /// Of several branches that fill a layout none knows when it is full: an action after them must be sure to need its disks.
    fn filled_to_the_end(&mut self, stage: &Stage, actions: &[Value], path: &str) {
        let layout = |action: &Value| action.get("storage").is_some_and(StorageSpec::may_mount_root);
        let is_system = |action: &&Value| writes_image(action).is_some() || layout(action);
        let system = actions.iter().take(stage.span().start).rev().find(is_system);
        let needs = |action: &Value| {
            let waits_for_nothing = action.get("when").is_none_or(Value::is_null);
            waits_for_nothing
                && kind(action).is_some_and(|(key, info)| info.is_last_step() || NEED_DISKS.contains(&key))
        };
        if !system.is_some_and(layout) || actions.iter().skip(stage.span().end).any(needs) {
            return;
        }
        let means_layout = |unpack: &Value| unpack.get("disk").is_none_or(Value::is_null);
        let fills = |at: &&usize| actions.get(**at).and_then(|action| action.get("unpack")).is_some_and(means_layout);
        if let Some(second) = stage.lanes.iter().filter_map(|lane| lane.iter().find(fills)).nth(1) {
            let hint = format!("end the list with {}, or unpack in one branch", one_of(ActionInfo::is_last_step));
            let message = "several branches fill the layout, and no action after them makes its disks start";
            self.say(format!("{path}[{second}].unpack"), message, hint);
        }
    }

    /// The same selector in two branches selects the same disk. Others are compared when the disks are known.
    fn same_disk(&mut self, stage: &Stage, actions: &[Value], path: &str) {
        let mut seen: Vec<(usize, &Value)> = Vec::new();
        for (lane, indices) in stage.lanes.iter().enumerate() {
            for index in indices {
                let Some(action) = actions.get(*index).filter(|action| !list_item::is_open(action)) else { continue };
                let Some(disk) = writes_image(action).map(|w| w.get("disk")) else { continue };
                let disk = disk.unwrap_or(&Value::Null);
                if seen.iter().any(|(other, known)| *other != lane && *known == disk) {
                    let at = format!("{path}[{index}].writeImage.disk");
                    let hint = "give each branch a disk of its own, or remove the branches";
                    self.say(at, "two branches that run at the same time select the same disk", hint);
                }
                seen.push((lane, disk));
            }
        }
    }

    /// Without a selector such an action means the disk or the layout that was written before it, so there must be exactly one.
    fn meant_disk(&mut self, spec: &Map<String, Value>, written: usize, path: &str) {
        if written == 1 || spec.get("disk").is_some_and(|disk| !disk.is_null()) {
            return;
        }
        let message = match written {
            0 => "no earlier action writes a disk, and the field disk is missing",
            _ => "earlier actions write several disks, and the field disk is missing",
        };
        self.say(join(path, "disk"), message, "add a disk selector, such as disk: { serial: … }");
    }

    fn success(&mut self, lists: &Lists<'_>, path: &str) {
        let last = lists.actions.last().and_then(kind).map(|(_, info)| info);
        match lists.success_on {
            None => {}
            // What the included lists have is known once they are rendered.
            Some(_) if lists.is_open() => {}
            Some(SuccessOn::Reboot) if last.is_some_and(|info| info.is_last_step()) => {}
            Some(SuccessOn::Reboot) => {
                let hint = format!("end the list with {}, or remove successOn", one_of(ActionInfo::is_last_step));
                self.say(path, "this list never restarts the machine", hint);
            }
            Some(SuccessOn::PhoneHome) => {
                if !last.is_some_and(|info| info.starts_system()) {
                    let ends = one_of(ActionInfo::starts_system);
                    let hint = format!("end the list with {ends}, or write successOn: reboot");
                    self.say(path, "no action starts the system that must phone home", hint);
                }
                if !lists.actions.iter().any(installs_unit) {
                    let hint = "add a cloudInit action whose phoneHome is enabled, or write successOn: reboot";
                    self.say(path, "no action installs the unit that phones home", hint);
                }
            }
        }
    }
}

/// Waits and tests that their own timeout would end, by the field that says how long they last.
fn outlived(action: &Map<String, Value>) -> Vec<(String, Fault)> {
    /// A field, and what it is the length of.
    const LENGTHS: [(&[&str], &str); 3] = [
        (&["wait", "for"], "wait"),
        (&["healthTest", "cpu", "time"], "test"),
        (&["healthTest", "network", "time"], "test"),
    ];
    let duration = |text: &Value| text.as_str()?.parse::<DurationSpec>().ok();
    let fault = |(field, what): (&[&str], &str)| {
        let (key, rest) = field.split_first()?;
        let time = duration(rest.iter().try_fold(action.get(*key)?, |value, name| value.get(name))?)?;
        let timeout = match action.get("timeout").filter(|timeout| !timeout.is_null()) {
            Some(stated) => duration(stated)?,
            None => ActionSpec::ALL.into_iter().find(|(name, _)| name == key)?.1.timeout,
        };
        (time.get() >= timeout.get()).then(|| {
            let message = format!("a {what} of {time} is not over within the action's timeout of {timeout}");
            (field.join("."), Fault::new(message, "state a longer timeout beside name"))
        })
    };
    LENGTHS.into_iter().filter_map(fault).collect()
}

fn kind(action: &Value) -> Option<(&'static str, ActionInfo)> {
    ActionSpec::ALL.into_iter().find(|(key, _)| action.get(key).is_some())
}

/// The actions of which `wanted` holds, such as `reboot, powerOff or kexec`.
fn one_of(wanted: impl Fn(&ActionInfo) -> bool) -> String {
    let keys = ActionSpec::keys_where(wanted);
    match keys.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn writes_image(action: &Value) -> Option<&Value> {
    kind(action).filter(|(_, info)| info.writes_image).and_then(|(key, _)| action.get(key))
}

fn branch(action: &Value) -> Option<&str> {
    action.get("branch").and_then(Value::as_str)
}

/// An expression counts as its most likely value: the unit is installed.
fn installs_unit(action: &Value) -> bool {
    action.get("cloudInit").is_some_and(|spec| {
        spec.get("phoneHome").and_then(|unit| unit.get("enabled")).and_then(Value::as_bool) != Some(false)
    })
}

/// How many disks and layouts of a system may have been written when the action at `index` begins: all before it, and all of its
/// own stage.
fn systems_written(actions: &[Value], index: usize) -> usize {
    let own = stages(actions.iter().map(branch)).into_iter().find(|stage| stage.span().contains(&index));
    let end = own.filter(|stage| stage.lanes.len() > 1).map_or(index, |stage| stage.span().end);
    let lays_out = |action: &Value| action.get("storage").is_some_and(StorageSpec::may_mount_root);
    actions.iter().take(end).filter(|a| writes_image(a).is_some() || lays_out(a)).count()
}
