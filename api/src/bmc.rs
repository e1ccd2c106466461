//! A machine's BMC: where the coordinator reaches it, and what the coordinator has read there.

mod address;
mod console;
mod webhook;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use uuid::Uuid;

pub use address::{BmcAddress, BmcAddressError, BmcProtocol, is_bmc_place, place_has};
pub use console::{Characters, ConsoleInput, ConsoleLine, ConsoleRequest, ConsoleTaken, MAX_CONSOLE_INPUT};
pub use webhook::{Webhook, WebhookCall, WebhookStatus};

use crate::{Digest, MacAddr};

/// The key of the Secret's value that has the account's name.
pub const BMC_USERNAME: &str = "username";
/// The key of the Secret's value that has the account's password.
pub const BMC_PASSWORD: &str = "password";

/// How the coordinator reaches a machine's BMC, and drives the machine's power and its boot device.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BmcSpec {
    /// Where it is: `redfish+https://HOST`, with the path of the computer's system behind it where the BMC has several, such as
    /// `redfish+https://192.0.2.7/redfish/v1/Systems/1`; `ipmi://HOST` for a BMC without Redfish; or `webhook+https://HOST` for a
    /// web server in the place of a BMC, with `webhook`.
    pub address: BmcAddress,
    /// The Secret with the account: its values `username` and `password`. Its `spec.bmcs` must name the BMC's host.
    pub credentials: String,
    /// SHA-256 of the certificate that the BMC shows, as `openssl x509 -fingerprint -sha256` computes it. With it neither the
    /// certificate's names nor its dates count. A certificate that nothing here trusts is refused, and the machine's condition
    /// `BMCReachable` shows its digest.
    pub certificate: Option<Digest>,
    /// Certificates in PEM of the authorities that may sign the BMC's certificate, for the host in `address`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ca_certificates: Vec<String>,
    /// Where the machine's serial console is, `ipmi://HOST` or `ipmi://HOST:PORT`: `landfall console` speaks IPMI's Serial over LAN, with
    /// the same account. Default: the address, if that is one of IPMI. The Secret's `spec.bmcs` must name this host too. What it costs:
    /// who can send packets to a BMC with IPMI can have it prove that it knows the password, and guess the password from that in
    /// their own time. Use a long random one, and a network for BMCs alone.
    pub console: Option<BmcAddress>,
    /// The ways to have the machine start its agent, in the order in which they are tried, each at most once. What worked the last time
    /// comes first. Default: all, in the order of their list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<BootWay>,
    /// What the server of `webhook+https://HOST` is asked to do.
    pub webhook: Option<Webhook>,
}

impl BmcSpec {
    /// With the account of this Secret, and nothing besides.
    pub fn new(address: BmcAddress, credentials: impl Into<String>) -> Self {
        let (ca_certificates, ways, credentials) = (Vec::new(), Vec::new(), credentials.into());
        Self { address, credentials, certificate: None, ca_certificates, console: None, ways, webhook: None }
    }

    /// Where the serial console is; absent: the document does not say.
    pub fn console(&self) -> Option<&BmcAddress> {
        let own = (self.address.protocol() == BmcProtocol::Ipmi).then_some(&self.address);
        self.console.as_ref().or(own)
    }

    /// The ways that may be tried, in their order.
    pub fn ways(&self) -> Vec<BootWay> {
        let stated = if self.ways.is_empty() { &BootWay::ALL[..] } else { &self.ways };
        stated.iter().copied().filter(|way| self.has(*way)).collect()
    }

    /// Whether its protocol has this way.
    pub fn has(&self, way: BootWay) -> bool {
        match self.address.protocol() {
            BmcProtocol::Redfish | BmcProtocol::PlainRedfish => true,
            BmcProtocol::Ipmi => !matches!(way, BootWay::UefiHttpOnce | BootWay::VirtualMedia),
            BmcProtocol::Webhook | BmcProtocol::PlainWebhook => match way {
                BootWay::PxeOnce => self.webhook.as_ref().is_some_and(|webhook| webhook.netboot.is_some()),
                way => way == BootWay::OwnOrder,
            },
        }
    }
}

words! {
    /// Whether a computer has power, as its BMC says.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    PowerState {
        /// It has.
        On = "on",
        /// It has none.
        Off = "off",
        /// It is being switched on.
        PoweringOn = "poweringOn",
        /// It is being switched off.
        PoweringOff = "poweringOff",
    }
}

words! {
    /// A way to have a computer start the agent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    BootWay {
        /// The BMC is to let the next start alone netboot (PXE), in the firmware mode that the machine has.
        PxeOnce = "pxeOnce",
        /// The BMC is to let every start netboot, until the agent is heard.
        PxeContinuous = "pxeContinuous",
        /// The same as `pxeOnce` in the other firmware mode: UEFI for BIOS, BIOS for UEFI.
        PxeOtherMode = "pxeOtherMode",
        /// The BMC is to let the next start alone boot over HTTP (UEFI HTTP Boot).
        UefiHttpOnce = "uefiHttpOnce",
        /// The BMC is given the boot medium of `boot.iso` as its virtual CD, and is to let the next start alone boot from it. The medium is
        /// ejected when the agent is heard.
        VirtualMedia = "virtualMedia",
        /// No boot device is set: the firmware's own order decides. Many machines have the network first in it.
        OwnOrder = "ownOrder",
    }
}

words! {
    /// What a person asks of a machine's power.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    PowerAction {
        /// Read it.
        Status = "status",
        /// Switch it on.
        On = "on",
        /// Switch it off at once.
        Off = "off",
        /// Ask the system to shut down.
        Shutdown = "shutdown",
        /// Switch it off, then on.
        Cycle = "cycle",
    }
}

/// A person's request for a machine's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PowerRequest {
    /// What is asked for.
    pub action: PowerAction,
    /// Also while a workflow runs on the machine or waits for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// The power after a request, as it was read.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PowerReport {
    /// The power; absent: the BMC does not say.
    pub power: Option<PowerState>,
    /// When it was read.
    pub at: Timestamp,
}

/// What the coordinator has read of a BMC, and what it did there.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BmcStatus {
    /// The address that all of this was read at, and done at.
    pub address: Option<BmcAddress>,
    /// The power, where the condition `PowerKnown` is true.
    pub power: Option<PowerState>,
    /// What the BMC says of the computer.
    pub system: Option<BmcSystem>,
    /// Of a machine whose document states no `identity`: the ports of the computer that the machine is recognised by. Those of other
    /// machines are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recognised_by: Vec<MacAddr>,
    /// The login that the BMC refused. The account is not tried again before the Secret or the BMC's address changes.
    pub refused: Option<RefusedLogin>,
    /// The same of the login for the serial console at `spec.bmc.console`.
    pub console_refused: Option<RefusedLogin>,
    /// What was done to have the machine netboot for its newest workflow, the newest last; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<BootAttempt>,
    /// How this machine netbooted last: tried first the next time.
    pub worked: Option<BootWay>,
    /// Every start netboots until this is taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every_start: bool,
    /// The boot medium that the BMC was given, until it is ejected.
    pub medium: Option<BootMedium>,
}

/// A boot medium that a BMC was given.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootMedium {
    /// Its URL.
    pub url: String,
    /// The path of the virtual drive, once the BMC has taken it.
    pub drive: Option<String>,
    /// Since when it is to be ejected, and the BMC answers with errors.
    pub eject_since: Option<Timestamp>,
    /// Why it was not ejected, where that is not tried any more: it may be in the drive still.
    pub not_ejected: Option<String>,
}

/// What a BMC says of the computer. What it leaves out is empty here.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BmcSystem {
    /// The manufacturer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manufacturer: String,
    /// The model.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The serial number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    /// The UUID, as the BMC writes it.
    pub uuid: Option<Uuid>,
    /// The version of the computer's firmware.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub firmware: String,
    /// The version of the BMC's own firmware.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bmc_firmware: String,
    /// The addresses of the computer's ports, in ascending order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<MacAddr>,
}

/// A login that a BMC refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedLogin {
    /// Where.
    pub address: BmcAddress,
    /// The Secret's uid: one that was deleted and applied again is another.
    pub secret_uid: Uuid,
    /// The version of its values.
    pub version: u64,
    /// When.
    pub at: Timestamp,
}

/// One way, tried to have the machine netboot.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootAttempt {
    /// For which workflow.
    pub workflow_uid: Uuid,
    /// The way.
    pub way: BootWay,
    /// When it began.
    pub begun: Timestamp,
    /// When the system was asked to shut down.
    pub shutdown_at: Option<Timestamp>,
    /// When the power was switched off.
    pub off_at: Option<Timestamp>,
    /// When the BMC took the boot device.
    pub boot_set_at: Option<Timestamp>,
    /// When the power was switched on.
    pub on_at: Option<Timestamp>,
    /// When it ended, well or not.
    pub ended: Option<Timestamp>,
    /// Why it failed; of one that ended without: the machine's agent was heard.
    pub failure: Option<String>,
}
