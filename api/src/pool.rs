//! Pool: so many machines that run one template.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use uuid::Uuid;

use crate::{Authority, Condition, Object, WipeLevel};

/// A pool document.
pub type Pool = Object<PoolSpec, PoolStatus>;

/// Machines of one pool that are listed in its status, at most.
pub const POOL_MEMBERS_SHOWN: usize = 64;

/// How many machines, which, and what they run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolSpec {
    /// How many machines run the template. Where there are fewer, free machines are claimed; where there are more, machines are
    /// released. At most 100000.
    pub replicas: u32,
    /// The template's name. A change of it, or of `parameters`, installs the pool's machines anew; a change of the template's document
    /// does not.
    pub template: String,
    /// Values for the template's parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// Only machines with all these labels are claimed. A pool states labels, or facts, or both.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Only machines with these facts are claimed: the path of a fact, such as `memoryBytes`, to an expression as in an enrolment rule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, String>,
    /// Nothing begins on the pool's machines: none is claimed, released or installed anew. What has begun goes on. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// So many machines may be out of service at once while the pool's machines are installed anew, 1 or more. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub max_unavailable: u32,
    /// So many machines that failed are replaced by others. With more, nothing begins before a person has dealt with them. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub max_failures: u32,
    /// How a machine that is released is cleared.
    #[serde(default, skip_serializing_if = "PoolRelease::is_default")]
    pub release: PoolRelease,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_one(n: &u32) -> bool {
    *n == 1
}

/// How a machine that leaves the pool is cleared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PoolRelease {
    /// How thoroughly its disks are wiped. Default: `signatures`.
    pub level: WipeLevel,
    /// Levels that will do for a disk that does not support `level`, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<WipeLevel>,
    /// It is turned off afterwards, in place of a restart. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub power_off: bool,
}

impl PoolRelease {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What the coordinator has seen of a pool.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// `Ready`: as many machines as wanted run what is wanted.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Machines that run what is wanted.
    #[serde(default)]
    pub ready: u32,
    /// Machines that are being installed, or wait for that.
    #[serde(default)]
    pub installing: u32,
    /// Machines that run what was wanted before.
    #[serde(default)]
    pub outdated: u32,
    /// Machines whose workflow failed.
    #[serde(default)]
    pub failed: u32,
    /// Machines that leave the pool.
    #[serde(default)]
    pub releasing: u32,
    /// Who requested what the document says: in that person's name installed machines are wiped, and installed anew. Absent: a file did,
    /// and then blank machines alone are installed.
    pub requested: Option<Authority>,
    /// Its machines by name, those first that are not ready; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<PoolMember>,
}

/// A machine of a pool.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolMember {
    /// The machine's name.
    pub name: String,
    /// How it stands.
    pub state: PoolMemberState,
    /// Why it does not go on.
    pub problem: Option<String>,
}

words! {
    /// How a machine of a pool stands.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    PoolMemberState {
        /// Its workflow failed.
        Failed = "failed",
        /// It leaves the pool.
        Releasing = "releasing",
        /// It is being installed, or waits for that.
        Installing = "installing",
        /// It runs what was wanted before.
        Outdated = "outdated",
        /// It runs what is wanted.
        Ready = "ready",
    }
}

/// What a pool has a machine run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolInstall {
    /// The template's name.
    pub template: String,
    /// Its parameters' values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, serde_json::Value>,
}

impl PoolSpec {
    /// What the pool has its machines run.
    pub fn install(&self) -> PoolInstall {
        PoolInstall { template: self.template.clone(), parameters: self.parameters.clone() }
    }
}

/// That a pool has a machine.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolClaim {
    /// The pool's name.
    pub name: String,
    /// The pool's uid: another pool of that name is not this one.
    pub uid: Uuid,
    /// Since when.
    pub since: Timestamp,
    /// What the machine is to run.
    pub wanted: PoolInstall,
    /// What it runs: the pool's workflow has succeeded, and no later one has begun.
    pub installed: Option<PoolInstall>,
    /// The machine's newest workflow when something was wanted last: a later one is the pool's.
    pub before: Option<String>,
    /// Whether what is on the machine's disks is the pool's: one of its workflows was requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub owned: bool,
    /// Why the pool's last request was refused.
    pub problem: Option<String>,
    /// When it is made again.
    pub retry_at: Option<Timestamp>,
    /// It leaves the pool.
    pub released: Option<PoolReleased>,
}

impl PoolClaim {
    /// Stands before the pool's name where a pool cancelled a workflow, and no person did.
    pub const BY: &str = "pool/";
}

/// That a machine leaves its pool.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolReleased {
    /// The person in whose name it is cleared. Absent: nothing was done on it, and nothing is wiped.
    pub by: Option<Authority>,
    /// How it is cleared.
    #[serde(default, skip_serializing_if = "PoolRelease::is_default")]
    pub release: PoolRelease,
    /// The pool had too many machines; it keeps this one if it wants more again before the clearing has begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub surplus: bool,
}
