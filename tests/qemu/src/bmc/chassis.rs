//! What OpenIPMI's simulator runs to read and to change its chassis: it asks the lab (`landfall-lab chassis`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::LabError;

/// For an answer of the lab: a machine is locked while QEMU starts or ends.
const ANSWER: Duration = Duration::from_secs(30);

/// A request of the simulator, as it is on the command line.
#[derive(Debug, clap::Args)]
pub struct Chassis {
    /// The lab's socket
    #[arg(long)]
    socket: PathBuf,
    /// The machine's UUID
    #[arg(long)]
    system: String,
    deed: Deed,
    /// Names, or names and values
    words: Vec<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Deed {
    /// `get power boot`: a line for each, such as `power:1`
    Get,
    /// `set boot pxe`: nothing is printed
    Set,
}

impl Chassis {
    /// Carries out a request; what is to be printed.
    ///
    /// # Errors
    /// [`LabError`] if the lab does not answer, or cannot do it.
    pub fn carry_out(&self) -> Result<String, LabError> {
        match self.deed {
            Deed::Get => {
                let state = self.ask(json!({}))?;
                self.words.iter().map(|name| value(name, &state).ok_or_else(|| self.refused(name))).collect()
            }
            Deed::Set => {
                for pair in self.words.chunks(2) {
                    let [name, value] = pair else { return Err(self.refused("a name without a value")) };
                    self.ask(wish(name, value).ok_or_else(|| self.refused(&format!("{name} {value}")))?)?;
                }
                Ok(String::new())
            }
        }
    }

    fn ask(&self, mut question: Value) -> Result<Value, LabError> {
        question["system"] = json!(self.system);
        let answer = exchange(&self.socket, &question).map_err(LabError::file("no answer at", &self.socket))?;
        match answer["refused"].as_str() {
            Some(why) => Err(self.refused(why)),
            None => Ok(answer),
        }
    }

    fn refused(&self, what: &str) -> LabError {
        LabError::Refused { system: self.system.clone(), what: what.to_owned() }
    }
}

fn exchange(socket: &Path, question: &Value) -> std::io::Result<Value> {
    let mut lab = UnixStream::connect(socket)?;
    lab.set_read_timeout(Some(ANSWER))?;
    lab.write_all(format!("{question}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(lab).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// The simulator's line for a value; absent: it has no such value.
fn value(name: &str, state: &Value) -> Option<String> {
    let value = match (name, state["power"].as_str()?, state["boot"].as_str()?) {
        ("power", "On", _) => "1",
        ("power", ..) => "0",
        ("boot", _, "Pxe") => "pxe",
        ("boot", ..) => "none",
        _ => return None,
    };
    Some(format!("{name}:{value}\n"))
}

/// The lab's words for the simulator's; absent: it has none. The simulator does not say for how many starts a boot device counts: for
/// one, as IPMI has it where a client says nothing.
fn wish(name: &str, value: &str) -> Option<Value> {
    let reset = |kind: &str| json!({ "reset": kind });
    Some(match (name, value) {
        ("power", "1") => reset("On"),
        ("power", "0") => reset("ForceOff"),
        ("reset", _) => reset("ForceRestart"),
        ("shutdown", _) => reset("GracefulShutdown"),
        ("boot", "pxe") => json!({ "boot": "Pxe", "enabled": "Once" }),
        ("boot", "none" | "default") => json!({ "boot": "None", "enabled": "Disabled" }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulators_words_are_the_labs() {
        let state = json!({ "power": "On", "boot": "Pxe" });
        assert_eq!(value("power", &state).as_deref(), Some("power:1\n"));
        assert_eq!(value("boot", &state).as_deref(), Some("boot:pxe\n"));
        assert_eq!(value("identify", &state), None);
        assert_eq!(wish("shutdown", "1"), Some(json!({ "reset": "GracefulShutdown" })));
        assert_eq!(wish("boot", "bios"), None);
    }
}
