//! `wipe`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::{ActionInfo, Declaration};
use super::rules::Rules;
use crate::issue::{Issue, has_expression, join};
use crate::{DiskSelector, DurationSpec, Problem, WipeLevel};

/// Wipes disks: at least everything by which they boot or are recognised (boot sectors, partition tables, signatures), with
/// a `level` also their data; last of all receipts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WipeSpec {
    /// Which disks; exactly one must match each. Default: every disk that carries a receipt of this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskSelector>,
    /// How thoroughly. A disk that does not support the level is an error, before any disk is changed. Default: `signatures`.
    #[serde(default)]
    pub level: WipeLevel,
    /// Levels that will do for a disk that does not support `level`, best first. Default: none, which makes such a disk an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<WipeLevel>,
}

impl WipeSpec {
    /// The levels that will do, best first.
    pub fn levels(&self) -> Vec<WipeLevel> {
        std::iter::once(self.level).chain(self.fallback.iter().copied()).collect()
    }

    /// Checks the order of its levels; for requests, which are no documents.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidDocument`](crate::ErrorCode), at the field.
    pub fn check_levels(&self) -> Result<(), Problem> {
        let names: Vec<&str> = self.fallback.iter().map(|level| level.as_str()).collect();
        wrong_levels(self.level.as_str(), &names, "").map_or(Ok(()), |issue| Err(issue.into_problem()))
    }
}

/// The first thing that is wrong with an order of levels; `path` is that of the action.
fn wrong_levels(level: &str, fallback: &[&str], path: &str) -> Option<Issue> {
    let at = |field: &str, message: String, hint: &str| Some(Issue::new(join(path, field), message, hint));
    if level == WipeLevel::Signatures.as_str() && !fallback.is_empty() {
        let hint = "remove fallback, or state the level that is wanted first, such as secure";
        return at("fallback", "every disk supports level signatures".into(), hint);
    }
    let mut before = vec![level];
    for (n, name) in fallback.iter().enumerate().filter(|(_, name)| !has_expression(name)) {
        if before.contains(name) {
            let message = format!("level {name} stands twice in the order of levels");
            return at(&format!("fallback[{n}]"), message, "name each level once, the best first");
        }
        if before.iter().any(|level| ["signatures", "zero"].contains(level)) {
            let message = format!("level {name} is never used: every disk supports a level before it");
            let hint = "put zero and signatures last, or remove what follows them";
            return at(&format!("fallback[{n}]"), message, hint);
        }
        before.push(name);
    }
    None
}

impl Declaration for WipeSpec {
    const INFO: ActionInfo = ActionInfo {
        no_branch: Some("remove its branch: wipe must not clear what another branch writes at the same time"),
        // A large disk that is written over in full, or erases itself, takes a day.
        ..ActionInfo::new(
            "Wipes disks: tables, signatures and receipts, or all data.",
            DurationSpec::from_secs(48 * 3600),
            8,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        let disks = spec.get("disks").and_then(Value::as_array);
        for (n, disk) in disks.into_iter().flatten().enumerate() {
            rules.selector(Some(disk), &format!("{path}.disks[{n}]"));
        }
        let level =
            spec.get("level").map_or(WipeLevel::Signatures.as_str(), |level| level.as_str().unwrap_or_default());
        let fallback = spec.get("fallback").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let fallback: Vec<&str> = fallback.iter().map(|name| name.as_str().unwrap_or_default()).collect();
        rules.issues().extend(wrong_levels(level, &fallback, path));
    }
}
