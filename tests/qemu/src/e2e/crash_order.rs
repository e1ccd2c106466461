//! k: the write is recorded and replayed at many points; each disk state a power cut could leave is old, unbootable, or
//! verified-new.
//!
//! The rule in code is the firmwares' own: without 0x55AA in LBA 0 neither SeaBIOS nor OVMF boots the disk. So a state
//! that carries it must be the old disk, untouched, or the new image, whole. A sample of the states is really booted.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use landfall_api::ActionState;
use landfall_lab::blklog::{Entry, Recording};
use landfall_lab::{DiskBus, DiskImage, Firmware, Machine};

use super::Context;
use super::scene::{BOOTED, DISK_BYTES, INSTALL, Scene};

const SECTOR: u64 = 512;
/// LBA 0 to 33: protective MBR, header and entries of a GPT.
const TABLE_SECTORS: u64 = 34;
/// Where the receipt lies; writing it changes neither the old disk nor the new.
const RECEIPT: std::ops::Range<u64> = (1 << 20) - 4096..1 << 20;
/// Choices of kept writes tried between any two flushes, besides none and all.
const CHOICES: u64 = 24;
/// How a firmware says that there is nothing to boot.
const NOTHING_TO_BOOT: [&str; 4] =
    ["No bootable device", "No bootable option or device was found", "Shell>", "UEFI Interactive Shell"];

pub(super) async fn replayed(context: Context) -> anyhow::Result<()> {
    let dir = context.dir.clone();
    let scene = Scene::start(context).await?;
    let image = dir.join("image.raw");
    decode(&scene.image().path, &image)?;
    let mut machine = scene.described(Machine::builder("m1").disk(DISK_BYTES, DiskBus::Virtio).recorded()).await?;
    old_disk(machine.disk(0), &image)?;
    let old = dir.join("old.raw");
    copy(machine.disk(0).path(), &old)?;

    scene.template(&scene.image_url()).await?;
    let workflow = scene.provision(&machine).await?;
    machine.power_on().await?;
    let written = |w: &landfall_api::Workflow| {
        let first = w.status.as_ref().and_then(|s| s.actions.first());
        first.is_some_and(|action| matches!(action.state, ActionState::Succeeded | ActionState::Failed))
    };
    scene.coordinator.api().wait_workflow(&workflow, "image written", scene.limit(INSTALL), written).await?;
    machine.power_off().await?;

    let judge = Judge {
        old: File::open(&old)?,
        image: File::open(&image)?,
        recording: Recording::open(&machine.recording(0))?,
    };
    let judged = judge.every_state(&dir)?;
    println!(
        "     k: {} states judged: {} old, {} unbootable, {} new",
        judged.total(),
        judged.old,
        judged.unbootable,
        judged.new
    );
    ensure!(judged.old > 0 && judged.unbootable > 0 && judged.new > 0, "the recording does not hold a whole install");

    // Unknown to the coordinator, so nothing but the disk can boot them.
    for firmware in Firmware::ALL {
        for (state, boots) in [("midway", false), ("committed", true)] {
            let builder = Machine::builder(&format!("{state}-{firmware}")).firmware(firmware);
            let mut sample =
                builder.disk(DISK_BYTES, DiskBus::Virtio).build(&scene.network, &dir, scene.context.accel)?;
            copy(&dir.join(format!("{state}.raw")), sample.disk(0).path())?;
            let power_on = sample.power_on().await?;
            if boots {
                sample.wait_serial(power_on, BOOTED, INSTALL).await?;
            } else {
                let nothing = |line: &str| NOTHING_TO_BOOT.iter().any(|words| line.contains(words));
                let what = "the firmware's word that there is nothing to boot";
                sample.serial().wait_until(power_on, what, scene.limit(INSTALL), nothing).await?;
                ensure!(!sample.serial().contains_since(power_on, BOOTED), "{firmware} booted a disk in mid-write");
            }
            sample.power_cut().await;
        }
    }
    Ok(())
}

/// A disk with another system: the image's own boot sectors and tables, so that firmware would boot it, over a body that
/// is not the image's.
fn old_disk(disk: &DiskImage, image: &Path) -> anyhow::Result<()> {
    let image = File::open(image)?;
    let mut head = vec![0; 1 << 20];
    image.read_exact_at(&mut head, 0)?;
    disk.write(0, &head)?;
    let body = vec![0xa5; 1 << 20];
    for mib in 1..image.metadata()?.len() >> 20 {
        disk.write(mib << 20, &body)?;
    }
    let mut backup_header = head[512..1024].to_vec();
    backup_header.resize(512, 0);
    Ok(disk.write(disk.size()? - SECTOR, &backup_header)?)
}

#[derive(Debug, Default)]
struct Judged {
    old: u32,
    unbootable: u32,
    new: u32,
}

impl Judged {
    const fn total(&self) -> u32 {
        self.old + self.unbootable + self.new
    }
}

struct Judge {
    old: File,
    image: File,
    recording: Recording,
}

impl Judge {
    /// Walks the recording flush by flush up to the commit. Leaves `midway.raw` (all that was flushed before the commit)
    /// and `committed.raw` in `dir`.
    fn every_state(&self, dir: &Path) -> anyhow::Result<Judged> {
        let entries = self.recording.entries();
        let signs = |e: &Entry| anyhow::Ok(covers_lba0(e) && has_signature(&self.recording.data(e)?));
        let mut commit = None;
        for (i, entry) in entries.iter().enumerate() {
            if signs(entry)? {
                commit = Some(i);
            }
        }
        let commit = commit.context("LBA 0 was never committed")?;

        let mut judged = Judged::default();
        let base_path = dir.join("base.raw");
        copy_file(&self.old, &base_path)?;
        let base = File::options().read(true).write(true).open(&base_path)?;
        let mut durable_is_old = true;
        for epoch in self.recording.epochs() {
            let window = &entries[epoch.clone()];
            if epoch.contains(&commit) {
                copy_file(&base, &dir.join("midway.raw"))?;
            }
            for choice in choices(window.len()) {
                let kept: Vec<&Entry> = window.iter().zip(&choice).filter_map(|(e, keep)| keep.then_some(e)).collect();
                self.judge(&base, &kept, durable_is_old, dir, &mut judged)
                    .with_context(|| format!("writes {epoch:?}, kept {}", shown(&choice)))?;
            }
            for entry in window {
                durable_is_old = durable_is_old && self.leaves_old(entry)?;
                self.recording.apply(entry, &base)?;
            }
            if epoch.contains(&commit) {
                copy_file(&base, &dir.join("committed.raw"))?;
                break;
            }
        }
        std::fs::remove_file(&base_path)?;
        Ok(judged)
    }

    /// One state: what is durable, and these writes on top.
    fn judge(
        &self,
        base: &File,
        kept: &[&Entry],
        durable_is_old: bool,
        dir: &Path,
        judged: &mut Judged,
    ) -> anyhow::Result<()> {
        let mut head = vec![0; 512];
        base.read_exact_at(&mut head, 0)?;
        for entry in kept.iter().filter(|entry| covers_lba0(entry)) {
            head.copy_from_slice(&self.recording.data(entry)?[..512]);
        }
        if !has_signature(&head) {
            judged.unbootable += 1;
            return Ok(());
        }
        let mut is_old = durable_is_old;
        for entry in kept {
            is_old = is_old && self.leaves_old(entry)?;
        }
        if is_old {
            judged.old += 1;
            return Ok(());
        }
        let state_path = dir.join("state.raw");
        copy_file(base, &state_path)?;
        let state = File::options().read(true).write(true).open(&state_path)?;
        for entry in kept {
            self.recording.apply(entry, &state)?;
        }
        self.require_new(&state)?;
        std::fs::remove_file(&state_path)?;
        judged.new += 1;
        Ok(())
    }

    /// Whether a write leaves the old disk as it was (the receipt's place apart).
    fn leaves_old(&self, entry: &Entry) -> anyhow::Result<bool> {
        if entry.length == 0 || (entry.offset >= RECEIPT.start && entry.offset + entry.length <= RECEIPT.end) {
            return Ok(true);
        }
        let data = self.recording.data(entry)?;
        let mut before = vec![0; data.len()];
        self.old.read_exact_at(&mut before, entry.offset)?;
        Ok(before == data)
    }

    /// Requires the whole image, and a table at the disk's true end.
    fn require_new(&self, state: &File) -> anyhow::Result<()> {
        let length = self.image.metadata()?.len();
        let body = TABLE_SECTORS * SECTOR..length - (TABLE_SECTORS - 1) * SECTOR;
        let (mut ours, mut theirs) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        let mut at = body.start;
        while at < body.end {
            // Stop at the receipt's place, and go on behind it.
            let stop = if at < RECEIPT.start { RECEIPT.start.min(body.end) } else { body.end };
            let n = usize::try_from((stop - at).min(1 << 20))?;
            state.read_exact_at(&mut ours[..n], at)?;
            self.image.read_exact_at(&mut theirs[..n], at)?;
            if ours[..n] != theirs[..n] {
                let off = ours[..n].iter().zip(&theirs[..n]).position(|(a, b)| a != b).unwrap_or(0);
                bail!("bootable, but neither old nor new: it differs from the image at byte {}", at + off as u64);
            }
            at += n as u64;
            if at == RECEIPT.start {
                at = RECEIPT.end;
            }
        }
        let mut signature = [0; 8];
        state.read_exact_at(&mut signature, SECTOR)?;
        ensure!(signature == *b"EFI PART", "bootable, but without a primary table");
        state.read_exact_at(&mut signature, state.metadata()?.len() - SECTOR)?;
        ensure!(signature == *b"EFI PART", "bootable, but without a table at the disk's end");
        Ok(())
    }
}

const fn covers_lba0(entry: &Entry) -> bool {
    entry.offset == 0 && entry.length >= SECTOR
}

fn has_signature(head: &[u8]) -> bool {
    head[510..512] == [0x55, 0xaa]
}

/// Which writes of a window a volatile cache may have kept: none, all, each alone at the window's edges, and a spread of
/// others, the same in every run.
fn choices(n: usize) -> Vec<Vec<bool>> {
    let mut all = vec![vec![false; n], vec![true; n]];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ n as u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..CHOICES.min(1 << n.min(10)) {
        all.push((0..n).map(|_| next() & 1 == 1).collect());
    }
    for i in [0, n.saturating_sub(1)] {
        if i < n {
            let mut only = vec![false; n];
            only[i] = true;
            all.push(only.clone());
            all.push(only.iter().map(|keep| !keep).collect());
        }
    }
    all
}

fn shown(choice: &[bool]) -> String {
    choice.iter().take(200).map(|keep| if *keep { '1' } else { '0' }).collect()
}

fn decode(stored: &Path, raw: &Path) -> anyhow::Result<()> {
    let mut out = File::create(raw)?;
    let mut input = File::open(stored)?;
    let mut magic = [0; 4];
    input.read_exact(&mut magic)?;
    let input = File::open(stored)?;
    if magic == [0x28, 0xb5, 0x2f, 0xfd] {
        std::io::copy(&mut zstd::Decoder::new(input)?, &mut out)?;
    } else {
        std::io::copy(&mut { input }, &mut out)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    copy_file(&File::open(from)?, to)
}

/// Copies a disk and leaves its holes holes.
fn copy_file(from: &File, to: &Path) -> anyhow::Result<()> {
    let out = File::create(to)?;
    let length = from.metadata()?.len();
    out.set_len(length)?;
    let mut at = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Some(data) = next_data(from, at)? {
        at = data & !0xfff;
        let n = usize::try_from((length - at).min(buffer.len() as u64))?;
        from.read_exact_at(&mut buffer[..n], at)?;
        out.write_all_at(&buffer[..n], at)?;
        at += n as u64;
        if at >= length {
            break;
        }
    }
    Ok(())
}

/// Where the next bytes that are not a hole begin.
fn next_data(file: &File, from: u64) -> anyhow::Result<Option<u64>> {
    match nix::unistd::lseek(file, i64::try_from(from)?, nix::unistd::Whence::SeekData) {
        Ok(at) => Ok(Some(u64::try_from(at)?)),
        Err(nix::errno::Errno::ENXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
