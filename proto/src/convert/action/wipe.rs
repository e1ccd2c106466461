//! `wipe`.

use landfall_api::{WipeReport, WipeSpec, message::WipeResult};

use crate::convert::{ConvertError, codec::*, word::*};
use crate::v1;

wire! {
    WipeSpec = v1::Wipe { disks: selectors, level: word, fallback: words }
    WipeResult = v1::WipeResult, checked by some_disk { disks: list }
}

fn some_disk(wire: &v1::WipeResult) -> Result<(), ConvertError> {
    if wire.disks.is_empty() { Err(ConvertError::missing("disks")) } else { Ok(()) }
}

impl TryFrom<v1::WipeReport> for WipeReport {
    type Error = ConvertError;

    fn try_from(wire: v1::WipeReport) -> Result<Self, ConvertError> {
        Ok(Self {
            disk: one::from("disk", wire.disk)?,
            asked: word::from("asked", wire.asked)?,
            level: word::from("level", wire.level)?,
            method: wire.method,
            started_at: moment::from("started_at", wire.started_at)?,
            ended_at: moment::from("ended_at", wire.ended_at)?,
            samples: wire.samples,
            limits: wire.limits,
            workflow: String::new(),
        })
    }
}

impl From<WipeReport> for v1::WipeReport {
    fn from(report: WipeReport) -> Self {
        Self {
            disk: one::to(report.disk),
            asked: word::to(report.asked),
            level: word::to(report.level),
            method: report.method,
            started_at: moment::to(report.started_at),
            ended_at: moment::to(report.ended_at),
            samples: report.samples,
            limits: report.limits,
        }
    }
}
