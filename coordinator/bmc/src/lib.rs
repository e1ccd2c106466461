//! BMCs, and what stands in for one: reads a computer's power and inventory, sets its boot device, and switches it on and off.
//!
//! A BMC's word is taken for nothing but what was read: a request that it answered with success proves nothing, and every answer may
//! lack fields or have them in another type. Which step follows which is decided in `landfall-machine`; here one step is made.
//! Logins are never repeated after a refusal: the caller counts them, so that no account is locked out.

mod error;
mod http;
mod ipmi;
mod log;
mod redfish;
mod tls;
mod wake;
mod webhook;

use std::net::IpAddr;

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{BmcProtocol, BmcSpec, BmcSystem, MacAddr, PowerState, WakeOnLan};

pub use error::BmcError;
pub use ipmi::Console;

/// The account that a BMC is to accept.
#[derive(Clone)]
pub struct Account {
    /// Its name.
    pub username: String,
    /// Its password.
    pub password: String,
}

/// Never with the password.
impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("username", &self.username).finish_non_exhaustive()
    }
}

/// What the next start is to boot from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootDevice {
    /// The network, by PXE.
    Pxe,
    /// The network, by UEFI HTTP Boot.
    UefiHttp,
    /// A CD, such as the BMC's virtual one.
    Cd,
    /// A USB stick, such as the BMC's virtual one.
    Usb,
    /// What the firmware's own order says.
    None,
}

/// The firmware's mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootMode {
    /// UEFI.
    Uefi,
    /// BIOS.
    Legacy,
}

/// A boot device that is to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootOverride {
    /// The device.
    pub device: BootDevice,
    /// For the next start alone; else for all.
    pub once: bool,
    /// The mode to boot in; absent: as it is.
    pub mode: Option<BootMode>,
}

/// A boot medium in a virtual drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserted {
    /// What the computer sees.
    pub device: BootDevice,
    /// The path of the drive, for [`Bmc::eject`].
    pub drive: String,
}

/// A change of a computer's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerChange {
    /// Switch it on.
    On,
    /// Switch it off at once.
    Off,
    /// Ask its system to shut down.
    Shutdown,
}

/// What comes from a serial console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsoleEvent {
    /// What the computer wrote.
    Output(Vec<u8>),
    /// The BMC does not reach the computer's serial port: it has no power, or starts.
    Unavailable,
    /// It reaches it again.
    Available,
    /// The BMC lost some of what the computer wrote.
    Overrun,
    /// The computer sent a break.
    Break,
    /// So many bytes that were typed did not reach the computer, and will not: the BMC does not take them.
    Unsent(usize),
}

/// One BMC, with a session where it gives one.
#[async_trait]
pub trait Bmc: Send + Sync {
    /// Whether the computer has power; absent: the BMC does not say.
    ///
    /// # Errors
    /// [`BmcError`].
    async fn power(&mut self) -> Result<Option<PowerState>, BmcError>;

    /// What it says of the computer. A part that cannot be read stays empty.
    ///
    /// # Errors
    /// [`BmcError`], if the computer's own resource cannot be read.
    async fn inventory(&mut self) -> Result<BmcSystem, BmcError>;

    /// Sets the boot device, and reads it back.
    ///
    /// # Errors
    /// [`BmcError`]; `NotKept` if the BMC reports success and another device.
    async fn set_boot(&mut self, boot: BootOverride) -> Result<(), BmcError>;

    /// Puts the boot medium at this URL into a virtual drive, in the place of one that was there by URL, and reads it back. It takes
    /// 2 min at most.
    ///
    /// # Errors
    /// [`BmcError`]; `NotKept` if the BMC reports success and holds no medium then; `Unsupported` if it has no virtual drive for
    /// this computer alone, or persons use all.
    async fn insert(&mut self, url: &str) -> Result<Inserted, BmcError>;

    /// Takes that medium out again, if it is there; of a BMC that does not show what it holds, from this drive. It takes 1 min at most.
    ///
    /// # Errors
    /// [`BmcError`]; `NotKept` if the BMC reports success and still holds it.
    async fn eject(&mut self, url: &str, drive: Option<&str>) -> Result<(), BmcError>;

    /// Asks for a change of power, of a computer whose power was read a moment ago. That it happened shows [`Bmc::power`], some
    /// time later. Of a computer that is there already it succeeds.
    ///
    /// # Errors
    /// [`BmcError`].
    async fn change_power(&mut self, change: PowerChange) -> Result<(), BmcError>;

    /// What the BMC says of a computer that was switched on `since` then and did not come: how far its firmware got, and the newest
    /// entries of its event log, a line each. Nothing where it does not say.
    ///
    /// # Errors
    /// [`BmcError`], if the computer's own resource cannot be read.
    async fn signs(&mut self, since: Timestamp, now: Timestamp) -> Result<Vec<String>, BmcError>;

    /// Ends the session. A BMC has few, and an open one counts for half an hour.
    async fn close(&mut self);
}

/// Switches on a machine without a BMC, with these ports: by packets from this address. It is not reached, and never logs in.
pub fn wake_on_lan(spec: &WakeOnLan, macs: &[MacAddr], from: IpAddr) -> Box<dyn Bmc> {
    Box::new(wake::Wake::new(spec, macs, from))
}

/// Reaches the BMC of this machine, then logs in once. A webhook is not reached before it is asked for something.
///
/// # Errors
/// [`BmcError`]; `Refused`: the account is wrong, and asking again with it may lock it out.
pub async fn connect(spec: &BmcSpec, account: Account, machine: &str) -> Result<Box<dyn Bmc>, BmcError> {
    Ok(match (spec.address.protocol(), &spec.webhook) {
        (BmcProtocol::Redfish | BmcProtocol::PlainRedfish, _) => {
            Box::new(redfish::Redfish::connect(spec, account).await?)
        }
        (BmcProtocol::Ipmi, _) => Box::new(ipmi::Ipmi::connect(spec, account).await?),
        (BmcProtocol::Webhook | BmcProtocol::PlainWebhook, Some(stated)) => {
            Box::new(webhook::Calls::new(spec, stated, account, machine)?)
        }
        (BmcProtocol::Webhook | BmcProtocol::PlainWebhook, None) => {
            return Err(BmcError::Calls("there are none".to_owned()));
        }
    })
}
