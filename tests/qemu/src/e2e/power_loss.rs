//! r: the coordinator's own computer loses power, and everything it had acknowledged is on its disk.
//!
//! The coordinator runs in a machine of the lab, on a disk whose every write and flush is recorded. Agents report and
//! programs apply documents over the network, and each acknowledgement is noted with how long the recording was when it
//! came: the flush it stands on is in the recording by then. So any disk rebuilt from that much of the recording, with
//! whichever unflushed writes the device happened to keep, must hold what was acknowledged. Each is mounted, and a
//! coordinator started on it says what it holds.

mod acks;
mod agent;
mod cuts;
mod guest;
mod judge;
mod load;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_lab::Mark;
use landfall_lab::blklog::Recording;

use self::acks::Acked;
use self::cuts::Cuts;
use self::judge::Judge;
use self::load::{Load, Site};
use super::Context;
use super::raw::copy;
use super::scene::{BOOT, Scene};

/// Acknowledgements before the power goes; most are of several events.
const ACKS: usize = 1500;
/// From the first session to that many, under KVM.
const LOAD: Duration = Duration::from_secs(120);
/// Points at which the power is cut; half of them where an acknowledgement begins to count, half anywhere.
const CUTS: usize = 50;

pub(super) async fn nothing_acknowledged_is_lost(context: Context) -> anyhow::Result<()> {
    let seed = seed()?;
    println!("     r: seed {seed}");
    let (dir, artefacts) = (context.dir.clone(), context.artefacts.clone());
    // The requests are made here, where they are fast; then the data directory moves onto the machine's disk.
    let mut scene = Scene::start(context).await?;
    let token = load::prepare(&scene).await?;
    let boots = load::boots(&scene).await?;
    ensure!(scene.coordinator.stop().await, "the coordinator did not drain on SIGTERM");
    let data = scene.coordinator.config().with_file_name("coordinator");
    let mut machine = guest::build(&scene, &data)?;
    let before = dir.join("before.raw");
    copy(machine.disk(0).path(), &before)?;

    let power_on = machine.power_on().await?;
    guest::ready(&machine, power_on, scene.limit(BOOT)).await?;
    let site = Site { recording: machine.recording(0), seed, token, boots };
    let mut load = Load::start(scene.network.namespace().name(), site)?;
    let limit = scene.limit(LOAD);
    let enough = tokio::time::timeout(limit, load.until(ACKS)).await;
    enough.with_context(|| format!("{ACKS} acknowledgements took longer than {limit:?}"))??;
    // The guest gets no notice, and the recording is complete up to its last flush.
    machine.power_off().await?;
    let acks = load.stop().await;
    let wrong = [guest::PANIC, "Kernel panic", "I/O error", "EXT4-fs error"];
    if let Some(word) = wrong.iter().find(|word| machine.serial().contains_since(Mark::default(), word)) {
        anyhow::bail!("the coordinator's computer says \"{word}\"; see {}", machine.serial().path().display());
    }

    let recording = Recording::open(&machine.recording(0))?;
    let judge = Judge::new(&scene.network, &artefacts, &dir)?;
    let mut cuts = Cuts::new(&recording, &before, &dir.join("cut.raw"), seed)?;
    let (mut states, mut checks) = (0u64, 0u64);
    for cut in cuts.choose(&acks, CUTS) {
        let position = cuts.position(cut);
        let due: Vec<&Acked> = acks.iter().filter(|ack| ack.at <= position).collect();
        for kept in cuts.kinds(cut) {
            let disk = cuts.rebuild(cut, *kept)?;
            checks += judge.holds(&disk, &due).await.with_context(|| {
                let all = recording.entries().len();
                format!("power cut after write {cut} of {all} (byte {position} of the recording), {kept}, seed {seed}")
            })?;
            states += 1;
        }
    }
    println!(
        "     r: {} acknowledgements, {} writes and {} flushes recorded; {CUTS} power cuts, {states} disks judged, \
         {checks} acknowledgements looked up on them",
        acks.len(),
        recording.entries().iter().filter(|entry| entry.length > 0).count(),
        recording.entries().iter().filter(|entry| entry.flush).count(),
    );
    Ok(())
}

/// Chance from a seed: xorshift64.
struct Dice(u64);

impl Dice {
    /// Any seed will do.
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn throw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        // Truncation is as good as any other choice.
        self.throw() as usize % limit
    }
}

/// The same one each time, unless `LANDFALL_POWER_SEED` gives another.
fn seed() -> anyhow::Result<u64> {
    match std::env::var("LANDFALL_POWER_SEED") {
        // sudo hands on an empty one where there is none.
        Ok(text) if !text.is_empty() => {
            text.parse().with_context(|| format!("LANDFALL_POWER_SEED=\"{text}\" is not a number"))
        }
        _ => Ok(1),
    }
}
