//! What a server's board has beside its processors, each a program of its own: a TPM (swtpm), and a BMC (OpenIPMI's simulator).

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use super::spec::seed;
use super::{Machine, MachineSpec};
use crate::{LabError, Log, Process};

/// The address that every BMC of the lab says it has, and where it answers IPMI: on the loopback of the lab's own network, where the
/// coordinator reaches it too. A network has one such machine.
pub const BMC_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
/// The MAC address of its port.
pub const BMC_MAC: &str = "52:54:00:00:00:99";
/// How long swtpm has to open its socket.
const START_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn tpm_socket(dir: &Path) -> PathBuf {
    dir.join("tpm.sock")
}

/// Where the simulator waits for QEMU, on the loopback of the lab's own network.
pub(super) fn bmc_port(spec: &MachineSpec) -> u16 {
    20_000 + (seed(&spec.name) % 20_000) as u16
}

fn state(dir: &Path) -> PathBuf {
    dir.join("tpm")
}

fn run(program: &'static str, arguments: &[&str]) -> Result<Vec<u8>, LabError> {
    let done = Command::new(program).args(arguments).output();
    let Output { status, stdout, stderr } =
        done.map_err(|source| LabError::Spawn { program: program.to_owned(), source })?;
    if status.success() {
        return Ok(stdout);
    }
    let (command, stderr) = (format!("{program} {}", arguments.join(" ")), [stdout, stderr].concat());
    Err(LabError::Command {
        command,
        status: status.to_string(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    })
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(LabError::file("cannot write", path))
}

/// Makes the TPM: keys, and their certificates by an authority of its own.
pub(super) fn make_tpm(dir: &Path) -> Result<(), LabError> {
    let state = state(dir);
    if state.exists() {
        return Ok(());
    }
    std::fs::create_dir(&state).map_err(LabError::file("cannot make", &state))?;
    let (setup, authority, state) = (state.join("setup.conf"), state.join("ca.conf"), state.display());
    write(
        &authority,
        &format!(
            "statedir={state}\nsigningkey={state}/key.pem\nissuercert={state}/ca.pem\ncertserial={state}/serial\n"
        ),
    )?;
    let (tool, authority) = ("create_certs_tool=/usr/bin/swtpm_localca", authority.display());
    write(&setup, &format!("{tool}\ncreate_certs_tool_config={authority}\n"))?;
    let (state, setup) = (state.to_string(), setup.display().to_string());
    let made = run(
        "swtpm_setup",
        &["--tpm2", "--tpm-state", &state, "--config", &setup, "--create-ek-cert", "--write-ek-cert-files", &state],
    );
    if made.is_err() {
        // Half of one is none. The error that is shown is the first.
        drop(std::fs::remove_dir_all(&state));
    }
    made.map(drop)
}

/// The public part of the endorsement key of a machine's TPM as OpenSSL reads it from the certificate: a SubjectPublicKeyInfo in DER.
///
/// # Errors
/// [`LabError`] if it has no TPM, or OpenSSL is missing.
pub fn endorsement_key(machine: &Machine) -> Result<Vec<u8>, LabError> {
    let file = |name: &str| state(&machine.dir).join(name).display().to_string();
    let public = file("public.pem");
    run("openssl", &["x509", "-inform", "DER", "-in", &file("ek-rsa2048.crt"), "-noout", "-pubkey", "-out", &public])?;
    run("openssl", &["pkey", "-pubin", "-in", &public, "-outform", "DER"])
}

/// Starts what this machine has. It ends with the machine.
pub(super) async fn start(
    spec: &MachineSpec, dir: &Path, namespace: &str, log: &Log,
) -> Result<Vec<Process>, LabError> {
    let mut running = Vec::new();
    let mut spawn = |program: &str, arguments: &[String]| {
        let mut command = tokio::process::Command::new("ip");
        command.args(["netns", "exec", namespace, "setpriv", "--pdeathsig", "KILL", "--", program]).args(arguments);
        running.push(Process::spawn(&format!("{program} ({})", spec.name), command, log.clone())?);
        Ok::<(), LabError>(())
    };
    if spec.bmc {
        spawn("ipmi_sim", &simulator(spec, dir)?)?;
    }
    if spec.tpm {
        let socket = tpm_socket(dir);
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(LabError::file("cannot remove", &socket)(error));
            }
            _ => {}
        }
        let (state, control) =
            (format!("dir={}", state(dir).display()), format!("type=unixio,path={}", socket.display()));
        spawn("swtpm", &["socket", "--tpm2", "--tpmstate", &state, "--ctrl", &control].map(str::to_owned))?;
        let end = tokio::time::Instant::now() + START_LIMIT;
        while !socket.exists() {
            if tokio::time::Instant::now() > end {
                let what = format!("{} of swtpm", socket.display());
                return Err(LabError::Timeout { what, limit: START_LIMIT, tail: log.tail(12) });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(running)
}

/// The files and the arguments of OpenIPMI's simulator.
fn simulator(spec: &MachineSpec, dir: &Path) -> Result<Vec<String>, LabError> {
    let dir = dir.join("bmc");
    std::fs::create_dir_all(&dir).map_err(LabError::file("cannot make", &dir))?;
    let (config, commands, program) = (dir.join("lan.conf"), dir.join("commands"), dir.join("lan"));
    let (name, port) = (&spec.name, bmc_port(spec));
    write(
        &config,
        &format!(
            "name \"{name}\"\nset_working_mc 0x20\nstartlan 1\naddr {BMC_ADDRESS} 623\npriv_limit admin\n\
             allowed_auths_admin none md2 md5 straight\nguid a123456789abcdefa123456789abcdef\n\
             lan_config_program \"{}\"\nendlan\nserial 15 127.0.0.1 {port} codec VM\nstartnow false\n\
             user 2 true \"admin\" \"secret\" admin 10 none md2 md5 straight\n",
            program.display(),
        ),
    )?;
    // Firmware 9.08, IPMI 2.0, of Dell's number.
    write(&commands, "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x02 9 8 0x9f 674 0x0100\nmc_enable 0x20\n")?;
    let mut script = "#!/bin/sh\n[ \"$1\" = get ] || exit 1\nshift\nfor name; do case $name in\n".to_owned();
    for (name, value) in [
        ("ip_addr", BMC_ADDRESS.to_string().as_str()),
        ("ip_addr_src", "dhcp"),
        ("mac_addr", BMC_MAC),
        ("subnet_mask", "255.255.255.0"),
        ("default_gw_ip_addr", "192.0.2.1"),
    ] {
        // Writing to a string does not fail.
        let _ = writeln!(script, "{name}) echo {name}:{value} ;;");
    }
    write(&program, &(script + "esac; done\n"))?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .map_err(LabError::file("cannot make executable", &program))?;
    let paths = [&config, &commands, &dir].map(|path| path.display().to_string());
    let [config, commands, dir] = paths;
    Ok(["-c".into(), config, "-f".into(), commands, "-s".into(), dir, "-n".into()].to_vec())
}
