//! The lab on its own: a network, a machine in it, its console, its power switch, and that nothing is left behind.

use std::sync::Mutex;
use std::time::Duration;

use landfall_lab::{Accel, DiskBus, Firmware, Machine, Network, sweep};

const LIMIT: Duration = Duration::from_secs(120);

/// Held while namespaces are made: making a network sweeps, and would sweep the other test's orphan while it is being made.
static SWEEPING: Mutex<()> = Mutex::new(());

/// Namespaces need root; `scripts/test` runs as root, so there these tests run.
fn may_make_namespaces() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: making network namespaces needs root");
    }
    root
}

fn namespaces() -> String {
    let output = std::process::Command::new("ip").args(["netns", "list"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_machine_without_a_system_boots_to_an_error() {
    if !may_make_namespaces() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let network = {
        let _alone = SWEEPING.lock().unwrap();
        Network::create().unwrap()
    };
    let name = network.namespace().name().to_owned();
    assert!(namespaces().contains(&name));
    let builder = Machine::builder("m1").firmware(Firmware::Bios).memory_mib(128).disk(1 << 20, DiskBus::Virtio);
    let mut machine = builder.build(&network, dir.path(), Accel::Tcg).unwrap();
    let mark = machine.power_on().await.unwrap();
    assert_eq!(machine.qmp().unwrap().status().await.unwrap(), "running");
    machine.wait_serial(mark, "No bootable device", LIMIT).await.unwrap();
    let pid = machine.pid().unwrap();
    machine.power_cut().await;
    assert!(!machine.is_on());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "qemu outlived its power cut");
    assert!(machine.disk(0).is_untouched().unwrap());
    assert!(
        machine.wait_serial(machine.serial().mark(), "anything", LIMIT).await.is_err(),
        "a machine that is off spoke"
    );

    let mark = machine.power_on().await.unwrap();
    machine.wait_serial(mark, "SeaBIOS", LIMIT).await.unwrap();
    machine.power_off().await.unwrap();
    drop(machine);
    drop(network);
    assert!(!namespaces().contains(&name), "the namespace was left behind");
}

#[test]
fn what_a_dead_lab_left_is_swept() {
    if !may_make_namespaces() {
        return;
    }
    let _alone = SWEEPING.lock().unwrap();
    // No process has this pid: it is above the kernel's limit.
    let orphan = "lf-4194305-1-0";
    let made = std::process::Command::new("ip").args(["netns", "add", orphan]).status().unwrap();
    assert!(made.success());
    sweep().unwrap();
    assert!(!namespaces().contains(orphan));
}
