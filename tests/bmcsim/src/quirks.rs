//! What real BMCs do otherwise than they should, a switch each.

use std::time::Duration;

/// How entity tags are dealt with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EntityTags {
    /// There are none, and `If-Match` is ignored.
    #[default]
    None,
    /// A change without the present tag is refused.
    Required,
    /// Tags are weak, and a weak one is refused.
    Weak,
    /// Whatever tag is sent is refused, but for `*`.
    OnlyAny,
}

/// Where virtual drives are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MediaAt {
    /// Under the system, as the newer schema has it.
    #[default]
    Systems,
    /// Under the manager, as the older one has it.
    Managers,
    /// Under a manager that another computer has too.
    SharedManager,
    /// There is none.
    Nowhere,
}

/// How a medium is put in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Insert {
    /// However the action is asked.
    #[default]
    Any,
    /// The action refuses more than the URL.
    UrlAlone,
    /// The action demands `Inserted` and `WriteProtected`.
    WantsFlags,
    /// The action demands `TransferProtocolType`.
    WantsProtocol,
    /// There is no action: the resource is changed, and only with `Inserted`.
    ByPatch,
    /// It is accepted, and the task fails.
    FailsLater,
    /// The action refuses more than the URL, which it cannot reach.
    CannotReach,
}

/// How a medium is taken out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Eject {
    /// It is.
    #[default]
    Done,
    /// It is, and is shown still, as not connected.
    ShownStill,
    /// It is accepted and not done.
    Ignored,
    /// It is refused.
    Refused,
}

/// The switches; all off by default.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a complaint of its own")]
pub struct Quirks {
    /// It lists no port of the computer.
    pub no_ports: bool,
    /// There are no sessions.
    pub no_sessions: bool,
    /// So many sessions may be open.
    pub session_limit: Option<usize>,
    /// After so many failed logins every login fails.
    pub lockout_after: Option<u32>,
    /// A boot device is accepted and not kept.
    pub reverts_boot: bool,
    /// A boot device for one start is accepted and not kept.
    pub reverts_once: bool,
    /// A boot device for one start is kept and not followed.
    pub ignores_once: bool,
    /// There is no `BootSourceOverrideMode`, and a change of it is refused.
    pub no_mode: bool,
    /// There is one, and a change of it is refused.
    pub refuses_mode: bool,
    /// Entity tags.
    pub tags: EntityTags,
    /// The boot device is changed in the settings at `/SD`, and refused elsewhere.
    pub settings: bool,
    /// Switching off a computer that is off is an error.
    pub off_is_error: bool,
    /// The values of `ResetType`; empty: the usual ones.
    pub reset_types: Vec<&'static str>,
    /// From the request to the change of power.
    pub power_lag: Duration,
    /// The power is not said.
    pub no_power_state: bool,
    /// Fields are missing, null, or of another type.
    pub odd_fields: bool,
    /// Every answer has 10 MB.
    pub huge: bool,
    /// Requests are never answered.
    pub hangs: bool,
    /// From a request that has this in it on, that one included, requests are never answered.
    pub hangs_at: Option<&'static str>,
    /// What each answer takes.
    pub answers_after: Duration,
    /// Connections are cut without an answer.
    pub is_down: bool,
    /// Whatever changes something is answered with 503.
    pub is_busy: bool,
    /// Whatever changes something is forbidden.
    pub read_only: bool,
    /// So many systems beyond the first.
    pub other_systems: usize,
    /// The system does not react to a request to shut down.
    pub ignores_shutdown: bool,
    /// A request to shut down is refused: not in this state.
    pub refuses_shutdown: bool,
    /// It reports that it switches on, and does not.
    pub stays_off: bool,
    /// What its clock shows; absent: the time. With it its certificate is of 1970.
    pub clock: Option<&'static str>,
    /// It speaks TLS 1.2 alone.
    pub only_tls12: bool,
    /// Where virtual drives are.
    pub media_at: MediaAt,
    /// Whatever is read of them is answered with 503.
    pub media_busy: bool,
    /// How a medium is put in.
    pub insert: Insert,
    /// How it is taken out.
    pub eject: Eject,
    /// IPMI: the cipher suites; empty: 3 and 17.
    pub suites: Vec<u8>,
    /// IPMI: a login with another suite is not answered.
    pub ignores_suites: bool,
    /// IPMI: the first, third, fifth … packet of each kind is lost.
    pub drops_packets: bool,
    /// IPMI: every answer is sent twice.
    pub answers_twice: bool,
    /// IPMI: before every answer comes the one before.
    pub repeats_old: bool,
    /// IPMI: what changes something is only for administrators.
    pub wants_administrator: bool,
    /// IPMI: the account may not be an administrator.
    pub is_operator: bool,
    /// Serial over LAN is switched off.
    pub console_off: bool,
    /// Serial over LAN is active in a session of another program.
    pub console_taken: bool,
    /// Serial over LAN: each packet is lost the first time, in both directions.
    pub console_loses: bool,
    /// Serial over LAN: each packet to the client is sent twice.
    pub console_repeats: bool,
    /// Serial over LAN: so many characters of a packet are taken at most.
    pub console_takes: Option<usize>,
    /// Serial over LAN: so many packets of the client are refused from now on.
    pub console_refuses: u32,
    /// Serial over LAN: characters are refused while the computer has no power.
    pub console_needs_power: bool,
}
