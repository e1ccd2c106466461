//! What the scripts promise, tried with programs of the system replaced: `scripts/setup` removes nothing, and a part of
//! `scripts/test` that fails stops no other.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use landfall_house::tree;

/// What the scripts themselves are made of.
const REAL: [&str; 26] = [
    "basename", "bash", "cat", "chmod", "cut", "date", "dirname", "du", "env", "find", "flock", "grep", "head", "ls",
    "mkdir", "mktemp", "mv", "rm", "sed", "sha256sum", "sleep", "sort", "tail", "tee", "touch", "tr",
];

/// A folder of programs that stands for the system's, and a cache.
struct System {
    dir: tempfile::TempDir,
}

impl System {
    fn new() -> Self {
        let system = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(system.bin()).unwrap();
        for name in REAL.into_iter().chain(["awk", "uname"]) {
            let real = ["/usr/bin", "/bin"].iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
            symlink(real.unwrap_or_else(|| panic!("no {name} on this machine")), system.bin().join(name)).unwrap();
        }
        for name in ["cargo", "cc", "rustc", "dpkg", "apt-cache", "systemctl"] {
            system.program(name, "exit 0");
        }
        system.program("id", "echo 0");
        system.program("df", "echo 100G");
        system
    }

    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn program(&self, name: &str, body: &str) {
        let path = self.bin().join(name);
        let log = self.dir.path().join("called").display().to_string();
        fs::write(&path, format!("#!/bin/bash\necho \"{name} $*\" >>{log}\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, script: &str) -> Output {
        Command::new(tree::root().join("scripts").join(script))
            .env_clear()
            .env("PATH", self.bin())
            .env("HOME", self.dir.path())
            .env("LANDFALL_CACHE", self.dir.path().join("cache"))
            .env("CARGO_TARGET_DIR", self.dir.path().join("cache/target"))
            // What scripts/sweep looks through.
            .env("TMPDIR", self.dir.path())
            .output()
            .unwrap()
    }

    /// The calls of a program, in order.
    fn calls(&self, name: &str) -> Vec<String> {
        let called = fs::read_to_string(self.dir.path().join("called")).unwrap_or_default();
        called.lines().filter(|line| line.starts_with(&format!("{name} "))).map(str::to_owned).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn setup_names_a_conflict_and_installs_nothing() {
    let system = System::new();
    system.program("dpkg-query", "exit 1");
    system.program("apt-get", "case \"$*\" in *-s*mtools*) echo 'Remv qemu-utils [1:9.2]';; esac");
    let output = system.run("setup");
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("mtools conflicts") && said.contains("remove or downgrade qemu-utils"), "{said}");
    let real: Vec<_> = system
        .calls("apt-get")
        .into_iter()
        .filter(|call| call.contains(" install ") && !call.contains(" -s "))
        .collect();
    assert!(real.is_empty(), "{real:?}");
}

#[test]
fn setup_never_lets_apt_remove_a_package() {
    let system = System::new();
    system.program("dpkg-query", "exit 1");
    system.program("apt-get", "exit 0");
    let output = system.run("setup");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let calls = system.calls("apt-get");
    let real: Vec<_> = calls.iter().filter(|call| call.contains(" install ") && !call.contains(" -s ")).collect();
    assert_eq!(real.len(), 1, "{calls:?}");
    assert!(real[0].contains("--no-remove") && !real[0].contains("downgrade"), "{calls:?}");
}

#[test]
fn setup_accepts_a_program_from_another_package() {
    let system = System::new();
    system.program("dpkg-query", "exit 1");
    system.program("apt-get", "exit 0");
    system.program("qemu-img", "exit 0");
    let output = system.run("setup");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let calls = system.calls("apt-get").join("\n");
    assert!(calls.contains("minisign") && !calls.contains("qemu-utils"), "{calls}");
}

#[test]
fn a_failed_part_stops_no_other() {
    let system = System::new();
    system.program("dpkg-query", "echo installed");
    system.program("cargo", "case \"$*\" in 'fmt --all --check') exit 1;; esac");
    let output = system.run("test");
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let row = |part: &str, result: &str| {
        let rows: Vec<_> = said.lines().filter(|line| line.starts_with(part) && line.contains(result)).collect();
        assert_eq!(rows.len(), 1, "{part} {result}: {said}");
    };
    for part in ["packages ", "clippy ", "documentation ", "house ", "dependencies ", "tests ", "programs "] {
        row(part, " ok ");
    }
    row("format ", " FAILED ");
    row("end-to-end ", " NOT RUN ");
    let verdict = said.lines().last().unwrap_or_default();
    assert!(verdict.starts_with("scripts/test: FAILED: format, "), "{verdict}");
}

#[test]
fn nothing_begins_on_a_full_disk() {
    let system = System::new();
    system.program("dpkg-query", "echo installed");
    system.program("df", "echo 14G");
    let output = system.run("test");
    let said = text(&output.stdout);
    assert!(!output.status.success() && said.contains("14 GiB are free"), "{said}");
    assert!(system.calls("cargo").iter().all(|call| !call.contains("clippy")), "{said}");
    assert_eq!(said.lines().last(), Some("scripts/test: FAILED: sweep, the rest"), "{said}");
}

#[test]
fn what_older_runs_left_is_swept() {
    let system = System::new();
    let cache = system.dir.path().join("cache/target");
    let (gone, here, old) = (cache.join("gone"), cache.join("here"), system.dir.path().join("landfall-lab.Ab12"));
    for folder in [&gone, &here, &old] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(gone.join("checkout"), "/nowhere\n").unwrap();
    fs::write(here.join("checkout"), format!("{}\n", tree::root().display())).unwrap();
    let two_days = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 86_400);
    fs::File::open(&old).unwrap().set_modified(two_days).unwrap();
    let output = system.run("sweep");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(!gone.exists() && here.exists() && !old.exists(), "{said}");
    assert!(said.contains("of /nowhere") && said.contains("sweep: 2 removed, 100 GiB free"), "{said}");
}

/// What `apt-cache policy` prints of a package that is installed as `installed`, and of which an archive offers `offered`.
fn policy(name: &str, installed: &str, offered: &str) -> String {
    let table = format!(
        "{name}:\\n  Candidate: {installed}\\n  Version table:\\n *** {installed} 100\\n        100 /var/lib/dpkg/status"
    );
    let archive = format!("\\n     {offered} 500\\n        500 an-archive bookworm/main amd64 Packages");
    format!("{table}{}\\n", if offered.is_empty() { "" } else { &archive })
}

/// A system that has all that `scripts/tools-layer` needs. Each package of it is installed as version 4.3, and `offered` by the
/// archive.
fn with_packages(offered: &str) -> System {
    let system = System::new();
    let kernel = "linux-image-6.1.0-1-amd64";
    system.program(
        "apt-cache",
        &format!(
            "case $1 in depends) echo '  Depends: {kernel}'; exit;; esac; shift\n\
             for name; do case $name in {kernel}) printf '{}';; *) printf '{}';; esac; done",
            policy(kernel, "1", "1"),
            policy("'$name'", "4.3", offered),
        ),
    );
    let cache = system.dir.path().join("cache");
    fs::create_dir_all(cache.join("artefacts").join(format!("kernel-{kernel}_1"))).unwrap();
    fs::create_dir_all(cache.join("target/release")).unwrap();
    fs::write(cache.join("target/release/landfall-worker"), "").unwrap();
    system.program("mksquashfs", "exit 0");
    system.program("apt-get", "case \"$*\" in *download*) : >a.deb;; esac");
    symlink(system.bin().join("mksquashfs"), cache.join("target/release/landfall-image")).unwrap();
    system
}

fn downloads(system: &System) -> Vec<String> {
    system.calls("apt-get").into_iter().filter(|call| call.contains("download")).collect()
}

#[test]
fn a_tools_layer_without_every_package_ends_at_once() {
    let system = with_packages("");
    let output = system.run("tools-layer");
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("no archive offers every package"), "{said}");
    assert_eq!(downloads(&system), [""; 0]);
}

/// The machine may be newer than its archive, or the archive than the machine; and a layer that fails leaves no directory.
#[test]
fn a_tools_layer_takes_what_the_archive_offers() {
    for offered in ["4.2", "4.3", "4.4"] {
        let system = with_packages(offered);
        system.program("dpkg-deb", "echo damaged >&2; exit 2");
        let output = system.run("tools-layer");
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("damaged"), "{said}");
        let asked = downloads(&system);
        assert!(asked.len() == 1 && asked[0].contains(&format!(" mdadm={offered} ")), "{asked:?}");
        let left = fs::read_dir(system.dir.path().join("cache/artefacts")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(left, ["kernel-linux-image-6.1.0-1-amd64_1"], "{said}");
    }
}
