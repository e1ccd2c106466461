//! The result: a sentence for people, JSON for programs.

use std::{fs::File, io::Write, path::Path, time::Instant};

use landfall_api::Problem;
use landfall_disk::WriteOutcome;
use serde_json::{Value, json};

use super::{Stop, show};

/// Where the result goes.
pub(super) struct Summary {
    /// The report's file, or stdout.
    report: Option<Box<dyn Write>>,
    /// The report uses stdout alone.
    stdout_taken: bool,
    device: String,
    image: String,
    begun: Instant,
}

impl Summary {
    /// Makes the report's file, if one is wanted.
    pub(super) fn open(report: Option<&Path>, device: &Path, image: &str) -> Result<Self, Stop> {
        let stdout_taken = report == Some(Path::new("-"));
        let report: Option<Box<dyn Write>> = match report {
            None => None,
            Some(_) if stdout_taken => Some(Box::new(std::io::stdout())),
            Some(path) => {
                let file = File::create(path);
                Some(Box::new(file.map_err(|e| Stop::Use(format!("cannot write --report {}: {e}", path.display())))?))
            }
        };
        let (device, image) = (device.display().to_string(), image.to_owned());
        Ok(Self { report, stdout_taken, device, image, begun: Instant::now() })
    }

    /// Reports success. A report that cannot be written does not undo the write, but it is not a success.
    pub(super) fn written(&mut self, outcome: &WriteOutcome, read_back: bool) -> Result<(), Stop> {
        let mut text = sentence(&self.device, outcome, read_back);
        if let Some(why) = &outcome.installed.no_receipt {
            text.push_str(&format!("\nno receipt on the disk: {why}"));
        }
        if self.stdout_taken {
            eprintln!("{text}");
        } else {
            println!("{text}");
        }
        let mut report = json!({
            "outcome": if outcome.written { "written" } else { "alreadyDone" },
            "device": self.device,
            "image": self.image,
            "storedBytes": outcome.installed.stored_bytes,
            "rawBytes": outcome.installed.raw_bytes,
            "writtenBytes": outcome.installed.written_bytes,
            "seconds": outcome.elapsed.as_secs_f64(),
            "readBack": read_back && outcome.written,
        });
        if let Some(receipt) = &outcome.installed.receipt {
            report["receipt"] = json!(receipt);
        }
        if let Some(why) = &outcome.installed.no_receipt {
            report["noReceipt"] = json!(why);
        }
        self.tell(&report).map_err(|e| {
            let text = format!("{} holds the image, but the report could not be written: {e}", self.device);
            Stop::from(Problem::new(landfall_api::ErrorCode::Internal, text))
        })
    }

    /// Reports a failure; the caller prints the sentence.
    pub(super) fn failed(&mut self, problem: &Problem) {
        let report = json!({
            "outcome": "failed",
            "device": self.device,
            "image": self.image,
            "seconds": self.begun.elapsed().as_secs_f64(),
            "problem": problem,
        });
        if let Err(e) = self.tell(&report) {
            eprintln!("landfall-agent: the report could not be written: {e}");
        }
    }

    fn tell(&mut self, report: &Value) -> std::io::Result<()> {
        let Some(out) = &mut self.report else { return Ok(()) };
        writeln!(out, "{report:#}")?;
        out.flush()
    }
}

fn sentence(device: &str, outcome: &WriteOutcome, read_back: bool) -> String {
    if !outcome.written {
        return format!("{device} already carries this install; nothing was written");
    }
    let seconds = outcome.elapsed.as_secs_f64();
    format!(
        "{device} holds the image: {} fetched, {} raw, {} written{} in {seconds:.1} s ({}/s)",
        show::bytes(outcome.installed.stored_bytes),
        show::bytes(outcome.installed.raw_bytes),
        show::bytes(outcome.installed.written_bytes),
        if read_back { ", all of it read back," } else { "" },
        show::bytes((outcome.installed.raw_bytes as f64 / seconds.max(0.001)) as u64),
    )
}
