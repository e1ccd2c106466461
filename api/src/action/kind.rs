//! What the declaration of an action consists of.

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::rules::Rules;
use crate::{AccessSpec, DurationSpec};

/// What every action's file says of it. Documents, validation, the coordinator and the documentation read it here and
/// hold no list of actions of their own.
#[derive(Debug, Clone, Copy)]
pub struct ActionInfo {
    /// One sentence: the JSON Schema, `landfall explain` and `docs/actions/README.md` show it.
    pub about: &'static str,
    /// How long one attempt may take where a template does not say.
    pub timeout: DurationSpec,
    /// How many attempts are made where a template does not say, at least 1.
    pub attempts: u32,
    /// The first protocol revision whose agents know it.
    pub protocol: u32,
    /// Whether the worker of the tools layer performs it, and not the agent itself.
    pub tools: bool,
    /// What comes after it.
    pub then: Then,
    /// Whether it writes an image. The disk it wrote is the one that later actions mean.
    pub writes_image: bool,
    /// Whether, without the field `disk`, it means the disk that its list wrote before it: there must be exactly one.
    pub means_written_disk: bool,
    /// Whether it may stand in `onFailure`, where a disk may be half written.
    pub after_failure: bool,
    /// Why it may stand in no branch, as advice. (An action that ends its list never may.)
    pub no_branch: Option<&'static str>,
    /// Its fields in which a secret may stand: what the agent writes into an installed system or shows to an image's
    /// server. A secret anywhere else would be logged or shown.
    pub secrets: &'static [&'static str],
}

impl ActionInfo {
    /// What most actions are: tried once by the agent itself, in any branch, on no disk of its own, without a secret. A
    /// declaration states what differs.
    pub(super) const fn new(about: &'static str, timeout: DurationSpec, protocol: u32) -> Self {
        Self {
            about,
            timeout,
            attempts: 1,
            protocol,
            tools: false,
            then: Then::Next,
            writes_image: false,
            means_written_disk: false,
            after_failure: false,
            no_branch: None,
            secrets: &[],
        }
    }
    /// Whether the agent ends with it, so that no action may follow.
    pub const fn is_last_step(&self) -> bool {
        !matches!(self.then, Then::Next)
    }
    /// Whether the installed system starts after it, and so may phone home.
    pub const fn starts_system(&self) -> bool {
        matches!(self.then, Then::SystemStarts)
    }
}

/// What comes after an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The next action.
    Next,
    /// The installed system starts; the agent is gone.
    SystemStarts,
    /// The machine is off.
    MachineOff,
}

/// A file that the agent fetches for an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Download {
    /// Where it may be; any of them will do.
    pub urls: Vec<String>,
    /// How the servers are spoken to.
    pub access: AccessSpec,
}

/// An action's declaration. The type holds its fields.
pub(super) trait Declaration: Serialize + DeserializeOwned + JsonSchema {
    /// What the others know of it.
    const INFO: ActionInfo;
    /// Fields that came after it, with the first protocol revision whose agents know each: older ones would ignore it.
    const LATER: &'static [(&'static str, u32)] = &[];

    /// What its fields mean together: rules that a schema cannot say. `spec` is a template's, where an expression may
    /// stand for any value, or a rendered one; `path` is where it stands in its document.
    fn check(_spec: &Map<String, Value>, _path: &str, _rules: &mut Rules<'_>) {}

    /// Whether it means the disk that its list wrote, with these fields: see [`ActionInfo::means_written_disk`].
    fn means_written_disk(_spec: &Map<String, Value>) -> bool {
        Self::INFO.means_written_disk
    }

    /// The first protocol revision whose agents know it with the fields that it states.
    fn protocol(&self) -> u32 {
        if Self::LATER.is_empty() {
            return Self::INFO.protocol;
        }
        // A field that is not stated is not written.
        let stated = serde_json::to_value(self).unwrap_or_default();
        let later = Self::LATER.iter().filter(|(field, _)| stated.get(field).is_some());
        later.map(|(_, protocol)| *protocol).fold(Self::INFO.protocol, u32::max)
    }

    /// What the agent will fetch for it.
    fn downloads(&self) -> Vec<Download> {
        Vec::new()
    }
}
