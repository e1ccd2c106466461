//! A shell for the person at the machine, in a boot image that was built with one: on the second terminal of the screen (Alt-F2), and
//! on each serial console. A person who is there is root; a boot image without a shell has no way to one.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use rustix::termios::{InputModes, LocalModes, OptionalActions, OutputModes, tcgetattr, tcsetattr};

use crate::children::Own;

/// A static busybox. `landfall-image initramfs --rescue-shell` packs it there; the same path stands in `image/src/initramfs.rs`.
const SHELL: &str = "/rescue/busybox";
/// Where its programs are linked to it.
const PROGRAMS: &str = "/rescue/bin";
/// The second terminal of the screen.
const TERMINAL: &str = "tty2";
/// Where the kernel names its consoles.
const CONSOLES: &str = "/sys/class/tty/console/active";
/// Typed to get the shell: noise on a serial line is not.
const WORD: &str = "shell";
/// Between two looks at whether the shell has ended.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two prompts: an echoing line would answer each at once.
const PROMPT: Duration = Duration::from_secs(1);
/// Between two attempts to use a terminal, and two looks for new ones: a driver may be loaded later.
const AGAIN: Duration = Duration::from_secs(30);

/// Offers the shell, if there is one; for ever.
pub(super) fn offer() {
    if !Path::new(SHELL).exists() {
        return;
    }
    let linked = fs::create_dir_all(PROGRAMS)
        .and_then(|()| Own::spawn(Command::new(SHELL).args(["--install", "-s", PROGRAMS])))
        .and_then(wait);
    match linked {
        Ok(status) if status.success() => {}
        Ok(status) => return tracing::error!("no rescue shell: {SHELL} --install: {status}"),
        Err(e) => return tracing::error!("no rescue shell: {SHELL}: {e}"),
    }
    tracing::warn!("this boot image has a rescue shell: press Alt-F2 and type {WORD}; a person at the machine is root");
    let mut known = BTreeSet::new();
    loop {
        let consoles = fs::read_to_string(CONSOLES).unwrap_or_default();
        for name in terminals(&consoles).filter(|name| known.insert(name.clone())) {
            tracing::info!("{name}: a person who types {WORD} there gets the rescue shell");
            thread::spawn(move || serve(&name));
        }
        thread::sleep(AGAIN);
    }
}

/// The second terminal, and the consoles that are no terminals of the screen.
fn terminals(consoles: &str) -> impl Iterator<Item = String> {
    let is_screens = |name: &str| name.strip_prefix("tty").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    let others = consoles.split_whitespace().filter(move |name| !is_screens(name)).map(str::to_owned);
    std::iter::once(TERMINAL.to_owned()).chain(others.collect::<Vec<_>>())
}

/// Runs a shell for a person who asks for one, again and again.
fn serve(name: &str) {
    let path = Path::new("/dev").join(name);
    loop {
        if let Err(e) = serve_one(&path) {
            tracing::debug!("no rescue shell on {}: {e}", path.display());
            thread::sleep(AGAIN);
        }
    }
}

fn serve_one(path: &PathBuf) -> io::Result<()> {
    // A shell gets a terminal of its own by `setsid -c`; the agent takes none.
    let open = || OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(path);
    asked(&open()?)?;
    let [stdin, stdout, stderr] = [open()?, open()?, open()?].map(Stdio::from);
    let mut shell = Command::new(SHELL);
    shell
        .args(["setsid", "-c", SHELL, "sh"])
        .env("PATH", PROGRAMS)
        .env("PS1", "landfall rescue \\w # ")
        .current_dir("/");
    wait(Own::spawn(shell.stdin(stdin).stdout(stdout).stderr(stderr))?).map(drop)
}

/// Waits until the word is typed.
fn asked(mut terminal: &File) -> io::Result<()> {
    // A program that was killed may have left the terminal without lines or echo.
    let mut modes = tcgetattr(terminal)?;
    modes.input_modes.remove(InputModes::IGNCR | InputModes::INLCR);
    modes.input_modes.insert(InputModes::ICRNL);
    modes.output_modes.insert(OutputModes::OPOST | OutputModes::ONLCR);
    modes.local_modes.insert(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
    tcsetattr(terminal, OptionalActions::Now, &modes)?;
    let mut line = [0; 256];
    loop {
        writeln!(terminal, "\nLandfall rescue: type {WORD} and press Enter")?;
        // Other lines may be noise, and get no answer. Enter alone shows the prompt again.
        loop {
            let length = terminal.read(&mut line)?;
            match line[..length].trim_ascii() {
                typed if typed == WORD.as_bytes() => return Ok(()),
                [] => break,
                _ => {}
            }
        }
        thread::sleep(PROMPT);
    }
}

/// Waits for a process.
fn wait(mut process: Own) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = process.ended()? {
            return Ok(status);
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_terminal_and_serial_consoles_have_it() {
        for (consoles, wanted) in [
            ("tty0 ttyS0\n", &["tty2", "ttyS0"][..]),
            ("tty0\n", &["tty2"]),
            ("ttyS1 hvc0 tty1", &["tty2", "ttyS1", "hvc0"]),
            ("", &["tty2"]),
        ] {
            assert_eq!(terminals(consoles).collect::<Vec<_>>(), wanted, "{consoles}");
        }
    }
}
