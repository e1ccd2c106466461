//! The agent as PID 1 of the boot image. Never returns: the machine restarts, or the agent keeps trying.

mod keyboard;
mod kmsg;
mod mount;
mod power;
mod screen;
mod watchdog;

use std::{convert::Infallible, fs, io::Read, panic, time::Duration};

use landfall_api::SecretText;
use landfall_session::Target;
use nix::sys::reboot::RebootMode;
use tokio::sync::watch;

use self::kmsg::KernelLog;
use self::power::Before;
use self::watchdog::Watchdog;
use crate::cmdline::CommandLine;
use crate::disks::Disks;
use crate::drivers::Drivers;
use crate::life::{End, Life};
use crate::logging::Tail;
use crate::net::Network;
use crate::status::Board;
use crate::thread::on_thread;
use crate::{drivers, efi, logging};

/// Time between attempts at something that only another boot or a person can cure.
const STUCK_WAIT: Duration = Duration::from_secs(60);
/// Pause before a new start after an internal error of the agent.
const FAULT_WAIT: Duration = Duration::from_secs(10);
/// A slow console has so long for the last lines before the machine goes down.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Boots the agent, and lives until the machine restarts.
pub(crate) fn main() -> ! {
    let complaints = mount::mount_all();
    let (log, refused) = KernelLog::open();
    let tail = logging::init(log.clone(), false);
    report_panics(log.clone(), tail.clone());
    tracing::info!("landfall-agent {} is PID 1", env!("CARGO_PKG_VERSION"));
    for complaint in complaints {
        tracing::error!("{complaint}");
    }
    for complaint in refused {
        tracing::warn!("{complaint}");
    }
    answer_module_requests();
    // Beside everything else: the first facts wait for it.
    std::thread::spawn(efi::mount_variables);
    stir_randomness();
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
    let (settled, drivers_settled) = watch::channel(false);
    let disks = Disks::watch(Some(drivers_settled.clone()));
    tokio::spawn(async move {
        load_drivers().await;
        settled.send_replace(true);
    });
    let line = fs::read_to_string("/proc/cmdline").map(|text| CommandLine::parse(&text)).unwrap_or_default();
    let (interfaces, mut watchdog) = (line.interfaces, (!line.no_watchdog).then(Watchdog::start));
    let network = loop {
        match Network::start(interfaces.clone(), false, "/etc/resolv.conf".into()) {
            Ok(network) => break network,
            Err(e) => tracing::error!(
                "cannot open a routing socket ({e}): this kernel has no network; the agent keeps trying"
            ),
        }
        tokio::time::sleep(FAULT_WAIT).await;
    };
    // From here on the keys are waited for; before, the kernel obeys them.
    let mut keyboard = keyboard::Restarts::listen();
    loop {
        let life = live(network.clone(), drivers_settled.clone(), disks.clone(), board.clone(), tail.clone());
        let mut life = tokio::spawn(life);
        let ended = loop {
            tokio::select! {
                ended = &mut life => break ended.map(|end| of(&end)),
                () = keyboard.pressed() => {
                    say(&board, "Ctrl-Alt-Del: restarting");
                    stop(&mut watchdog).await;
                    // What is under way continues until the kernel goes down: an action that is stopped would be a failed one.
                    restart(RebootMode::RB_AUTOBOOT, Before::Sync, log).await;
                }
            }
        };
        match ended {
            Ok((why, how)) => {
                say(&board, why);
                stop(&mut watchdog).await;
                restart(how, Before::Unmount, log).await;
                // The kernel refused to go down.
                watchdog = None;
            }
            Err(e) => {
                tracing::error!("the agent failed by an internal error: {e}; it starts again");
                board.change(|status| {
                    status.actions.clear();
                    (status.now, status.error) = ("starting again".to_owned(), Some(format!("internal error: {e}")));
                });
                tokio::time::sleep(FAULT_WAIT).await;
            }
        }
    }
}

async fn live(network: Network, drivers_settled: watch::Receiver<bool>, disks: Disks, board: Board, tail: Tail) -> End {
    let (line, target) = command_line(&board).await;
    let life = Life {
        target,
        token: line.token.map(|t| SecretText::new(t.0)),
        boot_port: line.boot_port,
        network: Some(network),
        drivers_settled: Some(drivers_settled),
        disks,
        owns_machine: true,
        board,
        tail,
    };
    life.live().await
}

/// Reads the command line. Without a coordinator the agent can only log that.
async fn command_line(board: &Board) -> (CommandLine, Target) {
    loop {
        let problem = match fs::read_to_string("/proc/cmdline") {
            Err(e) => format!("/proc/cmdline: {e}"),
            Ok(text) => {
                let line = CommandLine::parse(&text);
                for complaint in &line.complaints {
                    tracing::warn!("kernel command line: {complaint}");
                }
                let pins = line.pins.iter().map(|p| p.to_string().parse()).collect::<Result<Vec<_>, _>>();
                match (&line.coordinator, pins) {
                    (Some(url), Ok(pins)) => match Target::new(url, pins) {
                        Ok(target) => return (line, target),
                        Err(e) => e.to_string(),
                    },
                    (_, Err(e)) => format!("landfall.ca: {e}"),
                    (None, _) => "the kernel command line names no coordinator; add \
                        landfall.coordinator=https://HOST:7443 and landfall.ca=sha256:… to it, and boot again"
                        .to_owned(),
                }
            }
        };
        tracing::error!("kernel command line: {problem}");
        board.failed(format!("kernel command line: {problem}"));
        tokio::time::sleep(STUCK_WAIT).await;
    }
}

async fn load_drivers() {
    match on_thread("drivers", Drivers::open).await {
        Ok(Ok(drivers)) => {
            let available = drivers.available();
            let loaded = drivers.settle().await;
            tracing::info!("{loaded} drivers loaded of {available} in the boot image");
        }
        // A kernel with everything built in needs none.
        Ok(Err(e)) => tracing::warn!("no drivers: {e}"),
        Err(e) => tracing::error!("no drivers: {e}"),
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

/// How a life that ended takes the machine down, and what a person reads of it.
const fn of(end: &End) -> (&'static str, RebootMode) {
    match end {
        End::Reboot => ("restarting into the installed system", RebootMode::RB_AUTOBOOT),
        End::PowerOff => ("turning the machine off", RebootMode::RB_POWER_OFF),
        End::Kexec => ("starting the installed system's kernel, without the firmware", RebootMode::RB_KEXEC),
        End::BootDisk => ("restarting to boot this machine's own disk", RebootMode::RB_AUTOBOOT),
    }
}

fn say(board: &Board, why: &str) {
    tracing::info!("{why}");
    board.say(why);
}

async fn stop(watchdog: &mut Option<Watchdog>) {
    if let Some(watchdog) = watchdog {
        watchdog.stop().await;
    }
}

async fn restart(mut how: RebootMode, before: Before, log: &KernelLog) {
    // Should this hang, the keys are the kernel's again.
    keyboard::give_back();
    // Unmounting may block on a slow device.
    let down = |how| {
        let log = log.clone();
        on_thread("power", move || power::go_down(how, before, || log.flush(LAST_LINES)))
    };
    if how == RebootMode::RB_KEXEC {
        // The actions are reported as done, and the disk boots: the firmware starts the same system, only later.
        let refused = down(how).await;
        tracing::error!("the kernel refuses to start the loaded kernel: {refused:?}; restarting through the firmware");
        how = RebootMode::RB_AUTOBOOT;
    }
    let refused = down(how).await;
    tracing::error!("the kernel refuses to stop the machine: {refused:?}; turn it off by hand");
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
