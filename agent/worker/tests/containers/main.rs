//! Containers, as the agent would have the worker run them: the worker's own program in a root of its own, with an image from a registry
//! on loopback. Skipped, loudly, where this test may not mount.
#![allow(clippy::unwrap_used)] // Tests.

mod lab;
#[path = "../../src/registry.rs"]
mod registry;
#[path = "../../src/testing.rs"]
#[expect(dead_code, reason = "the unit tests use all of it")]
mod testing;

use std::fs;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;

use lab::{Image, Lab};
use landfall_api::{ContainerCapability, ContainerMount, ContainerNetwork, ErrorCode, ExecVariable, SecretText};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use testing::container as spec;

fn script(text: &str) -> Option<Vec<String>> {
    Some(["/bin/sh", "-ec", text].map(str::to_owned).to_vec())
}

fn mount(from: &str, to: &str, read_only: bool) -> ContainerMount {
    ContainerMount { from: from.into(), to: to.into(), read_only }
}

#[test]
fn a_container_runs_the_images_program_in_its_own_root() {
    let config = r#"{"config": {"Entrypoint": ["/bin/sh", "-ec"], "Cmd": ["cat /etc/name; pwd; echo $A $B; id -u >&2"],
        "WorkingDir": "/work", "Env": ["A=image", "B=image"]}}"#;
    let image = Image { config: config.into(), ..Image::with(&[("etc/name", "tool\n")]) };
    let mut spec = spec();
    spec.variables = vec![ExecVariable { name: "B".into(), value: SecretText::new("template"), secret: false }];
    let Some(ran) = Lab::new(&image).run(spec) else { return };
    ran.ended.unwrap();
    assert_eq!(ran.lines, ["tool", "/work", "image template", "0"]);
}

#[test]
fn an_exit_code_is_a_failure_that_names_it() {
    for (command, code, said) in [
        (script("echo last; exit 3"), ErrorCode::ProgramFailed, "exit code 3"),
        (script("kill -KILL $$"), ErrorCode::ProgramFailed, "exit code 137 (SIGKILL)"),
        (Some(vec!["nosuch".into()]), ErrorCode::ProgramFailed, "exit code 127"),
        (Some(vec!["/etc/name".into()]), ErrorCode::ProgramFailed, "exit code 126"),
        (None, ErrorCode::InvalidTemplate, "names no program"),
    ] {
        let image = Image::with(&[("etc/name", "no program")]);
        let Some(ran) = Lab::new(&image).run(landfall_api::RunContainer { command, ..spec() }) else { return };
        let problem = ran.ended.unwrap_err();
        assert!(problem.code == code && problem.message.contains(said), "{problem}");
    }
}

#[test]
fn the_user_is_one_of_the_image() {
    let files =
        [("etc/passwd", "anna:x:1000:1001::/home/anna:/bin/sh\n"), ("etc/group", "anna:x:1001:\nwork:x:7:anna\n")];
    let mut wanted = spec();
    wanted.command =
        script("id -u; id -g; id -G; echo $HOME; grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status | cut -f2 | uniq");
    wanted.user = Some("anna".into());
    let lab = Lab::new(&Image::with(&files));
    let Some(ran) = lab.run(wanted.clone()) else { return };
    ran.ended.unwrap();
    assert_eq!(ran.lines, ["1000", "1001", "1001 7", "/home/anna", "0000000000000000"]);
    wanted.capabilities = vec![ContainerCapability::NetRaw];
    let problem = lab.run(wanted.clone()).unwrap().ended.unwrap_err();
    assert!(problem.message.contains("only root can have capabilities"), "{problem}");
    wanted.user = Some("bob".into());
    let problem = lab.run(wanted).unwrap().ended.unwrap_err();
    assert!(problem.code == ErrorCode::InvalidTemplate && problem.message.contains("no user bob"), "{problem}");
}

#[test]
fn root_has_few_rights_and_gets_no_more() {
    let mut wanted = spec();
    wanted.command = script(
        "export p=/proc/sys/kernel/printk; grep -E 'Cap|NoNew' /proc/self/status; for c in 'mount -t tmpfs t /mnt' 'mknod /dev/x b 7 0' \
        'mknod /x b 7 0' 'mount -t devtmpfs d /mnt' 'umount /proc/keys' 'sh -c \"cat $p > $p\"' \
        'sh -c \"echo s > /proc/sysrq-trigger\"' 'mkdir /sys/x' 'sh -c \"echo 1 > /proc/sys/kernel/ns_last_pid\"'; do \
        if eval $c 2>/dev/null; then echo \"possible: $c\"; fi; done; cat /proc/keys | wc -c; \
        cat /proc/self/oom_score_adj",
    );
    wanted.capabilities = vec![ContainerCapability::Syslog];
    let Some(ran) = Lab::new(&Image::with(&[("mnt/x", "")])).run(wanted) else { return };
    ran.ended.unwrap();
    // Bits 0, 1, 3 to 8, 10, 18, 31 of capabilities(7), and 34, which is named.
    let usual = "00000004800405fb";
    let rows = ["CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"].map(str::to_owned);
    let rights = ["CapPrm", "CapEff", "CapBnd"].map(|name| format!("{name}:\t{usual}"));
    for row in rows.iter().chain(&rights) {
        assert!(ran.lines.contains(row), "{row}: {:?}", ran.lines);
    }
    assert_eq!(ran.lines[6..], ["0", "1000"]);
}

#[test]
fn only_what_is_named_is_there() {
    // A device file of the image: the first loop device.
    let image = Image { device: Some("disk"), ..Image::with(&[("etc/name", "x")]) };
    let mut wanted = spec();
    wanted.command = script(
        "echo $(ls /dev | sort); echo $(ls /proc | grep -c '^[0-9]'); echo $(tail -n +3 /proc/net/dev | cut -d: -f1); \
         cut -d' ' -f5 /proc/self/mountinfo | grep -v '^/proc/' | sort | tr '\\n' ' '; echo; \
         echo $(ls /proc/1/fd | sort); ls -l /proc/1/fd | grep -c /dev/null; ip addr show lo | grep -c 127.0.0.1; \
         if cat /disk 2>/dev/null; then echo possible; fi; echo x > /dev/null; head -c 3 /dev/zero | wc -c; echo y > /dev/shm/y",
    );
    let Some(ran) = Lab::new(&image).run(wanted) else { return };
    ran.ended.unwrap();
    let devices = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero";
    // The first process, the shell, a shell for the pipe, ls and grep.
    let expected = [devices, "5", "lo", "/ /dev /dev/pts /dev/shm /proc /sys ", "0 1 2", "1", "1", "3"];
    assert_eq!(ran.lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>(), expected.map(str::trim_end));
}

#[test]
fn a_hosts_network_comes_with_name_servers() {
    let mut wanted = spec();
    wanted.network = ContainerNetwork::Host;
    wanted.command = script("cat /etc/resolv.conf; cmp /proc/net/dev /proc/self/net/dev; readlink /proc/self/ns/net");
    let image = Image { link: Some(("etc/resolv.conf", "/proc/sys/kernel/hostname")), ..Image::with(&[]) };
    let Some(ran) = Lab::new(&image).run(wanted) else { return };
    ran.ended.unwrap();
    let own = fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    assert_eq!(ran.lines, ["nameserver 192.0.2.1", &own]);
}

#[test]
fn named_directories_of_the_system_can_be_read_or_written() {
    let lab = Lab::new(&Image { link: Some(("srv", "/var/../var/data")), ..Image::with(&[("var/data/x", "")]) });
    let system = lab.system();
    for directory in ["etc", "data", "opt/app"] {
        fs::create_dir_all(system.join(directory)).unwrap();
    }
    fs::write(system.join("etc/secret"), "old").unwrap();
    fs::write(system.join("data/file"), "old").unwrap();
    // Absolute links of the system are its own.
    symlink("/data", system.join("link")).unwrap();
    let mut wanted = spec();
    wanted.mounts = vec![mount("/etc", "/mnt/etc", true), mount("/link", "/srv", false)];
    wanted.command = script(
        "cat /mnt/etc/secret; echo; if echo new > /mnt/etc/secret; then echo possible; fi; echo new > /var/data/file; \
         ls /mnt; ls / | grep -c opt || true",
    );
    let Some(ran) = lab.run(wanted) else { return };
    ran.ended.unwrap();
    assert!(ran.lines[1].contains("Read-only file system"), "{:?}", ran.lines);
    assert_eq!([&ran.lines[0], &ran.lines[2], &ran.lines[3]], ["old", "etc", "0"]);
    let text = |path: &str| fs::read_to_string(lab.system().join(path)).unwrap();
    assert_eq!((text("etc/secret"), text("data/file")), ("old".into(), "new\n".into()));
}

#[test]
fn links_on_the_way_never_lead_out() {
    let image = Image { link: Some(("up", "../../../..")), ..Image::with(&[("etc/name", "x")]) };
    let lab = Lab::new(&image);
    symlink("../../../../..", lab.system().join("out")).unwrap();
    fs::write(lab.system().join("mark"), "").unwrap();
    let mut wanted = spec();
    // The system's link leads to its root, and the image's to the image's.
    wanted.mounts = vec![mount("/out", "/up/mnt", true)];
    wanted.command = script("ls /mnt/mark");
    let Some(ran) = lab.run(wanted.clone()) else { return };
    ran.ended.unwrap();
    for (from, to, said) in
        [("/none", "/mnt", "open /none of the installed system"), ("/", "/up", "leads from there to its root")]
    {
        wanted.mounts = vec![mount(from, to, true)];
        let problem = lab.run(wanted.clone()).unwrap().ended.unwrap_err();
        assert!(problem.code == ErrorCode::ProgramFailed && problem.message.contains(said), "{problem}");
    }
}

#[test]
fn what_breaks_out_of_a_chroot_finds_nothing() {
    const INSIDE: &str = "LANDFALL_TEST_BREAKS_OUT";
    const NAME: &str = "what_breaks_out_of_a_chroot_finds_nothing";
    if std::env::var_os(INSIDE).is_some() {
        // In the container, where this very program is: the working directory stays outside of the new root.
        fs::create_dir("/cell").unwrap();
        let outside = File::open("/").unwrap();
        nix::unistd::chroot("/cell").unwrap();
        nix::unistd::fchdir(&outside).unwrap();
        for _ in 0..64 {
            nix::unistd::chdir("..").unwrap();
        }
        let names = fs::read_dir(".").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        println!("\nfound {}", names.join(" "));
        return;
    }
    let mut wanted = spec();
    wanted.command = Some(["/bin/tests", "--exact", NAME, "--nocapture"].map(str::to_owned).to_vec());
    wanted.variables = vec![ExecVariable { name: INSIDE.into(), value: SecretText::new("1"), secret: false }];
    let own = std::env::current_exe().unwrap();
    let Some(ran) = Lab::new(&Image { program: Some(own), ..Image::with(&[]) }).run(wanted) else { return };
    ran.ended.unwrap();
    assert!(ran.lines.contains(&"found bin cell dev etc proc sys".to_owned()), "{:?}", ran.lines);
}

#[test]
fn the_workers_end_is_that_of_every_process() {
    let lab = Lab::new(&Image::with(&[]));
    nix::unistd::mkfifo(&lab.system().join("held"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let held = lab.system().join("held");
    let mut held = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(held).unwrap();
    for user in ["0", "1000:1000"] {
        let mut wanted = spec();
        wanted.user = Some(user.into());
        wanted.mounts = vec![mount("/", "/mnt", false)];
        wanted.command =
            script("exec 9<>/mnt/held; setsid sleep 3600 </dev/null >/dev/null 2>&1 & echo begun; sleep 3600");
        nix::unistd::chown(
            &lab.system().join("held"),
            Some(nix::unistd::Uid::from_raw(if user == "0" { 0 } else { 1000 })),
            None,
        )
        .unwrap();
        let Some(ran) = lab.run_until(wanted, "begun") else { return };
        assert!(ran.lines.contains(&"begun".to_owned()), "{:?}", ran.lines);
        // The kernel says so once no process has the other end open.
        let mut waits = [PollFd::new(held.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut waits, PollTimeout::from(LIMIT)).unwrap(), 1, "a process outlives the worker");
        assert_eq!(held.read(&mut [0]).unwrap(), 0);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("/run/container"), "{mounts}");
    }
}

#[test]
fn an_image_larger_than_memory_is_not_fetched() {
    let image = Image { stated_size: Some(1 << 50), ..Image::with(&[]) };
    let Some(ran) = Lab::new(&image).run(spec()) else { return };
    let problem = ran.ended.unwrap_err();
    assert_eq!(problem.code, ErrorCode::NotEnoughMemory);
    assert!(
        problem.message.contains("1125899906842624 bytes") && problem.message.contains("nothing was fetched"),
        "{problem}"
    );
}

#[test]
fn altered_layers_and_configurations_never_run() {
    for altered in ["layer", "config"] {
        let image = Image { altered: Some(altered), ..Image::with(&[]) };
        let Some(ran) = Lab::new(&image).run(landfall_api::RunContainer { command: script("echo ran"), ..spec() })
        else {
            return;
        };
        assert_eq!(ran.ended.unwrap_err().code, ErrorCode::DigestMismatch, "{altered}");
        assert_eq!(ran.lines, [""; 0]);
    }
}

#[test]
fn a_named_disk_is_the_only_one_in_the_container() {
    let lab = Lab::new(&Image::with(&[]));
    let Some(ran) = lab.init_with_disk(
        "ls -l /dev/target | cut -d' ' -f1; head -c 4 /dev/target; echo; echo new > /dev/target; \
        ls /dev | grep -c loop || true; find /dev -type b",
    ) else {
        return;
    };
    let (lines, disk) = ran;
    assert_eq!(lines, ["brw-------", "disk", "0", "/dev/target"]);
    assert!(disk.starts_with(b"new\n"), "what it wrote is on the disk");
}

/// For the kernel to end a few processes, milliseconds.
const LIMIT: u16 = 60_000;
/// Where the worker's program is in its root.
const WORKER: &str = "/landfall-worker";

#[test]
fn the_plan_is_no_command_line() {
    // A plan that is none: the reason comes back where the plan went in.
    let Some(said) = Lab::new(&Image::with(&[])).init_answer(Path::new(WORKER), "{}") else { return };
    assert!(said.contains("cannot read the plan"), "{said}");
}
