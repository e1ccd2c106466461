//! `healthTest`: its fields, what is sent to the agent, and what comes of it.

use std::{fmt, str::FromStr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::http;
use super::kind::{ActionInfo, Declaration};
use super::rules::{Fault, Rules, plain_text};
use crate::issue::join;
use crate::selector::parse_size;
use crate::{DiskSelector, DurationSpec, HealthTestKind};

/// Tests one part of the machine: exactly one of its fields. What each part measured stays in the machine's status, and a machine
/// of which a part failed is not `Healthy`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthTestSpec {
    /// Memory that is free is written with patterns, read back and compared.
    pub memory: Option<MemoryTestSpec>,
    /// Every CPU computes at once what is known.
    pub cpu: Option<CpuTestSpec>,
    /// Disks are read, all at once.
    pub disk_read: Option<DiskReadSpec>,
    /// Disks are written, read back and compared, all at once. What was on them is lost.
    pub disk_write: Option<DiskWriteSpec>,
    /// A file is fetched again and again.
    pub network: Option<NetworkTestSpec>,
}

/// How memory is tested.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemoryTestSpec {
    /// How much of the memory that is free, 1 to 100. Something is always left for the agent. Default: 100.
    pub percent: Option<u8>,
    /// How often, 1 to 1000: each time every bit is once 0 and once 1. Default: 1.
    pub passes: Option<u32>,
}

/// How CPUs are tested.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CpuTestSpec {
    /// For how long. Default: 1m.
    pub time: Option<DurationSpec>,
    /// The highest temperature of a CPU that passes, degrees Celsius, 1 to 150; a machine without such a sensor is an error. Default: none.
    pub max_celsius: Option<u8>,
}

/// How disks are read.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskReadSpec {
    /// Which disks; exactly one must match each. Default: every disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskSelector>,
    /// How much of each disk, 1 to 100, in pieces from its start to its end. Default: 100.
    pub percent: Option<u8>,
    /// A disk that is slower fails. Default: none.
    pub min_speed: Option<SpeedSpec>,
}

/// How disks are written.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskWriteSpec {
    /// Which disks; exactly one must match each. At least one: what is on them is lost.
    pub disks: Vec<DiskSelector>,
    /// How much of each disk, 1 to 100, in pieces from its start to its end. Default: 100.
    pub percent: Option<u8>,
    /// A disk that writes or reads slower fails. Default: none.
    pub min_speed: Option<SpeedSpec>,
}

/// How the network is tested.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkTestSpec {
    /// An http or https URL of a large file. Default: the coordinator's boot image.
    pub url: Option<String>,
    /// For how long. Default: 10s.
    pub time: Option<DurationSpec>,
    /// A network that is slower fails. Default: none.
    pub min_speed: Option<SpeedSpec>,
}

/// Bytes per second, at least 1, written as a size and `/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeedSpec(u64);

/// Text that is no speed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a speed; write bytes per second, such as 100MB/s or 1.5GiB/s")]
pub struct SpeedError(String);

/// `healthTest` as an agent is sent it.
#[derive(Debug, Clone, PartialEq)]
pub enum HealthTest {
    /// Of memory.
    Memory {
        /// Of what is free; 1 to 100.
        percent: u8,
        /// At least 1.
        passes: u32,
    },
    /// Of CPUs.
    Cpu {
        /// Never zero.
        time: Duration,
        /// The highest temperature that passes, degrees Celsius.
        max_celsius: Option<u8>,
    },
    /// Of disks.
    Disks {
        /// Whether they are written: what was on them is lost.
        write: bool,
        /// Which. Empty, where they are only read: every disk.
        disks: Vec<DiskSelector>,
        /// Of each disk; 1 to 100.
        percent: u8,
        /// Bytes per second; a slower disk fails.
        min_speed: Option<u64>,
    },
    /// Of the network.
    Network {
        /// What is fetched.
        url: String,
        /// Never zero.
        time: Duration,
        /// Bytes per second; a slower network fails.
        min_speed: Option<u64>,
    },
}

/// What came of a `healthTest` that every part passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthTestResult {
    /// How many parts were tested; never 0. What each measured is in its [`crate::message::EventBody::HealthTested`].
    pub parts: u32,
}

/// The action's fields do not go together: `validate_actions` refuses them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the field {0} is missing or invalid")]
pub struct UnusableHealthTest(&'static str);

const CPU_TIME: DurationSpec = DurationSpec::from_secs(60);
const NETWORK_TIME: DurationSpec = DurationSpec::from_secs(10);
const MAX_PASSES: u64 = 1000;
/// Above what every CPU switches itself off at.
const MAX_CELSIUS: u64 = 150;

impl SpeedSpec {
    /// Bytes per second.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SpeedSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B/s", self.0)
    }
}

impl FromStr for SpeedSpec {
    type Err = SpeedError;

    fn from_str(text: &str) -> Result<Self, SpeedError> {
        let bytes = text.trim().strip_suffix("/s").filter(|size| size.ends_with('B')).map(parse_size);
        bytes.and_then(Result::ok).filter(|bytes| *bytes > 0).map(Self).ok_or_else(|| SpeedError(text.to_owned()))
    }
}

string_scalar!(SpeedSpec, "^[0-9]+([.][0-9]+)? ?[kKMGT]?i?B/s$", "Bytes per second, such as 100MB/s or 1.5GiB/s");

impl HealthTest {
    /// Which test it is.
    pub const fn kind(&self) -> HealthTestKind {
        match self {
            Self::Memory { .. } => HealthTestKind::Memory,
            Self::Cpu { .. } => HealthTestKind::Cpu,
            Self::Disks { write: false, .. } => HealthTestKind::DiskRead,
            Self::Disks { write: true, .. } => HealthTestKind::DiskWrite,
            Self::Network { .. } => HealthTestKind::Network,
        }
    }
}

impl HealthTestSpec {
    /// What an agent is sent. `boot_image`: what a network is tested with where the action names nothing.
    ///
    /// # Errors
    /// [`UnusableHealthTest`] where the fields do not go together.
    pub fn resolved(self, boot_image: &str) -> Result<HealthTest, UnusableHealthTest> {
        let speed = |stated: Option<SpeedSpec>| stated.map(SpeedSpec::get);
        let whole = |percent: Option<u8>| percent.unwrap_or(100);
        let Self { memory, cpu, disk_read, disk_write, network } = self;
        match (memory, cpu, disk_read, disk_write, network) {
            (Some(MemoryTestSpec { percent, passes }), None, None, None, None) => {
                Ok(HealthTest::Memory { percent: whole(percent), passes: passes.unwrap_or(1) })
            }
            (None, Some(CpuTestSpec { time, max_celsius }), None, None, None) => {
                Ok(HealthTest::Cpu { time: time.unwrap_or(CPU_TIME).get(), max_celsius })
            }
            (None, None, Some(DiskReadSpec { disks, percent, min_speed }), None, None) => {
                Ok(HealthTest::Disks { write: false, disks, percent: whole(percent), min_speed: speed(min_speed) })
            }
            (None, None, None, Some(DiskWriteSpec { disks, .. }), None) if disks.is_empty() => {
                Err(UnusableHealthTest("diskWrite.disks"))
            }
            (None, None, None, Some(DiskWriteSpec { disks, percent, min_speed }), None) => {
                Ok(HealthTest::Disks { write: true, disks, percent: whole(percent), min_speed: speed(min_speed) })
            }
            (None, None, None, None, Some(NetworkTestSpec { url, time, min_speed })) => {
                let (url, time) = (url.unwrap_or_else(|| boot_image.to_owned()), time.unwrap_or(NETWORK_TIME).get());
                Ok(HealthTest::Network { url, time, min_speed: speed(min_speed) })
            }
            _ => Err(UnusableHealthTest("healthTest")),
        }
    }
}

impl Declaration for HealthTestSpec {
    const INFO: ActionInfo = ActionInfo {
        no_branch: Some("remove its branch: it would measure what other branches do"),
        // As `wipe`: the largest disks take more than a day.
        ..ActionInfo::new(
            "Tests memory, CPUs, disks or the network; a machine that fails is not Healthy.",
            DurationSpec::from_secs(48 * 3600),
            11,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        let stated: Vec<(&String, &Value)> = spec.iter().filter(|(_, value)| !value.is_null()).collect();
        let kinds = HealthTestKind::ALL.map(HealthTestKind::as_str).join(", ");
        match stated.as_slice() {
            [] => rules.say(path, "there is nothing to test", format!("write one of {kinds}, such as memory: {{}}")),
            [_] => {}
            [.., (second, _)] => {
                let hint = "write an action for each, so that each has its own result";
                rules.say(join(path, second), "one action tests one thing", hint);
            }
        }
        for (test, fields) in stated.iter().filter_map(|(test, value)| Some((test, value.as_object()?))) {
            let path = join(path, test);
            let disks = fields.get("disks").and_then(Value::as_array);
            if disks.is_some_and(Vec::is_empty) {
                let hint = "name each disk, such as disks: [{ serial: … }]: what is on it is lost";
                rules.say(join(&path, "disks"), "it names no disk", hint);
            }
            for (n, disk) in disks.into_iter().flatten().enumerate() {
                rules.selector(Some(disk), &format!("{path}.disks[{n}]"));
            }
            for (field, most) in [("percent", 100), ("passes", MAX_PASSES), ("maxCelsius", MAX_CELSIUS)] {
                rules.fault(join(&path, field), fields.get(field).and_then(|number| out_of_range(number, most)));
            }
            http::server_url(fields, &path, rules);
            let speed = plain_text(fields, "minSpeed").and_then(|text| text.parse::<SpeedSpec>().err());
            let words = |error: SpeedError| Fault::new(error.to_string(), "a speed has a unit and ends with /s");
            rules.fault(join(&path, "minSpeed"), speed.map(words));
        }
    }
}

/// A number below 1 or above `most`.
fn out_of_range(number: &Value, most: u64) -> Option<Fault> {
    let number = number.as_f64()?;
    let wrong = number < 1.0 || number > most as f64;
    wrong.then(|| {
        Fault::new(format!("{number} is not from 1 to {most}"), format!("write a whole number from 1 to {most}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_test_is_sent_with_its_defaults() {
        let sent = |test: Value| serde_json::from_value::<HealthTestSpec>(test).unwrap().resolved("http://c/boot");
        assert_eq!(sent(json!({"memory": {}})), Ok(HealthTest::Memory { percent: 100, passes: 1 }));
        let time = Duration::from_secs(60);
        assert_eq!(sent(json!({"cpu": {}})), Ok(HealthTest::Cpu { time, max_celsius: None }));
        let every = HealthTest::Disks { write: false, disks: Vec::new(), percent: 100, min_speed: Some(1_500_000) };
        assert_eq!(sent(json!({"diskRead": {"minSpeed": "1.5MB/s"}})), Ok(every));
        let network = HealthTest::Network { url: "http://c/boot".into(), time: time / 6, min_speed: None };
        assert_eq!(sent(json!({"network": {}})), Ok(network));
        assert_eq!(sent(json!({"diskWrite": {"disks": []}})), Err(UnusableHealthTest("diskWrite.disks")));
        assert_eq!(sent(json!({"cpu": {}, "memory": {}})), Err(UnusableHealthTest("healthTest")));
    }

    #[test]
    fn a_speed_has_a_unit_and_a_second() {
        for text in ["100", "100MB", "0MB/s", "100/s", "fast", "100 parsecs/s", "-1MB/s", ""] {
            assert_eq!(text.parse::<SpeedSpec>(), Err(SpeedError(text.to_owned())));
        }
        let speed: SpeedSpec = "2 KiB/s".parse().unwrap();
        assert_eq!((speed.get(), speed.to_string().parse()), (2048, Ok(speed)));
    }
}
