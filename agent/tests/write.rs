//! `landfall-agent write` as a person or a script calls it: the real program, onto regular files, over loopback.
#![allow(clippy::unwrap_used)] // Tests.

use std::io::{BufRead as _, BufReader, Cursor, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

const MIB: u64 = 1 << 20;

/// An image with a partition table and one partition.
fn image() -> Vec<u8> {
    let mut bytes = vec![0; 4 << 20];
    let sectors = u32::try_from(bytes.len() / 512 - 1).unwrap();
    gpt::mbr::ProtectiveMBR::with_lb_size(sectors).overwrite_lba0(&mut Cursor::new(&mut bytes[..])).unwrap();
    let device = Cursor::new(&mut bytes[..]);
    let mut disk = gpt::GptConfig::new().writable(true).create_from_device(device, None).unwrap();
    disk.add_partition("root", MIB, gpt::partition_types::LINUX_FS, 0, None).unwrap();
    disk.write().unwrap();
    bytes[2 << 20..(2 << 20) + 9].copy_from_slice(b"landfall!");
    bytes
}

/// A web server on loopback.
struct Server {
    url: String,
    /// Connections that wait for the rest.
    held: mpsc::Receiver<TcpStream>,
}

impl Server {
    /// Gives `body` for every GET.
    fn giving(body: Vec<u8>) -> Self {
        Self::with(move |mut stream| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            // The client may have hung up.
            drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)));
            None
        })
    }

    /// Gives half of `body`, and then nothing more.
    fn stalling(body: Vec<u8>) -> Self {
        Self::with(move |mut stream| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&body[..body.len() / 2]).unwrap();
            Some(stream)
        })
    }

    fn with(serve: impl Fn(TcpStream) -> Option<TcpStream> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/disk.img", listener.local_addr().unwrap());
        let (sender, held) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let head = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok).take(100);
                drop(head.take_while(|line| !line.is_empty()).last());
                if let Some(held) = serve(stream)
                    && sender.send(held).is_err()
                {
                    return;
                }
            }
        });
        Self { url, held }
    }
}

/// A disk of 8 MiB.
fn disk(dir: &Path) -> PathBuf {
    let path = dir.join("disk.img");
    std::fs::File::create(&path).unwrap().set_len(8 * MIB).unwrap();
    path
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall-agent"));
    command.arg("write").args(arguments).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of stderr that are progress.
fn progress(output: &Output) -> Vec<Value> {
    let lines = text(&output.stderr);
    lines.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()).filter(|v| v.get("stage").is_some()).collect()
}

#[test]
fn an_image_is_written_and_reported_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    let (image, disk) = (image(), disk(dir.path()));
    let (server, path) = (Server::giving(image.clone()), disk.to_str().unwrap());
    let output = run(&["--url", &server.url, "--digest-waived", "--disk", path, "--yes", "--report", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("stdout is the report alone");
    assert_eq!((&report["outcome"], &report["device"]), (&"written".into(), &path.into()));
    assert_eq!((report["rawBytes"].as_u64(), &report["readBack"]), (Some(4 * MIB), &false.into()));
    assert!(report.get("receipt").is_some() != report.get("noReceipt").is_some(), "{report}");
    let reports = progress(&output);
    assert!(reports.iter().all(|p| p.get("etaSeconds").is_some()), "{}", text(&output.stderr));
    let last = reports.last().expect("progress on stderr, which is no terminal");
    assert_eq!(last["rawBytes"].as_u64(), Some(4 * MIB), "the last word is the whole");
    let written = std::fs::read(&disk).unwrap();
    assert_eq!(written[2 << 20..3 << 20], image[2 << 20..3 << 20]);
    assert_eq!(written[510..512], [0x55, 0xaa]);
}

#[test]
fn a_wrong_digest_fails_with_place_and_hint() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk, report) = (Server::giving(image()), disk(dir.path()), dir.path().join("report.json"));
    let (path, at, sum) = (disk.to_str().unwrap(), report.to_str().unwrap(), "0a".repeat(32));
    let mut arguments = vec!["--url", &server.url, "--digest", &sum, "--disk", path, "--yes"];
    arguments.extend(["--progress", "none", "--report", at]);
    let output = run(&arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("DigestMismatch: ") && said.contains(&server.url) && said.contains("sha256sum"), "{said}");
    assert!(progress(&output).is_empty(), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!((&report["outcome"], &report["problem"]["code"]), (&"failed".into(), &"DigestMismatch".into()));
    assert_ne!(std::fs::read(&disk).unwrap()[510..512], [0x55, 0xaa], "nothing unproven is bootable");
}

#[test]
fn what_is_no_disk_image_fails_by_name_and_hint() {
    let dir = tempfile::tempdir().unwrap();
    let ext4 = [&[0; 0x438][..], &[0x53, 0xef], &[1; 4096]].concat();
    let elf = [&b"\x7fELF\x02\x01\x01"[..], &[0x91; 2000]].concat();
    for (body, name, hint) in [
        (b"{\"error\": \"gone\"}".to_vec(), "it is JSON, not a disk image", "in a browser"),
        (b"<!doctype html>\n<h1>Log in</h1>".to_vec(), "it is a web page", "in a browser"),
        (elf, "it is an ELF program", "does not start from a disk"),
        (vec![0; 1 << 20], "all zeroes", "--table none"),
        (ext4, "it is an ext file system without a partition table", "--table none"),
    ] {
        let (server, disk) = (Server::giving(body), disk(dir.path()));
        let arguments = ["--url", &server.url, "--digest-waived", "--disk", disk.to_str().unwrap(), "--yes"];
        let output = run(&arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("BadFormat: ") && said.contains(name) && said.contains(hint), "{said}");
        assert!(std::fs::read(&disk).unwrap().iter().all(|byte| *byte == 0), "{name}: the disk was written");
        let with_word = run(&[&arguments[..], &["--table", "none"]].concat());
        let is_volume = hint == "--table none";
        assert_eq!(with_word.status.code(), Some(i32::from(!is_volume)), "{name}: {}", text(&with_word.stderr));
    }
}

#[test]
fn a_wrong_command_line_and_a_missing_yes_touch_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path());
    std::fs::write(&disk, vec![7; 8 << 20]).unwrap();
    let (path, url) = (disk.to_str().unwrap(), "http://127.0.0.1:1/i");
    for (arguments, code, said) in [
        (&["--url", url, "--disk", path, "--yes"][..], 2, "no proof of the image"),
        (&["--url", url, "--digest-waived", "--yes"], 2, "--disk"),
        (&["--url", url, "--digest-waived", "--disk", "colour=red", "--yes"], 2, "is not a disk field"),
        (&["--url", url, "--digest-waived", "--disk", path, "--format", "vhdx"], 2, "vmdk"),
        (&["--url", "http://a:b@h/i", "--digest-waived", "--disk", path, "--yes"], 2, "password"),
        (&["--url", url, "--digest-waived", "--disk", path, "--yes", "--report", "/no/such/r"], 2, "--report"),
        (&["--url", url, "--signature", url, "--disk", path], 2, "--key"),
        (&["--url", url, "--digest-waived", "--disk", path], 3, "--yes"),
        (&["--url", url, "--digest-waived", "--disk", "/no/such/disk", "--yes"], 1, "/no/such/disk"),
    ] {
        let output = run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
    assert!(std::fs::read(&disk).unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn an_interrupted_write_ends_in_order_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = (Server::stalling(image()), disk(dir.path()));
    let arguments = ["--url", &server.url, "--digest-waived", "--disk", disk.to_str().unwrap(), "--yes"];
    let child = program(&arguments).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It has taken half of the image, and waits for a rest that does not come.
    let held = server.held.recv_timeout(Duration::from_secs(60)).unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(held);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("Cancelled: "), "{}", text(&output.stderr));
}

#[test]
fn help_is_enough_to_use_it_alone() {
    let help = text(&run(&["--help"]).stdout);
    for word in ["--raw-digest", "read-back", "glob", "Exit codes", "Examples", "--bearer-file", "bmap"] {
        assert!(help.contains(word), "{word}");
    }
    let more = help.split_once("The image may be stored").unwrap().1;
    assert!(more.lines().all(|line| line.chars().count() <= 80), "a terminal of 80 columns shows it as it is: {more}");
}
