//! An IPMI server (OpenIPMI's `ipmi_sim`) on the lab's network.
//!
//! It runs a program for each look at its chassis and each change of it: `landfall-lab chassis`, which asks the lab.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use crate::bmc::Systems;
use crate::{LabError, Log, Machine, Mark, Network, Process};

/// How long the server may take to start. Usually it is a tenth of a second.
const START_LIMIT: Duration = Duration::from_secs(60);
/// What makes it a BMC; the last one is echoed when it answers.
const COMMANDS: &str = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x02 9 8 0x9f 674 0x0100\nmc_enable 0x20\n";
const LAST_COMMAND: &str = "mc_enable";

/// An IPMI server and its machine, which is off at first, and starts from its disks alone unless a client wants otherwise.
#[derive(Debug)]
pub struct Ipmi {
    // Dropped in this order: no request is under way when the machine ends.
    _process: Process,
    systems: Systems,
}

impl Ipmi {
    /// Who may use it, as an administrator; with cipher suite 3.
    pub const USERNAME: &str = "lab";
    /// Their password: the simulator reads one word, of at most 15 bytes.
    pub const PASSWORD: &str = "power-of-lab";

    /// Starts the server beside the coordinator, in front of this machine; its log goes to `<dir>/ipmi.log`. `program` is a binary with
    /// the subcommand `chassis` (this crate's own).
    ///
    /// # Errors
    /// [`LabError`] if `ipmi_sim` is missing (`scripts/setup` installs openipmi) or does not start.
    pub async fn start(program: &Path, machine: Machine, network: &Network, dir: &Path) -> Result<Self, LabError> {
        let log = Log::open(&dir.join("ipmi.log"))?;
        let systems = Systems::start(vec![machine], dir, &log)?;
        let (chassis, state) = (dir.join("chassis"), dir.join("ipmi.state"));
        // The simulator reads 256 bytes of a line, so the program's words are in a file of their own.
        let words = [program, Path::new("chassis"), Path::new("--socket"), systems.socket(), Path::new("--system")];
        let words: Vec<_> = words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        let script = format!("#!/bin/sh\nshift\nexec {} {} \"$@\"\n", words.join(" "), quoted(systems.uuid(0)));
        let (config, commands) = (dir.join("ipmi.conf"), dir.join("ipmi.commands"));
        for (file, text) in [(&config, configuration(&chassis)), (&commands, COMMANDS.to_owned()), (&chassis, script)] {
            fs::write(file, text).map_err(LabError::file("cannot write", file))?;
        }
        fs::set_permissions(&chassis, Permissions::from_mode(0o755)).map_err(LabError::file("cannot run", &chassis))?;
        fs::create_dir(&state).map_err(LabError::file("cannot make", &state))?;
        let mut command = network.command("ipmi_sim");
        command.arg("-c").arg(&config).arg("-f").arg(&commands).arg("-s").arg(&state);
        let mut process = Process::spawn("ipmi_sim", command, log)?;
        process.wait_stderr(Mark::default(), LAST_COMMAND, START_LIMIT).await?;
        Ok(Self { _process: process, systems })
    }

    /// Its address, as a machine's document states it.
    pub fn address() -> String {
        format!("ipmi://{}", Network::ADDRESS)
    }

    /// The one machine.
    pub fn systems(&self) -> &Systems {
        &self.systems
    }
}

fn configuration(chassis: &Path) -> String {
    let (address, chassis) = (Network::ADDRESS, chassis.display());
    let (name, password) = (Ipmi::USERNAME, Ipmi::PASSWORD);
    format!(
        "name \"lab\"\nset_working_mc 0x20\nstartlan 1\naddr {address} 623\npriv_limit admin\n\
         allowed_auths_admin none md2 md5 straight\nguid a123456789abcdefa123456789abcdef\nendlan\n\
         chassis_control \"{chassis} 0x20\"\nstartnow false\n\
         user 2 true \"{name}\" \"{password}\" admin 10 none md2 md5 straight\n"
    )
}

/// A word of a shell's command.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_quotes_stays_one_word() {
        assert_eq!(quoted("it's a $HOME"), r"'it'\''s a $HOME'");
    }
}
