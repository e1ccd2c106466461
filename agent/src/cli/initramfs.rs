//! `landfall-agent initramfs`: in an initramfs that another program made, the agent does what it does as process 1 of the boot image.
//! That initramfs keeps its own process 1. The agent ends only when it takes the machine down: the next step of the boot, such as the
//! search for the root file system, must not begin.

use std::{path::Path, time::Duration};

use tokio::time::sleep;

use crate::booted::{self, Booted, FAULT_WAIT, STUCK_WAIT};
use crate::efi;
use crate::life::{End, clock};
use crate::logging::Tail;
use crate::ownership::claim_machine;
use crate::pid1::power::{self, Before};
use crate::status::Board;
use crate::thread::on_thread;

/// An init that was asked for a restart has so long: systemd gives a service 90 s to stop.
const ORDERLY: Duration = Duration::from_secs(120);

/// Serves the coordinator that the kernel's command line names.
pub(super) async fn serve(tail: Tail) -> ! {
    claim_machine();
    clock::set_to_floor();
    let booted = Booted::start(booted::command_line().interfaces).await;
    // systemd has mounted them; another init may not have.
    std::thread::spawn(efi::mount_variables);
    let board = Board::default();
    loop {
        let life = tokio::spawn(booted.clone().live(board.clone(), tail.clone()));
        match life.await {
            Ok(end) => restart(end).await,
            Err(e) => {
                tracing::error!("the agent failed by an internal error: {e}; it starts again");
                sleep(FAULT_WAIT).await;
            }
        }
    }
}

/// Takes the machine down. Returns only if the kernel refuses.
async fn restart(end: End) {
    let (why, how) = power::of(&end);
    tracing::info!("{why}");
    // systemd stops its own services first.
    if Path::new("/run/systemd/system").is_dir() {
        let verb = match end {
            End::Reboot | End::BootDisk => "reboot",
            End::PowerOff => "poweroff",
            End::Kexec => "kexec",
        };
        match on_thread("systemctl", move || super::init(&["systemctl", verb])).await {
            Ok(Ok(())) => {
                sleep(ORDERLY).await;
                tracing::error!("systemd has not taken this machine down in {} s", ORDERLY.as_secs());
            }
            Ok(Err(e)) => tracing::error!("systemd does not take this machine down: {e:#}"),
            Err(e) => tracing::error!("systemd does not take this machine down: {e}"),
        }
    }
    power::restart(how, Before::Unmount, || ()).await;
    sleep(STUCK_WAIT).await;
}
