//! SIGKILL at random instants of a write to a loop device, each time started again: never bootable and unverified in
//! between, verified at the end, and with an index nothing is fetched that the disk held already. Killing a process says
//! nothing about flushes: that is the crash tests' business. Skipped, loudly, where there are no loop devices.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::faults::Faulty;
use crate::common::formats::{Kind, Stored};
use crate::common::replay::Random;
use crate::common::request::persons;
use crate::common::tools::Loop;
use crate::common::watch::Watch;
use crate::common::{MIB, digest, formats, gpt_image, noise, packed};
use landfall_api::{IndexSpec, ReceiptState};
use landfall_disk::judge::{Findings, State, judge};
use landfall_disk::{
    BlockDevice as _, Index, Proof, ReadAt as _, RealDevice, WriteRequest, disk_at, image_at, read_mark, write_image,
};

const DISK: u64 = 8 * MIB;
/// In all.
const KILLS: u32 = 200;
/// Of one image on one disk, before it may end.
const KILLS_OF_ONE: u32 = 10;
/// The child's instructions: device, URL, proof, digest.
const CHILD: &str = "LANDFALL_KILL_CHILD";
/// Another seed than 1: `scripts/test --soak` chooses one, and the test prints it.
const SEED: &str = "LANDFALL_KILL_SEED";

/// The process that is killed: this very test binary, started with an environment variable that makes it run this test
/// alone. Without the variable the test does nothing.
#[test]
fn child() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let words: Vec<_> = arguments.split(' ').collect();
    let [device, url, proof, digest] = words[..] else { panic!("{arguments}") };
    let digest = digest.parse().unwrap();
    let proof = match proof {
        "raw" => Proof::Raw(digest),
        "stored" => Proof::Stored(digest),
        index => Proof::Index(IndexSpec { url: index.into(), digest }),
    };
    let request = WriteRequest {
        disk: disk_at(Path::new(device)).unwrap(),
        image: image_at(url, proof),
        keep: Vec::new(),
        read_back: false,
        authority: persons(2),
    };
    // It says each step on its standard output, a line each.
    let aloud = Watch {
        progress: &|progress| println!("STEP {}", progress.stage),
        receipt: &|receipt| println!("STEP receipt {:?}", receipt.receipt.state),
        log: &|message| println!("STEP log {message}"),
        ..Watch::default()
    };
    write_image(&request, &aloud).unwrap();
    println!("WRITTEN");
}

fn start(device: &Path, server: &Faulty, kind: Kind, proven: &[u8]) -> Child {
    let proof = match kind {
        Kind::Index => server.url("/index"),
        Kind::Raw => "raw".into(),
        Kind::Sha256 | Kind::Sha512 => "stored".into(),
    };
    let arguments = format!("{} {} {proof} {}", device.display(), server.url("/image"), digest(proven));
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture"])
        .env(CHILD, arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// One image that goes onto one loop device again and again.
struct Bench {
    sector: u32,
    raw: Vec<u8>,
    /// A disk that holds it.
    new: Vec<u8>,
    device: Loop,
    _file: tempfile::NamedTempFile,
    random: Random,
}

impl Bench {
    fn new(sector: u32, seed: u64) -> Option<Self> {
        let s = u64::from(sector);
        let parts = [(MIB / s, 3 * MIB / s - 1), (3 * MIB / s, 6 * MIB / s - 1)];
        let raw = gpt_image(7 * MIB, sector, &parts, 5);
        // In memory where that can be: a killed process takes no cache along, so nothing is lost but minutes of flushing.
        let memory = tempfile::Builder::new().tempfile_in("/dev/shm");
        let file = memory.or_else(|_| tempfile::NamedTempFile::new()).unwrap();
        file.as_file().set_len(DISK).unwrap();
        let device = Loop::over(file.path(), sector)?;
        // Where the file system cannot, it goes through the cache, which a killed process does not take along either.
        let direct = Command::new("losetup").arg("--direct-io=on").arg(&device.0).status();
        if !direct.is_ok_and(|status| status.success()) {
            eprintln!("{} has no direct I/O", device.0.display());
        }
        Some(Self { sector, raw, new: Vec::new(), device, _file: file, random: Random(seed | 1) })
    }

    fn read(&self) -> Vec<u8> {
        let device = RealDevice::open_read_only(&self.device.0).unwrap();
        let mut bytes = vec![0; DISK as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    fn write(&self, content: &[u8]) {
        let device = RealDevice::open(&self.device.0).unwrap();
        device.write_at(0, content).unwrap();
        device.flush().unwrap();
    }

    /// Kills one child at a random instant: after so many bytes, or after a step it reported; and a little later.
    /// False: it ended earlier.
    fn kill(&mut self, server: &Faulty, stored: &Stored, kind: Kind) -> bool {
        let by_bytes = !self.random.next().is_multiple_of(3);
        let bytes = self.random.next() % stored.image.len() as u64;
        let steps = 1 + self.random.next() % 12;
        let delay = Duration::from_micros(self.random.next() % 15_000);
        server.budget(by_bytes.then_some(bytes));
        let mut child = start(&self.device.0, server, kind, self.proven(stored, kind));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        if by_bytes {
            server.wait_served(bytes, || child.try_wait().unwrap().is_some());
        } else {
            lines.by_ref().filter(|line| line.contains("STEP ")).nth(steps as usize - 1);
        }
        thread::sleep(delay);
        // It may have ended by itself.
        let _ = child.kill();
        let status = child.wait().unwrap();
        if let Some(code) = status.code() {
            assert_eq!(code, 0, "the child failed by itself");
        }
        !status.success()
    }

    fn proven<'a>(&'a self, stored: &'a Stored, kind: Kind) -> &'a [u8] {
        match (kind, &stored.index) {
            (Kind::Index, Some(index)) => index,
            (Kind::Raw, _) => &self.raw,
            _ => &stored.image,
        }
    }

    /// A write that is not killed; returns how many bytes of the image were fetched.
    fn finish(&self, server: &Faulty, stored: &Stored, kind: Kind) -> u64 {
        server.budget(None);
        let child = start(&self.device.0, server, kind, self.proven(stored, kind));
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("WRITTEN"), "{said}");
        server.served()
    }

    fn assert_installed(&self) {
        let disk = self.read();
        let found = Findings::of(&disk, self.sector).unwrap();
        assert!(found.bios_boots() && found.uefi_boots() && found.primary.is_some() && found.backup.is_some());
        let parts = MIB as usize..6 * MIB as usize;
        assert!(disk[parts.clone()] == self.raw[parts], "the partitions differ");
        assert_eq!(read_mark(&disk).unwrap().unwrap().receipt.state, ReceiptState::Done);
    }

    /// Kills this image's write some times over this old disk, then lets it end; how many kills there were.
    fn round(&mut self, old: &[u8], stored: &Stored, kind: Kind, most: u32) -> u32 {
        let files = vec![("/image", stored.image.clone()), ("/index", stored.index.clone().unwrap_or_default())];
        let server = Faulty::start(files);
        self.write(old);
        let mut kills = 0;
        for _ in 0..2 * KILLS_OF_ONE {
            if kills == most {
                break;
            }
            let killed = self.kill(&server, stored, kind);
            kills += u32::from(killed);
            let disk = self.read();
            let state = judge(&disk, &old.to_vec(), &self.new, self.sector).unwrap();
            let done = read_mark(&disk).unwrap().is_some_and(|mark| mark.receipt.state == ReceiptState::Done);
            match (state, killed) {
                // Between its table and LBA 0 the new system is whole, but started by no firmware that is known.
                (State::Unbootable | State::Old, true) | (State::VerifiedNew, true) if !done => {}
                (State::VerifiedNew, _) => {
                    self.assert_installed();
                    // Begun anew, so that the next one has something to do.
                    self.write(old);
                }
                (state, _) => panic!("{} killed ({killed}): the disk is {state}", stored.name),
            }
        }
        let remaining = stored.index.as_ref().and_then(|index| self.remaining(index));
        let fetched = self.finish(&server, stored, kind);
        self.assert_installed();
        if let Some(remaining) = remaining {
            assert!(fetched <= remaining + remaining / 20, "{fetched} bytes were fetched and {remaining} were missing");
        }
        kills
    }

    /// Stored bytes of the chunks that the disk does not hold; `None`: they do not stand alone.
    fn remaining(&self, index: &[u8]) -> Option<u64> {
        let index = Index::parse(index).unwrap();
        let disk = self.read();
        let same = |range: &std::ops::Range<u64>| {
            let range = range.start as usize..range.end as usize;
            disk[range.clone()] == self.raw[range]
        };
        let missing = index.chunks.iter().filter(|chunk| chunk.is_data() && !same(&chunk.raw));
        (index.stored_bytes > 0).then(|| missing.map(landfall_disk::Chunk::stored_bytes).sum())
    }
}

fn spend(sector: u32, kills: u32, seed: u64) {
    let Some(mut bench) = Bench::new(sector, seed) else { return };
    let mut all = formats::all(&bench.raw);
    let (image, index) = packed(&bench.raw, MIB as usize);
    let packed = || Stored { name: "packed", image: image.clone(), index: Some(index.to_json().unwrap().into_bytes()) };
    all.retain(|stored| ["raw", "zstd", "gzip", "qcow2", "vmdk"].contains(&stored.name));
    // Every other round is one with the index.
    let all: Vec<_> = all.into_iter().flat_map(|stored| [packed(), stored]).collect();
    let s = u64::from(sector);
    let olds = [noise(DISK, 8), gpt_image(DISK, sector, &[(MIB / s, 4 * MIB / s - 1), (4 * MIB / s, 7 * MIB / s)], 9)];
    // What the judge compares with: a write that was not killed.
    let server = Faulty::start(vec![("/image", all[1].image.clone())]);
    bench.finish(&server, &all[1], Kind::Sha256);
    bench.assert_installed();
    bench.new = bench.read();
    let mut spent = 0;
    for (stored, old) in all.iter().cycle().zip(olds.iter().cycle().flat_map(|old| [old, old])).take(200) {
        if spent == kills {
            break;
        }
        let kinds = stored.kinds();
        let kind = kinds[bench.random.next() as usize % kinds.len()];
        // The child gets digests of one kind only.
        let kind = if kind == Kind::Sha512 { Kind::Sha256 } else { kind };
        spent += bench.round(old, stored, kind, KILLS_OF_ONE.min(kills - spent));
    }
    assert_eq!(spent, kills, "the children ended too soon");
    println!("{spent} kills with {sector}-byte sectors");
}

#[test]
fn a_killed_and_restarted_write_never_boots_unverified() {
    let seed = std::env::var(SEED).map_or(1, |seed| seed.parse().unwrap());
    println!("{SEED}={seed}");
    thread::scope(|scope| {
        for sector in [512, 4096] {
            scope.spawn(move || spend(sector, KILLS / 2, seed ^ u64::from(sector)));
        }
    });
}
