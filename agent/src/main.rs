//! landfall-agent: PID 1 of the boot image, or an ordinary command.
//!
//! Wiring only. A machine's way through this crate: `pid1` (mounts, console) → `booted` (`drivers`, `disks`, `net`) → `life` (reach, enrol,
//! session) → `runner` → `actions` → back to `pid1::power`, which restarts it.

mod actions;
mod bmc;
mod booted;
mod children;
mod cli;
mod cmdline;
mod disks;
mod drivers;
mod efi;
mod facts;
mod inside;
mod installed;
mod kexec;
mod life;
mod logging;
mod net;
mod ownership;
mod phone_home;
mod pid1;
mod proxy;
mod rootfs;
mod runner;
mod status;
mod thread;
mod worker;

use std::{path::Path, process::ExitCode};

fn main() -> ExitCode {
    // If a provider is already installed, it is the same one: this binary has no other.
    rustls::crypto::ring::default_provider().install_default().unwrap_or_default();
    let mut arguments = std::env::args();
    let called = std::env::args().next().unwrap_or_default();
    let is_called = |name: &str| Path::new(&called).file_name().is_some_and(|n| n == name);
    if is_called(inside::INIT) {
        return ExitCode::from(inside::init(arguments.skip(1)));
    }
    if pid1::is_machines() {
        pid1::main();
    }
    if is_called(drivers::MODPROBE) {
        drivers::modprobe(&mut arguments);
        return ExitCode::SUCCESS;
    }
    match cli::main() {
        Ok(status) => ExitCode::from(status),
        Err(e) => {
            eprintln!("landfall-agent: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Two threads: the agent mostly waits, and what touches devices has threads of its own ([`thread`]).
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(16).enable_all().build()
}
