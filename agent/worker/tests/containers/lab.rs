//! A root like that of the tools layer, an image, and a worker that runs it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::{env, fs, io, thread};

use landfall_api::message::{ActionKind, ActionResult, Purpose, WorkerJob, WorkerReport};
use landfall_api::{Digest, Problem, RunContainer, RunContainerResult};
use landfall_proto::{delimited, worker};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::WORKER;
use crate::registry::{digest, serve};
use crate::testing::{caged_in, job};

/// Debian's `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";
const PROGRAMS: [&str; 25] = [
    "sh", "cat", "ls", "id", "grep", "cut", "uniq", "mount", "umount", "mknod", "mkdir", "wc", "sort", "tail", "tr",
    "ip", "head", "cmp", "readlink", "sleep", "setsid", "find", "echo", "kill", "pwd",
];

/// One image.
#[derive(Default)]
pub(crate) struct Image {
    pub(crate) config: String,
    pub(crate) files: Vec<(String, String)>,
    /// A link and its target.
    pub(crate) link: Option<(&'static str, &'static str)>,
    /// A device file of the first loop device.
    pub(crate) device: Option<&'static str>,
    /// Goes to `bin/tests`.
    pub(crate) program: Option<PathBuf>,
    /// The size of the layer, as the manifest says.
    pub(crate) stated_size: Option<u64>,
    /// What other bytes are given for than the manifest says.
    pub(crate) altered: Option<&'static str>,
}

impl Image {
    /// With busybox and these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Self { config: "{}".into(), files, ..Self::default() }
    }

    fn layer(&self) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let header = |kind, mode| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(0);
            header
        };
        let programs = [(BUSYBOX.into(), "bin/busybox")].into_iter();
        for (from, name) in programs.chain(self.program.clone().map(|from| (from, "bin/tests"))) {
            let bytes = fs::read::<PathBuf>(from).unwrap();
            let mut header = header(tar::EntryType::Regular, 0o755);
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, &bytes[..]).unwrap();
        }
        for program in PROGRAMS {
            let mut header = header(tar::EntryType::Symlink, 0o777);
            builder.append_link(&mut header, format!("bin/{program}"), "busybox").unwrap();
        }
        for (name, text) in &self.files {
            let mut header = header(tar::EntryType::Regular, 0o644);
            header.set_size(text.len() as u64);
            builder.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        if let Some((name, target)) = self.link {
            builder.append_link(&mut header(tar::EntryType::Symlink, 0o777), name, target).unwrap();
        }
        if let Some(name) = self.device {
            let mut header = header(tar::EntryType::Block, 0o666);
            header.set_device_major(7).unwrap();
            header.set_device_minor(0).unwrap();
            builder.append_data(&mut header, name, io::empty()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    /// Its reference at a registry that has it.
    fn serve(&self) -> String {
        let (layer, config) = (self.layer(), self.config.clone().into_bytes());
        let descriptor = |digest: Digest, size: u64, kind: &str| {
            format!(r#"{{"mediaType":"application/vnd.oci.image.{kind}","digest":"{digest}","size":{size}}}"#)
        };
        let size = self.stated_size.unwrap_or(layer.len() as u64);
        let manifest = format!(
            r#"{{"schemaVersion":2,"config":{},"layers":[{}]}}"#,
            descriptor(digest(&config), config.len() as u64, "config.v1+json"),
            descriptor(digest(&layer), size, "layer.v1.tar"),
        );
        let proof = digest(manifest.as_bytes());
        let mut files = BTreeMap::from([(format!("/v2/a/manifests/{proof}"), manifest.into_bytes())]);
        for (name, mut bytes) in [("layer", layer), ("config", config)] {
            let path = format!("/v2/a/blobs/{}", digest(&bytes));
            if self.altered == Some(name) {
                *bytes.last_mut().unwrap() ^= 1;
            }
            files.insert(path, bytes);
        }
        format!("oci+http://{}/a@{proof}", serve(files))
    }
}

/// What came of a container.
pub(crate) struct Ran {
    pub(crate) ended: Result<RunContainerResult, Problem>,
    /// What it printed.
    pub(crate) lines: Vec<String>,
}

/// A place for workers.
pub(crate) struct Lab {
    root: tempfile::TempDir,
    image: String,
}

impl Lab {
    pub(crate) fn new(image: &Image) -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["etc", "run", "target", "dev", "sys"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        let program = root.path().join(WORKER.trim_start_matches('/'));
        fs::copy(env!("CARGO_BIN_EXE_landfall-worker"), program).unwrap();
        fs::write(root.path().join("etc/resolv.conf"), "nameserver 192.0.2.1\n").unwrap();
        Self { root, image: image.serve() }
    }

    /// The installed system's root.
    pub(crate) fn system(&self) -> PathBuf {
        self.root.path().join("target")
    }

    /// Runs one container to its end; `None`: this test may not mount.
    pub(crate) fn run(&self, spec: RunContainer) -> Option<Ran> {
        self.run_until(spec, "\n")
    }

    /// The same; the worker is killed once the container prints this line.
    pub(crate) fn run_until(&self, spec: RunContainer, last: &str) -> Option<Ran> {
        let purpose = Purpose::Perform { system: Vec::new() };
        let job = job(ActionKind::RunContainer(RunContainer { image: self.image.clone(), ..spec }));
        let job = worker::Job::try_from(WorkerJob { purpose, ..job }).unwrap();
        let ran = Mutex::new(None);
        caged_in(self.root.path(), || *ran.lock().unwrap() = Some(followed(&job, last)));
        // What a run mounted is gone with its thread.
        let _ = fs::remove_dir(self.root.path().join("proc"));
        ran.into_inner().unwrap()
    }

    /// What a worker's program that is to be the first process of a container answers to this plan.
    pub(crate) fn init_answer(&self, program: &Path, plan: &str) -> Option<String> {
        let answer = Mutex::new(None);
        caged_in(self.root.path(), || *answer.lock().unwrap() = Some(init(program, plan).0));
        answer.into_inner().unwrap()
    }

    /// What a script prints that has a disk called `/dev/target`, and the disk then; the disk begins with "disk". `None`: no loop
    /// device can be had.
    pub(crate) fn init_with_disk(&self, script: &str) -> Option<(Vec<String>, Vec<u8>)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "disk").unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let loop_device = Loop::of(file.path())?;
        let number = fs::metadata(&loop_device.0).unwrap().rdev();
        let plan = format!(
            r#"{{"root": "/run/container", "system": "/target", "mounts": [], "nodes": [{{"name": "target", "number": {number}}}],
                "host_network": false, "words": ["/bin/sh", "-ec", {script:?}], "env": [["PATH", "/bin"]], "directory": "/",
                "who": {{"user": 0, "group": 0, "groups": []}}, "capabilities": 0}}"#
        );
        let (lines, layer) = (Mutex::new(None), Image::with(&[]).layer());
        caged_in(self.root.path(), || {
            let root = Path::new("/run/container");
            fs::create_dir(root).unwrap();
            mount(Some("t"), root, Some("tmpfs"), MsFlags::MS_NODEV, None::<&str>).unwrap();
            tar::Archive::new(&layer[..]).unpack(root).unwrap();
            let (answer, printed) = init(Path::new(WORKER), &plan);
            assert_eq!(answer, "");
            *lines.lock().unwrap() = Some(printed);
        });
        drop(loop_device);
        Some((lines.into_inner().unwrap()?, fs::read(file.path()).unwrap()))
    }
}

/// Why there is no container, and what its program printed.
fn init(program: &Path, plan: &str) -> (String, Vec<String>) {
    unshare(CloneFlags::CLONE_NEWPID).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let (read, write) = io::pipe().unwrap();
    let mut command = Command::new(program);
    command.arg0("landfall-worker").arg("container-init").env_clear();
    command.stdin(OwnedFd::from(theirs)).stdout(write.try_clone().unwrap()).stderr(write);
    let mut child = command.spawn().unwrap();
    drop(command);
    ours.write_all(plan.as_bytes()).unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    ours.read_to_string(&mut answer).unwrap();
    let lines = BufReader::new(read).lines().map(Result::unwrap).collect();
    child.wait().unwrap();
    (answer, lines)
}

/// A loop device, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn of(file: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["-f", "--show"]).arg(file).output();
        match made {
            Ok(output) if output.status.success() => {
                Some(Self(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())))
            }
            other => {
                eprintln!("SKIPPED: no loop device can be had: {other:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Nothing more can be done about one that stays.
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// Killed when dropped, so that a test that fails leaves nothing behind.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// In the worker's root: one job, to its end.
fn followed(job: &worker::Job, last: &str) -> Ran {
    let child = Command::new(WORKER)
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut worker = Worker(child.unwrap());
    let child = &mut worker.0;
    let (errors, mut reports) = (child.stderr.take().unwrap(), child.stdout.take().unwrap());
    delimited::write(&mut child.stdin.take().unwrap(), job).unwrap();
    let ended = thread::spawn(move || {
        let mut ended = None;
        while let Ok(Some(wire)) = delimited::read::<worker::Report>(&mut reports) {
            match WorkerReport::try_from(wire).unwrap() {
                WorkerReport::Finished(ActionResult::RunContainer(result)) => ended = Some(Ok(result)),
                WorkerReport::Failed { problem, .. } => ended = Some(Err(problem)),
                WorkerReport::Log { message, .. } => eprintln!("{message}"),
                _ => {}
            }
        }
        ended.unwrap_or_else(|| {
            Err(Problem::new(landfall_api::ErrorCode::Internal, "the worker ended without a result"))
        })
    });
    let mut lines = Vec::new();
    for line in BufReader::new(errors).lines() {
        let line = line.unwrap();
        let is_last = line == last;
        lines.push(line);
        if is_last {
            child.kill().unwrap();
            // What outlives it would keep the other end of this open.
            break;
        }
    }
    child.wait().unwrap();
    Ran { ended: ended.join().unwrap(), lines }
}
