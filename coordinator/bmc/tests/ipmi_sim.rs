//! The client of IPMI against OpenIPMI's simulator, which knows cipher suites up to 14: suite 3.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_api::{BmcSpec, PowerState};
use landfall_bmc::{Account, Bmc, BmcError, BootDevice, BootMode, BootOverride, PowerChange, connect};

/// It ends with the test.
struct Simulator(Child);

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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

fn start(dir: &Path, port: u16) -> Simulator {
    let file = |name: &str| dir.join(name).display().to_string();
    let config = format!(
        "name \"test\"\nset_working_mc 0x20\nstartlan 1\naddr 127.0.0.1 {port}\npriv_limit admin\n\
         allowed_auths_admin none md2 md5 straight\nguid a123456789abcdefa123456789abcdef\nendlan\n\
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
    let spec = BmcSpec { address, credentials: "s".into(), certificate: None, ca_certificates: vec![], ways: vec![] };
    connect(&spec, Account { username: "landfall".into(), password: password.into() }).await
}

#[tokio::test]
async fn the_simulator_of_openipmi_is_read_set_and_switched() {
    let dir = tempfile::tempdir().unwrap();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _simulator = start(dir.path(), port);
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
