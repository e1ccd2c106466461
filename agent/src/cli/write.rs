//! `write`: an image onto a disk, by a person or a script at the machine, without a coordinator. Nothing of PID 1 is needed,
//! and no root for a disk that is a regular file.

mod image;
mod show;
mod summary;
mod target;

use std::path::PathBuf;

use clap::ValueEnum;
use landfall_api::Problem;
use landfall_disk::{Authority, CancelFlag, LeaseGuard, ReceiptIntent, SelectionGuard, WriteRequest};
use uuid::Uuid;

use self::{image::ImageArguments, show::Show, summary::Summary};

/// What `--help` says after the options.
const MORE: &str = "\
The image may be stored raw, or as gzip, xz, zstd, bzip2, lz4, qcow2 or vmdk; which of
them is seen from its content. It needs a partition table, a GPT or an MBR; for
an image that is meant to have none, add --table none. The disk is made bootable
last, by the write of one sector, and only after everything was verified:
whatever goes wrong before leaves a disk that does not boot, never one that
boots something else.

What proves the image: exactly one of
  --digest D           the file itself; D as sha256sum or sha512sum prints it
  --raw-digest D       what the file decodes to
  --sums URL           a file of checksums that lists it; who made that file is
                       proven with --signature and --key
  --signature URL --key K
                       a signature of the file itself, minisign's or OpenPGP's
  --index URL --index-digest D
                       an index by landfall-image pack, or a bmap: each chunk is
                       verified before it is written
  --url oci://HOST/REPOSITORY@sha256:...
                       the reference itself
  --digest-waived      nothing does

Which disk: FIELD=EXPRESSION, as often as needed; all must hold, and exactly one
disk must match. Or one path.
  fields       wwn serial byId model vendor size path hctl name rotational
               transport
               (landfall-agent facts -o json shows them)
  expressions  VALUE or =VALUE, !=VALUE, 'in A,B', 'glob PATTERN' with * and ?
               for size also < <= > >=, and B KB MB GB TB (powers of 1000) or
               KiB MiB GiB TiB (of 1024); rotational is true or false
  a path       /dev/nvme0n1, /dev/disk/by-id/..., or an existing regular file
               (truncate -s 8G disk.img makes one); files need no root

Examples:
  landfall-agent write --url https://images.example/debian-12.img.zst \\
      --digest sha256:5f0c... --disk serial=S4EVNF0M
  landfall-agent write --url debian-12.qcow2 --digest-waived --disk /dev/sdb
  landfall-agent write --url https://a.example/i.img.xz \\
      --mirror https://b.example/i.img.xz --sums https://a.example/SHA256SUMS \\
      --signature https://a.example/SHA256SUMS.gpg --key maker.asc \\
      --disk 'size=>=400GB' --disk rotational=false --keep data \\
      --verify read-back --yes --report -

Progress is a line on a terminal, and elsewhere one JSON object a line on
stderr. --report - leaves stdout to the report.

Exit codes:
  0    the disk holds the verified image
  1    it failed: what, why and what to do are on stderr; nothing unverified is
       bootable
  2    the command line is wrong; nothing was touched
  3    not confirmed; nothing was touched
  130  interrupted (SIGINT, SIGTERM; a second one ends it at once); nothing
       unverified is bootable";

const FAILED: u8 = 1;
const WRONG_USE: u8 = 2;
const NOT_CONFIRMED: u8 = 3;
/// The exit status that a shell reports for a program ended by SIGINT.
const INTERRUPTED: u8 = 130;

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(super) struct Arguments {
    /// Which disk: FIELD=EXPRESSION, may be repeated; or the path of a block device or of a regular file.
    #[arg(long = "disk", value_name = "FIELD=EXPR|PATH", required = true)]
    disk: Vec<String>,
    /// Label of a partition on the disk that is kept with its content; may be repeated.
    #[arg(long, value_name = "LABEL")]
    keep: Vec<String>,
    /// What is checked after the write.
    #[arg(long, value_enum, default_value_t = Verify::None)]
    verify: Verify,
    /// Overwrite the disk even if it carries the receipt of an earlier install.
    #[arg(long)]
    force: bool,
    /// Do not ask before the disk is overwritten.
    #[arg(long, short)]
    yes: bool,
    /// How progress is shown, on stderr.
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    progress: Mode,
    /// Write the result as JSON, to a file or to stdout (-).
    #[arg(long, value_name = "FILE|-")]
    report: Option<PathBuf>,
    // Last: its heading would also apply to all following options.
    #[command(flatten)]
    image: ImageArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Verify {
    /// No additional check.
    None,
    /// Everything is read back and compared before the disk becomes bootable.
    ReadBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// A bar on a terminal, JSON elsewhere.
    Auto,
    /// One line, redrawn.
    Bar,
    /// One JSON object a line, at most one a second and at each change of stage.
    Json,
    /// No progress.
    None,
}

/// Why nothing was written.
#[derive(Debug)]
enum Stop {
    /// The command line is wrong.
    Use(String),
    /// The write was not confirmed.
    NotConfirmed(String),
    /// It failed.
    Failed(Box<Problem>),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Failed(Box::new(problem))
    }
}

/// Writes the image and returns the exit status. Prints errors to stderr. Blocks; `runtime` only watches for signals.
pub(super) fn run(arguments: &Arguments, runtime: &tokio::runtime::Handle) -> u8 {
    let cancel = CancelFlag::new();
    let (text, code) = match write(arguments, runtime, &cancel) {
        Ok(()) => return 0,
        Err(Stop::Use(text)) => (format!("{text}\nsee landfall-agent write --help"), WRONG_USE),
        Err(Stop::NotConfirmed(text)) => (text, NOT_CONFIRMED),
        Err(Stop::Failed(problem)) => (problem.to_string(), if cancel.is_cancelled() { INTERRUPTED } else { FAILED }),
    };
    eprintln!("landfall-agent: {text}");
    code
}

fn write(arguments: &Arguments, runtime: &tokio::runtime::Handle, cancel: &CancelFlag) -> Result<(), Stop> {
    let image = arguments.image.image()?;
    let named = landfall_disk::shown_name(&image);
    let disk = target::choose(&arguments.disk)?;
    let device = landfall_disk::device_path(&disk);
    // Opened before anything is destroyed: an unwritable report must fail now.
    let mut summary = Summary::open(arguments.report.as_deref(), &device, &named)?;
    if !arguments.yes {
        target::confirm(&disk, &device, &arguments.keep)?;
    }
    let request = WriteRequest {
        disk,
        image,
        keep: arguments.keep.clone(),
        read_back: arguments.verify == Verify::ReadBack,
        authority: Authority {
            receipt: ReceiptIntent {
                machine_uid: Uuid::nil(),
                // No coordinator assigned this, so it is a workflow of its own.
                workflow_uid: Uuid::new_v4(),
                workflow_name: "by-hand".into(),
                generation: 0,
                action_index: 0,
            },
            // A receipt on the disk belongs to an install: overwriting it requires --force.
            expected: Vec::new(),
            person_authorised: true,
            force: arguments.force,
            selection: SelectionGuard::named(),
            lease: LeaseGuard::unlimited(),
            cancel: cancel.clone(),
        },
    };
    end_on_signal(runtime, cancel.clone());
    let show = Show::new(arguments.progress);
    let outcome = landfall_disk::write_image(&request, &show).map_err(|e| e.problem());
    show.end();
    match outcome {
        Ok(outcome) => summary.written(&outcome, request.read_back),
        Err(problem) => {
            summary.failed(&problem);
            Err(problem.into())
        }
    }
}

/// The first signal ends the write in an orderly way; a second one ends the process at once.
fn end_on_signal(runtime: &tokio::runtime::Handle, cancel: CancelFlag) {
    use tokio::signal::unix::{SignalKind, signal};
    // Not in the task, which may begin later than the write.
    let _inside = runtime.enter();
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Then signals have their default effect, and the disk is in a state as after a power cut.
        return;
    };
    runtime.spawn(async move {
        let mut next = async || {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        };
        next().await;
        cancel.cancel();
        next().await;
        std::process::exit(i32::from(INTERRUPTED));
    });
}
