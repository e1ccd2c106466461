//! Which accelerator runs the machines.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::OnceCell;

/// How long a guest may take to its first output. Under a working KVM SeaBIOS writes it within milliseconds.
const PROBE_LIMIT: Duration = Duration::from_secs(4);

static PROBED: OnceCell<Accel> = OnceCell::const_new();

/// An accelerator of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// The kernel's KVM.
    Kvm,
    /// Emulation: correct, and about ten times slower.
    Tcg,
}

impl Accel {
    /// The word used in reports and in `LANDFALL_ACCEL`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// What to use here: `LANDFALL_ACCEL` if it says `kvm` or `tcg`, else KVM if a guest proves within few seconds that it
    /// runs. Found once per process.
    pub async fn probe() -> Self {
        *PROBED
            .get_or_init(|| async {
                match std::env::var("LANDFALL_ACCEL").as_deref() {
                    Ok("kvm") => Self::Kvm,
                    Ok("tcg") => Self::Tcg,
                    _ if kvm_works().await => Self::Kvm,
                    _ => Self::Tcg,
                }
            })
            .await
    }

    /// How much longer than under KVM a wait may take: multiply limits by it.
    pub const fn patience(self) -> u32 {
        match self {
            Self::Kvm => 1,
            Self::Tcg => 4,
        }
    }

    pub(crate) fn qemu_args(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // With ERMS a kernel clears pages byte by byte, and where one held code before, QEMU 7.2 looks for that code at each byte:
            // a guest stood still for minutes.
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max,-erms"],
        }
    }
}

/// Starts SeaBIOS with no disk and waits for its first line on the debug port.
///
/// A broken `/dev/kvm` may hang in the kernel where SIGKILL does not reach: the child gets SIGKILL and is then left
/// alone (the runtime reaps it if it ever does).
async fn kvm_works() -> bool {
    if std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        return false;
    }
    let child = Command::new("qemu-system-x86_64")
        // As the machines will run: a KVM that accepts an artificial processor model may refuse the host's own.
        .args(Accel::Kvm.qemu_args())
        .args(["-machine", "q35,smm=off,graphics=off", "-m", "16"])
        .args(["-nodefaults", "-display", "none", "-chardev", "stdio,id=d,signal=off"])
        .args(["-device", "isa-debugcon,iobase=0x402,chardev=d"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut child) = child else { return false };
    let Some(stdout) = child.stdout.take() else { return false };
    let mut lines = BufReader::new(stdout).lines();
    let first_word = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line.contains("SeaBIOS") {
                return true;
            }
        }
        false
    };
    tokio::time::timeout(PROBE_LIMIT, first_word).await.unwrap_or(false)
}
