//! A laboratory for netbooted machines: real firmware, a network of its own, power that can be cut.
//!
//! The demo, the end-to-end tests and a user's own lab use the same code. A [`Network`] is a network namespace with a
//! bridge; a [`Machine`] is a QEMU process on it, driven through QMP, whose serial console and disks can be read at any
//! time; a [`CoordinatorProcess`] is the program under test. Everything is bound to the lifetime of its value: dropping
//! it ends the process or removes the namespace, a lab that is killed takes its children with it (parent-death signal),
//! and the next lab removes what a dead lab left.
//!
//! Waiting is for events (a line in a log, a byte count, an API object), each with a limit; no code sleeps for a
//! guessed time.

mod accel;
pub mod api;
pub mod artefacts;
pub mod baseline;
pub mod blklog;
mod bmc;
mod coordinator;
mod disk;
mod dnsmasq;
pub mod efi_keys;
pub mod efi_order;
mod efi_store;
mod error;
pub mod faulty;
mod firmware;
mod ip;
mod kvm;
mod log;
mod machine;
mod network;
mod process;
mod qmp;
mod registry;
mod sweep;

pub use accel::Accel;
pub use bmc::{Chassis, Ipmi, Redfish, Simulated, Systems};
pub use coordinator::{CoordinatorOptions, CoordinatorProcess, DhcpMode, KERNEL_ARGS};
pub use disk::DiskImage;
pub use dnsmasq::Dnsmasq;
pub use error::LabError;
pub use faulty::{FaultyHttp, FileFault};
pub use firmware::{Firmware, Keys, SECURE_BOOT_KEY};
pub use kvm::{CPUINFO, choose_accel};
pub use log::printable;
pub use log::{Line, Log, Mark};
pub use machine::{
    BMC_ADDRESS, BMC_MAC, Board, Cable, Card, DiskBus, DiskErrors, DiskFault, DiskSpec, Extra, Machine, MachineBuilder,
    MachineSpec, Medium, NicSpec, Plug, Processors, endorsement_key, plug_nic, put_first, set_netboot,
};
pub use network::{Namespace, Network};
pub use process::Process;
pub use qmp::{Qmp, wait_event};
pub use registry::{Registry, RegistryStorage};
pub use sweep::sweep;
