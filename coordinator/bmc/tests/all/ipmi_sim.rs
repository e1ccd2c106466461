//! The client of IPMI against OpenIPMI's simulator, which knows cipher suites up to 14: suite 3.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_api::{BmcSpec, PowerState};
use landfall_bmc::{
    Account, Bmc, BmcError, BootDevice, BootMode, BootOverride, Console, ConsoleEvent, PowerChange, connect,
};
use tokio::time::timeout;

/// It ends with the test.
struct Simulator(Child);

impl Drop for Simulator {
    fn drop(&mut self) {
        // It may have ended by itself, and a test that ends can do nothing about it.
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// The chassis: each value is a file. The simulator calls it as `chassis 0x20 get power` and `chassis 0x20 set boot pxe`.
const CHASSIS: &str = r#"#!/bin/sh
cd "$(dirname "$0")" && shift
case $1 in
get) shift; for name; do echo "$name:$(cat "$name")"; done ;;
set) shift; while [ $# -gt 1 ]; do echo "$2" >"$1"; shift 2; done ;;
esac
"#;

/// `serial`: the port of a server in the place of the computer's serial port.
fn start(dir: &Path, port: u16, serial: u16) -> Simulator {
    let file = |name: &str| dir.join(name).display().to_string();
    let config = format!(
        "name \"test\"\nset_working_mc 0x20\nstartlan 1\naddr 127.0.0.1 {port}\npriv_limit admin\n\
         allowed_auths_admin none md2 md5 straight\nguid a123456789abcdefa123456789abcdef\nendlan\n\
         sol \"tcp:127.0.0.1:{serial}\" 115200\n\
         chassis_control \"{} 0x20\"\nstartnow false\n\
         user 2 true \"landfall\" \"right\" admin 10 none md2 md5 straight\n",
        file("chassis"),
    );
    let commands = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x02 9 8 0x9f 674 0x0100\nmc_enable 0x20\n";
    for (name, text) in [
        ("lan.conf", config.as_str()),
        ("commands", commands),
        ("chassis", CHASSIS),
        ("power", "0\n"),
        ("boot", "none\n"),
    ] {
        fs::write(dir.join(name), text).unwrap();
    }
    fs::set_permissions(dir.join("chassis"), fs::Permissions::from_mode(0o755)).unwrap();
    let child = Command::new("ipmi_sim")
        .args(["-c", &file("lan.conf"), "-f", &file("commands"), "-s", &file(""), "-n"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("ipmi_sim of the package openipmi is needed: {error}"));
    Simulator(child)
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap().trim().to_owned()
}

async fn log_in(port: u16, password: &str) -> Result<Box<dyn Bmc>, BmcError> {
    let address = format!("ipmi://127.0.0.1:{port}").parse().unwrap();
    let spec = BmcSpec::new(address, "s");
    connect(&spec, Account { username: "landfall".into(), password: password.into() }, "m1").await
}

#[tokio::test]
async fn the_simulator_of_openipmi_is_read_set_and_switched() {
    let dir = tempfile::tempdir().unwrap();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _simulator = start(dir.path(), port, 9);
    let begun = Instant::now();
    // It opens its port in a moment.
    let mut bmc = loop {
        match log_in(port, "right").await {
            Ok(bmc) => break bmc,
            Err(BmcError::Unreachable { .. }) if begun.elapsed() < Duration::from_secs(30) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(bmc.inventory().await.unwrap().bmc_firmware, "9.08");
    assert_eq!(bmc.power().await, Ok(Some(PowerState::Off)));
    bmc.set_boot(BootOverride { device: BootDevice::Pxe, once: true, mode: Some(BootMode::Uefi) }).await.unwrap();
    assert_eq!(read(dir.path(), "boot"), "pxe");
    bmc.change_power(PowerChange::On).await.unwrap();
    assert_eq!((read(dir.path(), "power").as_str(), bmc.power().await), ("1", Ok(Some(PowerState::On))));
    bmc.set_boot(BootOverride { device: BootDevice::None, once: false, mode: None }).await.unwrap();
    assert_eq!(read(dir.path(), "boot"), "none");
    bmc.change_power(PowerChange::Shutdown).await.unwrap();
    assert_eq!(read(dir.path(), "shutdown"), "1");
    bmc.change_power(PowerChange::Off).await.unwrap();
    assert_eq!(bmc.power().await, Ok(Some(PowerState::Off)));
    bmc.close().await;
    assert!(matches!(log_in(port, "wrong").await.err(), Some(BmcError::Refused { .. })));
}

async fn console(port: u16, take_over: bool) -> Result<Console, BmcError> {
    let account = Account { username: "landfall".into(), password: "right".into() };
    Console::open(&format!("ipmi://127.0.0.1:{port}").parse().unwrap(), account, take_over).await
}

/// Reads until that has come.
async fn expect(console: &mut Console, wanted: &[u8]) {
    let mut out = Vec::new();
    while out.len() < wanted.len() {
        let event = timeout(Duration::from_secs(30), console.next()).await;
        match event.unwrap_or_else(|_| panic!("30 s after {:?}", String::from_utf8_lossy(&out))).unwrap() {
            ConsoleEvent::Output(bytes) => out.extend(bytes),
            other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&out)),
        }
    }
    assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(wanted));
}

#[tokio::test]
async fn the_simulator_of_openipmi_passes_a_console_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let serial = TcpListener::bind("127.0.0.1:0").unwrap();
    let _simulator = start(dir.path(), port, serial.local_addr().unwrap().port());
    // In the place of the computer: it writes back what it reads, in capitals.
    let (mut reads, mut writes) = {
        let (stream, _) = tokio::task::spawn_blocking(move || serial.accept()).await.unwrap().unwrap();
        (stream.try_clone().unwrap(), stream)
    };
    let mut boot = writes.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok(length @ 1..) = reads.read(&mut buffer) {
            writes.write_all(&buffer[..length].to_ascii_uppercase()).unwrap();
        }
    });
    let begun = Instant::now();
    let mut first = loop {
        match console(port, false).await {
            Ok(console) => break console,
            Err(BmcError::Unreachable { .. }) if begun.elapsed() < Duration::from_secs(30) => {}
            Err(error) => panic!("{error}"),
        }
    };
    let lines: String = (0..400).map(|n| format!("[{n:4}] a line of a kernel that starts\r\n")).collect();
    boot.write_all(lines.as_bytes()).unwrap();
    expect(&mut first, lines.as_bytes()).await;
    first.type_in(b"echo one line of input that is longer than one packet may be for this simulator\r");
    expect(&mut first, b"ECHO ONE LINE OF INPUT THAT IS LONGER THAN ONE PACKET MAY BE FOR THIS SIMULATOR\r").await;
    let busy = console(port, false).await.err().unwrap();
    assert!(matches!(busy, BmcError::ConsoleBusy { .. }), "{busy}");
    let mut second = console(port, true).await.unwrap();
    second.type_in(b"mine");
    expect(&mut second, b"MINE").await;
    second.close().await;
    console(port, false).await.unwrap().close().await;
}
