//! `healthTest`.

use landfall_api::{DiskSelector, HealthReport, HealthTest, HealthTestResult};

use crate::convert::{ConvertError, Within as _, codec::*, word::*};
use crate::v1::{self, health_test::Test};

wire! {
    HealthTestResult = v1::HealthTestResult, checked by some_part { parts }
    // Which workflow it was is not the agent's to say.
    HealthReport = v1::HealthReport, without workflow {
        test: word, part: text, disk: one_if_any, started_at: moment, ended_at: moment, bytes, bytes_per_second, slowest_ms, errors,
        corrected, hottest_celsius, faults
    }
}

fn some_part(wire: &v1::HealthTestResult) -> Result<(), ConvertError> {
    if wire.parts == 0 { Err(ConvertError::missing("parts")) } else { Ok(()) }
}

/// 1 to 100.
fn percent(wire: u32) -> Result<u8, ConvertError> {
    let within = u8::try_from(wire).ok().filter(|percent| (1..=100).contains(percent));
    within.ok_or_else(|| ConvertError::new("percent", format!("{wire} is not from 1 to 100")))
}

fn disks(wire: v1::DiskTest, write: bool) -> Result<HealthTest, ConvertError> {
    let disks: Vec<DiskSelector> = selectors::from("disks", wire.disks)?;
    if write && disks.is_empty() {
        return Err(ConvertError::missing("disks"));
    }
    let min_speed = number_if_any::from("min_speed", wire.min_speed)?;
    Ok(HealthTest::Disks { write, disks, percent: percent(wire.percent)?, min_speed })
}

impl TryFrom<v1::HealthTest> for HealthTest {
    type Error = ConvertError;

    fn try_from(wire: v1::HealthTest) -> Result<Self, ConvertError> {
        Ok(match wire.test.ok_or_else(|| ConvertError::missing("test"))? {
            Test::Memory(v1::MemoryTest { passes: 0, .. }) => return Err(ConvertError::missing("memory.passes")),
            Test::Memory(wire) => {
                Self::Memory { percent: percent(wire.percent).within("memory")?, passes: wire.passes }
            }
            Test::Cpu(wire) => {
                let too_hot =
                    |_| ConvertError::new("cpu.max_celsius", format!("{} is no temperature", wire.max_celsius));
                let max_celsius = u8::try_from(wire.max_celsius).map_err(too_hot)?;
                let time = span::from("time", wire.time).within("cpu")?;
                Self::Cpu { time, max_celsius: number_if_any::from("max_celsius", max_celsius)? }
            }
            Test::DiskRead(wire) => disks(wire, false).within("disk_read")?,
            Test::DiskWrite(wire) => disks(wire, true).within("disk_write")?,
            Test::Network(wire) => Self::Network {
                url: text::from("network.url", wire.url)?,
                time: span::from("time", wire.time).within("network")?,
                min_speed: number_if_any::from("min_speed", wire.min_speed)?,
            },
        })
    }
}

impl From<HealthTest> for v1::HealthTest {
    fn from(test: HealthTest) -> Self {
        let test = match test {
            HealthTest::Memory { percent, passes } => Test::Memory(v1::MemoryTest { percent: percent.into(), passes }),
            HealthTest::Cpu { time, max_celsius } => {
                let max_celsius = max_celsius.unwrap_or_default().into();
                Test::Cpu(v1::CpuTest { time: span::to(time), max_celsius })
            }
            HealthTest::Disks { write, disks, percent, min_speed } => {
                let min_speed = number_if_any::to(min_speed);
                let wire = v1::DiskTest { disks: selectors::to(disks), percent: percent.into(), min_speed };
                if write { Test::DiskWrite(wire) } else { Test::DiskRead(wire) }
            }
            HealthTest::Network { url, time, min_speed } => {
                Test::Network(v1::NetworkTest { url, time: span::to(time), min_speed: number_if_any::to(min_speed) })
            }
        };
        Self { test: Some(test) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use landfall_api::{DiskId, HealthTestKind};

    use super::*;
    use crate::convert::testing::{refused, survives};

    const TIME: Duration = Duration::from_secs(9);

    fn written(disks: Vec<DiskSelector>) -> HealthTest {
        HealthTest::Disks { write: true, disks, percent: 10, min_speed: Some(5) }
    }

    #[test]
    fn every_health_test_survives_the_wire() {
        for test in [
            HealthTest::Memory { percent: 100, passes: 3 },
            HealthTest::Cpu { time: TIME, max_celsius: Some(95) },
            HealthTest::Cpu { time: TIME, max_celsius: None },
            HealthTest::Disks { write: false, disks: Vec::new(), percent: 1, min_speed: None },
            written(vec![DiskSelector([("serial".into(), "a".into())].into())]),
            HealthTest::Network { url: "http://h/".into(), time: TIME, min_speed: Some(1) },
        ] {
            survives::<v1::HealthTest, _>(test);
        }
        let report = HealthReport {
            disk: Some(DiskId { name: "sda".into(), ..DiskId::default() }),
            hottest_celsius: Some(-4),
            faults: vec!["it is slow".into()],
            ..HealthReport::begun(HealthTestKind::DiskRead, "sda", Timestamp::UNIX_EPOCH)
        };
        survives::<v1::HealthReport, _>(report);
    }

    #[test]
    fn a_health_test_of_nothing_is_refused() {
        refused::<v1::HealthTest, _>(
            written(vec![DiskSelector::default()]),
            &[
                ("test", |w| w.test = None),
                ("memory.passes", |w| w.test = Some(Test::Memory(v1::MemoryTest { percent: 1, passes: 0 }))),
                ("memory.percent", |w| w.test = Some(Test::Memory(v1::MemoryTest { percent: 101, passes: 1 }))),
                ("cpu.time", |w| w.test = Some(Test::Cpu(v1::CpuTest::default()))),
                ("disk_read.percent", |w| w.test = Some(Test::DiskRead(v1::DiskTest::default()))),
                ("disk_write.disks", |w| w.test = Some(Test::DiskWrite(v1::DiskTest::default()))),
                ("network.url", |w| w.test = Some(Test::Network(v1::NetworkTest::default()))),
            ],
        );
    }
}
