//! Conditions: what can be observed of a machine or a workflow, and why it is so. Both lists are closed.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ErrorCode;

/// Truth value of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Unknown, not yet known or no longer known.
    Unknown,
}

/// One observable truth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// What it is about, such as `Connected` or `NoReceipt`.
    #[serde(rename = "type")]
    #[schemars(with = "String")]
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One CamelCase word for programs.
    #[schemars(with = "String")]
    pub reason: Reason,
    /// One sentence for people.
    pub message: String,
    /// When `status` last changed.
    pub since: Timestamp,
    /// The generation of `spec` this was judged against.
    pub observed_generation: u64,
}

/// A list of words as an enum, which is stored as the word. A word that this version does not know (a newer version wrote it)
/// is kept as it is.
macro_rules! open_words {
    ($(#[$about:meta])* $type:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ } $($own:tt)*) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $type { $($(#[doc = $doc])+ $name,)+ $($own)* }

        impl $type {
            /// Every word that this version knows, with what it means.
            pub const KNOWN: &[(Self, &str)] = &[$((Self::$name, concat!($($doc),+)),)+];

            fn known(text: &str) -> Option<Self> {
                match text { $(stringify!($name) => Some(Self::$name),)+ _ => None }
            }

            /// As it is stored.
            pub fn as_str(&self) -> &str {
                match self { $(Self::$name => stringify!($name),)+ other => other.foreign() }
            }
        }

        impl From<&str> for $type {
            fn from(text: &str) -> Self {
                Self::known(text).or_else(|| Self::derived(text)).unwrap_or_else(|| Self::Other(text.into()))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl PartialEq<&str> for $type {
            fn eq(&self, text: &&str) -> bool {
                self.as_str() == *text
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(|text| Self::from(text.as_str()))
            }
        }
    };
}

open_words! {
    /// What a condition is about.
    ConditionType {
        /// Workflow: whether it may begin beside all others.
        Admitted,
        /// Machine: it waits for a person to approve its key.
        AwaitingApproval,
        /// Machine: its BMC takes the account of the document. Only of a machine with a BMC.
        BMCAuthenticated,
        /// Machine: its BMC answers. Only of a machine with a BMC.
        BMCReachable,
        /// Machine: its agent has a session and is heard.
        Connected,
        /// Machine: it is being deleted.
        Deleting,
        /// Machine: every disk is known, and what it carries. It is set once an agent did not know all of them.
        DisksKnown,
        /// Machine: every part passed its last health test. It is set once a part was tested.
        Healthy,
        /// Machine: another computer claims its identity.
        IdentityAmbiguous,
        /// Machine: its BMC says which ports it is recognised by. Only of a machine with a BMC whose document states no identity.
        IdentityKnown,
        /// Machine: no workflow begins, because `spec.maintenance` says so.
        Maintenance,
        /// Machine: it is installed on request, as `spec.management` says.
        Managed,
        /// Machine: its BMC has not ejected the boot medium. Only of a machine with a BMC.
        MediumLeft,
        /// Machine: an installed disk carries no receipt, so that only a person can start an install.
        NoReceipt,
        /// Workflow: its machine has not netbooted.
        NotSeen,
        /// Workflow: a person paused it.
        Paused,
        /// Machine: its BMC says whether it has power. Only of a machine with a BMC.
        PowerKnown,
        /// Machine and workflow: a workflow is under way.
        Progressing,
        /// Machine: a system is installed.
        Provisioned,
        /// Pool: as many machines as wanted run what is wanted.
        Ready,
        /// Machine: a disk carries a receipt that the store does not know. Nothing begins before a person decides.
        ReceiptConflict,
        /// Workflow: its machine restarted in the middle of an action.
        Restarted,
        /// Workflow: its agent is not heard.
        Silent,
        /// Workflow: its agent is heard, and too little moves.
        Slow,
        /// Machine: the store may be an older copy. Nothing begins before a person decides.
        StoreBehind,
        /// Workflow: its deadline is near or has passed.
        Stuck,
    }
    /// One of a newer version.
    Other(Box<str>),
}

open_words! {
    /// Why a condition is as it is.
    Reason {
        /// The BMC takes the account.
        AccountAccepted,
        /// The BMC refused the account. It is not tried again before the Secret or the address changes.
        AccountRefused,
        /// It may begin.
        Admitted,
        /// A person took the machine over as it is.
        Adopted,
        /// It runs its `onFailure` actions.
        AfterFailure,
        /// Its agent may still act; it waits for the agent or for the end of its lease.
        AgentMayAct,
        /// The BMC answers.
        Answers,
        /// A person approved it.
        Approved,
        /// It was requested before a time of which the store has no data.
        AskedBefore,
        /// It was running before a time of which the store has no data; its agent will show what became of it.
        AwaitsAgent,
        /// At its rate it ends after its timeout.
        BehindDeadline,
        /// A person asked for it.
        ByPerson,
        /// A person cancelled it.
        Cancelled,
        /// Nothing in the document vouches for the certificate that the BMC shows.
        CertificateUntrusted,
        /// Every bus was scanned and every disk read; or every machine runs what is wanted.
        Complete,
        /// A person confirmed it.
        Confirmed,
        /// Less than a tenth of the time is left.
        DeadlineNear,
        /// The time is over.
        DeadlinePassed,
        /// The disks were cleared.
        Deprovisioned,
        /// The disks are being cleared.
        Deprovisioning,
        /// The connection ended.
        Disconnected,
        /// The workflow has ended.
        Ended,
        /// The agent held a session that this store never gave.
        EpochNeverGiven,
        /// The agent goes on from reports that this store does not have.
        EventsMissing,
        /// `spec.management` is `External`.
        External,
        /// The workflow, or a health test, failed.
        Failed,
        /// A person said `--force`.
        Forced,
        /// A disk carries a receipt.
        Found,
        /// Heartbeats come.
        Heard,
        /// A session was opened.
        Hello,
        /// It waits at a `hold` for a person.
        Holding,
        /// A computer with other addresses or serials claims the machine.
        IdentityMismatch,
        /// No workflow is under way.
        Idle,
        /// There is time left.
        InTime,
        /// The BMC's answer is neither Redfish nor IPMI, or lacks what is needed.
        InvalidAnswer,
        /// Installed; the template requires no phone-home.
        Installed,
        /// The disk carries the receipt of this interrupted workflow.
        Interrupted,
        /// A certificate was shown whose key is not the machine's.
        KeyChanged,
        /// A key waits for approval.
        KeyWaits,
        /// Every receipt found is known.
        Known,
        /// Every write of the workflow was left out.
        LeftOut,
        /// The disk was installed and carries no receipt any more.
        Lost,
        /// The machine restarted in the middle of an action, or while the store has no data.
        MachineRestarted,
        /// `spec.management` is `Managed`.
        Managed,
        /// It has not netbooted since the request.
        NeverNetbooted,
        /// A receipt says more than the store knows.
        NewerThanStore,
        /// The workflow needs no agent now.
        NoAgent,
        /// A person decides when to power the machine on.
        NoDeadline,
        /// Heartbeats have stopped.
        NoHeartbeat,
        /// The BMC lists no port of the computer.
        NoPorts,
        /// Its progress stands still.
        NoProgress,
        /// The image's partition table has no room for a receipt.
        NoRoom,
        /// There is no such Secret or value, or the Secret does not name the BMC.
        NoSecret,
        /// The agent is not connected.
        NoSession,
        /// There is no such template.
        NoTemplate,
        /// Nothing is known of an agent that is not heard.
        NotHeard,
        /// Only a person may request what is to be done.
        NeedsPerson,
        /// The BMC has not ejected the medium.
        NotEjected,
        /// It is not paused.
        NotPaused,
        /// `spec.maintenance` is not set.
        NotRequested,
        /// One computer holds the session.
        OneComputer,
        /// Every part passed its last test.
        Passed,
        /// `spec.paused` is set.
        Paused,
        /// The account may not do that.
        PermissionDenied,
        /// The installed system phoned home.
        PhonedHome,
        /// All ports that the BMC lists are other machines'.
        PortsOfOthers,
        /// A workflow installs the machine.
        Provisioning,
        /// It waits for its turn.
        Queued,
        /// `spec.maintenance` is set.
        Requested,
        /// It was read.
        Reported,
        /// The workflow that was requested before has ended.
        RunEnded,
        /// Machines are being installed, or leave the pool.
        Rolling,
        /// Its actions are under way.
        Running,
        /// Its agent was connected all the time.
        SameAgent,
        /// The agent still scans its buses.
        Scanning,
        /// It has netbooted, or the workflow does not wait for it.
        Seen,
        /// The agent is not heard any more.
        Silent,
        /// It has begun.
        Started,
        /// Every action is done.
        Succeeded,
        /// A second key tried the machine's boot token.
        TokenReused,
        /// Fewer machines are free and suitable than are wanted.
        TooFewMachines,
        /// More machines failed than `spec.maxFailures` says.
        TooManyFailures,
        /// Two computers asked for a session.
        TwoComputers,
        /// A receipt names a workflow that the store does not have.
        UnknownReceipt,
        /// It does not answer.
        Unreachable,
        /// A disk does not answer or cannot be read.
        Unreadable,
        /// It waits for the machine to netboot.
        WaitingForAgent,
        /// It waits for the installed system to phone home.
        WaitingForPhoneHome,
        /// The disk carries its receipt.
        Written,
        /// A certificate of another machine was shown.
        WrongCertificate,
    }
    /// Why a workflow failed.
    Failure(ErrorCode),
    /// One of a newer version.
    Other(Box<str>),
}

impl ConditionType {
    const fn derived(_: &str) -> Option<Self> {
        None
    }

    fn foreign(&self) -> &str {
        if let Self::Other(text) = self { text } else { "" }
    }

    /// The reasons that it may have. `Provisioned` may also have every error code.
    pub fn reasons(&self) -> &'static [Reason] {
        REASONS.iter().find(|(kind, _)| kind == self).map_or(&[], |(_, reasons)| reasons)
    }

    /// Whether it may have that reason.
    pub fn may_be(&self, reason: &Reason) -> bool {
        self.reasons().contains(reason) || *self == Self::Provisioned && matches!(reason, Reason::Failure(_))
    }
}

impl Reason {
    fn derived(text: &str) -> Option<Self> {
        ErrorCode::ALL.iter().copied().find(|code| code.as_str() == text).map(Self::Failure)
    }

    fn foreign(&self) -> &str {
        match self {
            Self::Failure(code) => code.as_str(),
            Self::Other(text) => text,
            _ => "",
        }
    }
}

impl From<ErrorCode> for Reason {
    /// Of an error code that is a reason of its own too, that one: it is stored as the same word.
    fn from(code: ErrorCode) -> Self {
        Self::from(code.as_str())
    }
}

macro_rules! reasons {
    ($($kind:ident: $($reason:ident)+;)+) => {
        &[$((ConditionType::$kind, &[$(Reason::$reason,)+]),)+]
    };
}

const REASONS: &[(ConditionType, &[Reason])] = reasons! {
    Admitted: Admitted Ended Queued Started;
    AwaitingApproval: Approved KeyWaits;
    BMCAuthenticated: AccountAccepted AccountRefused NoSecret PermissionDenied Unreachable;
    BMCReachable: Answers CertificateUntrusted InvalidAnswer NoSecret Unreachable;
    Connected: Disconnected Heard Hello Silent;
    Deleting: AgentMayAct;
    DisksKnown: Complete Scanning Unreadable;
    Healthy: Failed Passed;
    IdentityAmbiguous: Adopted Confirmed IdentityMismatch KeyChanged
        OneComputer TokenReused TwoComputers WrongCertificate;
    IdentityKnown: NoPorts PortsOfOthers Reported;
    Maintenance: NotRequested Requested;
    Managed: External Managed;
    MediumLeft: NotEjected;
    NoReceipt: Deprovisioned Found Lost NoRoom Written;
    NotSeen: NeverNetbooted Seen;
    Paused: ByPerson NotPaused;
    PowerKnown: AccountRefused InvalidAnswer NoSecret PermissionDenied Reported Unreachable;
    Progressing: AfterFailure Cancelled Deprovisioning Ended Failed Holding
        Idle Provisioning Queued Running Succeeded WaitingForAgent WaitingForPhoneHome;
    Provisioned: Adopted Cancelled Deprovisioned Deprovisioning Failed Installed LeftOut PhonedHome Provisioning;
    Ready: Complete NeedsPerson NoTemplate Paused Rolling TooFewMachines TooManyFailures;
    ReceiptConflict: Adopted Forced Known NewerThanStore UnknownReceipt;
    Restarted: MachineRestarted;
    Silent: Heard NoAgent NoHeartbeat NoSession;
    Slow: BehindDeadline InTime NoAgent NoProgress NotHeard;
    StoreBehind: Adopted AskedBefore AwaitsAgent Confirmed EpochNeverGiven
        EventsMissing Forced Interrupted MachineRestarted RunEnded SameAgent;
    Stuck: DeadlineNear DeadlinePassed Ended InTime NoDeadline;
};

#[cfg(test)]
mod tests;
