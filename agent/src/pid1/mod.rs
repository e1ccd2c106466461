//! The agent as PID 1 of the boot image. Never returns: the machine restarts, or the agent keeps trying.

mod keyboard;
mod kmsg;
mod mount;
pub(crate) mod power;
mod records;
mod rescue;
mod screen;
mod spcr;
mod watchdog;

use std::os::unix::fs::MetadataExt as _;
use std::{convert::Infallible, fs, io::Read, panic, time::Duration};

use nix::sys::reboot::RebootMode;
use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};

use self::kmsg::KernelLog;
use self::power::Before;
use self::spcr::Copier;
use self::watchdog::Watchdog;
use crate::booted::{self, Booted, FAULT_WAIT, STUCK_WAIT};
use crate::cmdline::AfterPanic;
use crate::life::clock;
use crate::logging::Tail;
use crate::ownership::claim_machine;
use crate::status::Board;
use crate::{drivers, efi, logging};

/// What is said when the keys are pressed.
const PRESSED: &str = "Ctrl-Alt-Del: restarting";
/// A slow console has so long for the last lines before the machine goes down.
const LAST_LINES: Duration = Duration::from_secs(5);

/// The machine's own PID namespace, as `/proc` shows it (Linux, include/linux/proc_ns.h, `PROC_PID_INIT_INO`).
const MACHINES_NAMESPACE: u64 = 0xefff_fffc;
/// `RAMFS_MAGIC` (Linux, include/uapi/linux/magic.h).
const RAMFS: FsType = FsType(0x8584_58f6);

/// Whether this is the first process of the machine, not of a container. In the boot image `/proc` is not mounted yet; then its root, which
/// is in memory, tells it from a container without one, whose root is a disk's or an overlay.
pub(crate) fn is_machines() -> bool {
    let in_memory = || statfs("/").is_ok_and(|root| matches!(root.filesystem_type(), RAMFS | TMPFS_MAGIC));
    let namespace = || fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino());
    std::process::id() == 1 && namespace().map_or_else(|_| in_memory(), |number| number == MACHINES_NAMESPACE)
}

/// Boots the agent, and lives until the machine restarts.
pub(crate) fn main() -> ! {
    let complaints = mount::mount_all();
    let (log, refused) = KernelLog::open();
    claim_machine();
    let tail = logging::init(log.clone(), false);
    report_panics(log.clone(), tail.clone());
    tracing::info!("landfall-agent {} is PID 1", env!("CARGO_PKG_VERSION"));
    clock::set_to_floor();
    for complaint in complaints {
        tracing::error!("{complaint}");
    }
    for complaint in refused {
        tracing::warn!("{complaint}");
    }
    if let Some(copier) = Copier::start() {
        log.copied_by(copier);
    }
    answer_module_requests();
    // Beside everything else: the first facts wait for it.
    std::thread::spawn(efi::mount_variables);
    stir_randomness();
    std::thread::spawn(rescue::offer);
    loop {
        // PID 1 must not unwind out of main: the kernel would panic. The hook has logged the reason.
        let life = panic::AssertUnwindSafe(|| match crate::runtime() {
            Ok(runtime) => match runtime.block_on(supervise(&log, &tail)) {},
            Err(e) => tracing::error!("cannot start the runtime: {e}; the agent keeps trying"),
        });
        panic::catch_unwind(life).unwrap_or_default();
        std::thread::sleep(FAULT_WAIT);
    }
}

/// Runs the agent's life again and again: a panic is logged, and a new life begins.
async fn supervise(log: &KernelLog, tail: &Tail) -> Infallible {
    let board = Board::default();
    tokio::spawn(power::reap_children());
    tokio::spawn(screen::show(board.clone()));
    tokio::spawn(screen::remind(board.clone(), log.clone()));
    let line = booted::command_line();
    let mut watchdog = (!line.no_watchdog).then(Watchdog::start);
    let booted = Booted::start(line.interfaces).await;
    // From here on the keys are waited for; before, the kernel obeys them.
    let mut keyboard = keyboard::Restarts::listen();
    loop {
        let mut life = tokio::spawn(booted.clone().live(board.clone(), tail.clone()));
        let ended = loop {
            tokio::select! {
                ended = &mut life => break ended.map(|end| power::of(&end)),
                // What is under way continues until the kernel goes down: an action that is stopped would be a failed one.
                () = keyboard.pressed() => {
                    down(PRESSED, RebootMode::RB_AUTOBOOT, Before::Sync, (&board, &mut watchdog, log)).await;
                }
            }
        };
        match ended {
            Ok((why, how)) => {
                down(why, how, Before::Unmount, (&board, &mut watchdog, log)).await;
            }
            Err(e) => {
                let (next, how) = after(line.after_panic);
                tracing::error!("the agent failed by an internal error: {e}; {next}");
                board.change(|status| {
                    status.actions.clear();
                    (status.now, status.error) = (next.to_owned(), Some(format!("internal error: {e}")));
                });
                // The report is on its way to the coordinator.
                tokio::time::sleep(FAULT_WAIT).await;
                match how {
                    Some(how) => down(next, how, Before::Sync, (&board, &mut watchdog, log)).await,
                    None if line.after_panic == AfterPanic::Stay => {
                        keyboard.pressed().await;
                        down(PRESSED, RebootMode::RB_AUTOBOOT, Before::Sync, (&board, &mut watchdog, log)).await;
                    }
                    None => {}
                }
            }
        }
    }
}

/// What follows an internal error, in words, and how the machine goes down for it.
const fn after(panic: AfterPanic) -> (&'static str, Option<RebootMode>) {
    match panic {
        AfterPanic::Restart => ("it starts again", None),
        AfterPanic::Reboot => ("the machine restarts (landfall.panic=reboot)", Some(RebootMode::RB_AUTOBOOT)),
        AfterPanic::Halt => ("the machine is turned off (landfall.panic=halt)", Some(RebootMode::RB_POWER_OFF)),
        AfterPanic::Stay => ("the machine stays as it is (landfall.panic=stay); Ctrl-Alt-Del restarts it", None),
    }
}

/// The kernel starts to gather randomness only when a process waits for it, and takes seconds on machines without a
/// source in hardware. Waiting from the first moment on hides that behind drivers and DHCP; the agent's key needs it.
fn stir_randomness() {
    std::thread::spawn(|| {
        let mut byte = [0];
        // Code that needs randomness waits for it and logs that; this only starts the gathering.
        fs::File::open("/dev/random").and_then(|mut file| file.read_exact(&mut byte)).unwrap_or_default();
    });
}

/// The kernel asks user space for modules by starting /sbin/modprobe: that is the agent too.
fn answer_module_requests() {
    let link = || {
        fs::create_dir_all("/sbin")?;
        let own = std::env::current_exe()?;
        match std::os::unix::fs::symlink(own, format!("/sbin/{}", drivers::MODPROBE)) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        }
    };
    if let Err(e) = link() {
        tracing::warn!("the kernel cannot request modules: {e}");
    }
}

/// Takes the machine down. Returns only if the kernel refuses.
async fn down(
    why: &str, how: RebootMode, before: Before, (board, watchdog, log): (&Board, &mut Option<Watchdog>, &KernelLog),
) {
    tracing::info!("{why}");
    board.say(why);
    stop(watchdog).await;
    restart(how, before, log).await;
}

/// Stops it for good: should the kernel refuse to go down, it is not started again.
async fn stop(watchdog: &mut Option<Watchdog>) {
    if let Some(watchdog) = watchdog.take() {
        watchdog.stop().await;
    }
}

async fn restart(how: RebootMode, before: Before, log: &KernelLog) {
    // Should this hang, the keys are the kernel's again.
    keyboard::give_back();
    let log = log.clone();
    power::restart(how, before, move || log.flush(LAST_LINES)).await;
    tokio::time::sleep(STUCK_WAIT).await;
}

/// Panics go to the kernel log directly, without code that might itself be broken, and to the coordinator if a session
/// is up.
fn report_panics(log: KernelLog, tail: Tail) {
    panic::set_hook(Box::new(move |info| {
        let line = format!("PANIC {info}");
        // 2: critical; on every console even with `quiet`.
        log.say_now(2, &line);
        tail.last_words(&line);
    }));
}
