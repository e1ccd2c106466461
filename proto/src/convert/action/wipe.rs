//! `wipe`.

use landfall_api::{DiskId, WipeLevel, WipeReport, WipeSpec, message::WipeResult};

use super::super::{
    ConvertError,
    scalar::{timestamp, timestamp_to_wire},
    selector::{selector, selector_to_wire},
};
use crate::v1;

impl TryFrom<v1::Wipe> for WipeSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::Wipe) -> Result<Self, ConvertError> {
        Ok(Self {
            disks: wire.disks.into_iter().map(|disk| selector(disk.fields)).collect(),
            level: level("level", &wire.level)?,
            fallback: wire.fallback.iter().map(|name| level("fallback", name)).collect::<Result<_, _>>()?,
        })
    }
}

impl From<WipeSpec> for v1::Wipe {
    fn from(spec: WipeSpec) -> Self {
        let disks = spec.disks.into_iter();
        Self {
            disks: disks.map(|disk| v1::Selector { fields: selector_to_wire(disk) }).collect(),
            level: spec.level.as_str().into(),
            fallback: spec.fallback.iter().map(ToString::to_string).collect(),
        }
    }
}

impl TryFrom<v1::WipeResult> for WipeResult {
    type Error = ConvertError;

    fn try_from(wire: v1::WipeResult) -> Result<Self, ConvertError> {
        if wire.disks.is_empty() {
            return Err(ConvertError::missing("wipe.disks"));
        }
        Ok(result(wire))
    }
}

/// The result as it stands.
pub(super) fn result(wire: v1::WipeResult) -> WipeResult {
    WipeResult { disks: wire.disks.into_iter().map(DiskId::from).collect() }
}

impl From<WipeResult> for v1::WipeResult {
    fn from(result: WipeResult) -> Self {
        Self { disks: result.disks.into_iter().map(v1::DiskId::from).collect() }
    }
}

impl TryFrom<v1::WipeReport> for WipeReport {
    type Error = ConvertError;

    fn try_from(wire: v1::WipeReport) -> Result<Self, ConvertError> {
        Ok(Self {
            disk: wire.disk.map(DiskId::from).ok_or_else(|| ConvertError::missing("disk"))?,
            asked: level("asked", &wire.asked)?,
            level: level("level", &wire.level)?,
            method: wire.method,
            started_at: timestamp("started_at", wire.started_at)?,
            ended_at: timestamp("ended_at", wire.ended_at)?,
            samples: wire.samples,
            limits: wire.limits,
            workflow: String::new(),
        })
    }
}

impl From<WipeReport> for v1::WipeReport {
    fn from(report: WipeReport) -> Self {
        Self {
            disk: Some(report.disk.into()),
            asked: report.asked.as_str().into(),
            level: report.level.as_str().into(),
            method: report.method,
            started_at: Some(timestamp_to_wire(report.started_at)),
            ended_at: Some(timestamp_to_wire(report.ended_at)),
            samples: report.samples,
            limits: report.limits,
        }
    }
}

fn level(field: &'static str, name: &str) -> Result<WipeLevel, ConvertError> {
    WipeLevel::named(name).ok_or_else(|| ConvertError::new(field, format!("\"{name}\" is no level of wiping")))
}
