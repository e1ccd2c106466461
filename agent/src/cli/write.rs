//! `write`: an image onto a disk, by a person at the machine, without a coordinator.

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write as _},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use landfall_api::{Digest, DiskReceipt, DiskSelector, Progress};
use landfall_disk::{
    Access, CancelFlag, Disk, Format, Image, LeaseGuard, LogLevel, Observer, Proof, ReceiptIntent, WriteRequest,
};
use uuid::Uuid;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where the image is: http:// or https://.
    #[arg(long)]
    url: String,
    /// What sha256sum prints for the stored file, as sha256:…
    #[arg(long, required_unless_present = "digest_waived")]
    digest: Option<Digest>,
    /// Write the image although nothing proves it.
    #[arg(long, conflicts_with = "digest")]
    digest_waived: bool,
    /// Which disk, as FIELD=EXPRESSION; may be repeated. Exactly one disk must match.
    #[arg(long = "disk", value_parser = field, required = true)]
    disk: Vec<(String, String)>,
    /// raw or zstd. Default: by content.
    #[arg(long)]
    format: Option<Format>,
    /// Overwrite whatever receipt of an earlier install is on the disk.
    #[arg(long)]
    force: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

fn field(text: &str) -> Result<(String, String), String> {
    let (field, expression) =
        text.split_once('=').ok_or("write FIELD=EXPRESSION, such as serial=S3ABC or size=<=1TB")?;
    Ok((field.to_owned(), expression.to_owned()))
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let fields: BTreeMap<_, _> =
        arguments.disk.iter().map(|(f, e)| (f.clone(), serde_json::Value::from(e.as_str()))).collect();
    if fields.len() != arguments.disk.len() {
        bail!("--disk names a field twice; join the conditions into one expression");
    }
    let disks = landfall_disk::list_disks()?;
    let disk = Disk::select(&DiskSelector(fields), &disks).map_err(|e| anyhow::Error::new(e.problem()))?.clone();
    let device = landfall_disk::device_path(&disk);
    if !arguments.yes {
        confirm(&format!(
            "Everything on {} ({} {}, {} MiB) is lost. Type yes to go on: ",
            device.display(),
            disk.id.model,
            disk.id.serial,
            disk.id.size_bytes >> 20
        ))?;
    }
    // No coordinator handed this out, so the run is one of its own.
    let run = Uuid::new_v4();
    let request = WriteRequest {
        disk,
        image: Image {
            urls: vec![arguments.url.clone()],
            proof: arguments.digest.map_or(Proof::Waived, Proof::Stored),
            format: arguments.format,
            access: Access::default(),
        },
        keep: Vec::new(),
        read_back: false,
        receipt: ReceiptIntent {
            machine_uid: Uuid::nil(),
            workflow_uid: run,
            workflow_name: "by-hand".into(),
            generation: 0,
            action_index: 0,
        },
        // A receipt on the disk is somebody's install: overwriting it takes --force.
        expected: Vec::new(),
        person_authorised: true,
        force: arguments.force,
        lease: LeaseGuard::unlimited(),
        cancel: CancelFlag::new(),
    };
    let terminal = Terminal::default();
    let outcome = landfall_disk::write_image(&request, &terminal).map_err(|e| anyhow::Error::new(e.problem()));
    terminal.end_line();
    let outcome = outcome?;
    println!(
        "{}: {} stored bytes, {} raw, {} written, in {:.1} s",
        device.display(),
        outcome.stored_bytes,
        outcome.raw_bytes,
        outcome.written_bytes,
        outcome.elapsed.as_secs_f32()
    );
    if let Some(why) = outcome.no_receipt {
        println!("no receipt on the disk: {why}");
    }
    Ok(0)
}

fn confirm(question: &str) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        bail!("nobody to ask whether the disk may be overwritten; add --yes");
    }
    print!("{question}");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    if answer.trim() != "yes" {
        bail!("not confirmed; nothing was written");
    }
    Ok(())
}

/// Progress on one line of a terminal, or as lines of a log.
#[derive(Default)]
struct Terminal(Mutex<Option<Instant>>);

impl Terminal {
    fn end_line(&self) {
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
}

impl Observer for Terminal {
    fn progress(&self, progress: &Progress) {
        let terminal = std::io::stderr().is_terminal();
        let interval = Duration::from_millis(if terminal { 250 } else { 5000 });
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|at| at.elapsed() < interval) {
            return;
        }
        *last = Some(Instant::now());
        let total =
            if progress.stored_total > 0 { format!(" of {}", progress.stored_total >> 20) } else { String::new() };
        let line = format!(
            "{:8} {}{total} MiB in, {} MiB out, {} MiB/s",
            progress.stage,
            progress.stored_bytes >> 20,
            progress.raw_bytes >> 20,
            progress.bytes_per_second >> 20
        );
        if terminal {
            eprint!("\r{line}\x1b[K");
        } else {
            eprintln!("{line}");
        }
    }

    fn receipt_written(&self, receipt: &DiskReceipt) {
        tracing::debug!("receipt {:?} on {}", receipt.receipt.state, receipt.disk.name);
    }

    fn log(&self, level: LogLevel, message: &str) {
        match level {
            LogLevel::Info => tracing::info!("{message}"),
            LogLevel::Warn => tracing::warn!("{message}"),
        }
    }
}
