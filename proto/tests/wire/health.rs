//! Health tests as they are sent and as they end.

use std::time::Duration;

use landfall_api::message::{ActionKind, ActionResult, EventBody};
use landfall_api::{HealthReport, HealthTest, HealthTestKind, HealthTestResult};

use super::{action, assigned, assignment, disk, moment, selector};

pub(crate) fn events() -> [(&'static str, EventBody); 2] {
    let report = HealthReport {
        disk: Some(disk()),
        bytes: 1 << 40,
        bytes_per_second: 210_000_000,
        slowest_ms: 412,
        errors: 2,
        corrected: 1,
        hottest_celsius: Some(71),
        faults: vec!["2 errors, the first: cannot read 4194304 bytes at 73400320".into()],
        ..HealthReport::begun(HealthTestKind::DiskRead, "nvme0n1", moment())
    };
    let passed = ActionResult::HealthTest(HealthTestResult { parts: 3 });
    [
        ("health-tested", EventBody::HealthTested { report }),
        ("finished-health-test", EventBody::Finished { result: passed }),
    ]
}

#[test]
fn an_assignment_of_every_health_test() {
    let time = Duration::from_secs(60);
    let disks = |write, disks| HealthTest::Disks { write, disks, percent: 10, min_speed: Some(80_000_000) };
    let tests = [
        HealthTest::Memory { percent: 100, passes: 4 },
        HealthTest::Cpu { time, max_celsius: Some(95) },
        disks(false, Vec::new()),
        disks(true, vec![selector("serial", "S4EVNX0R")]),
        HealthTest::Network { url: "http://10.77.0.1:7480/boot/initramfs".into(), time, min_speed: None },
    ];
    let actions = tests.map(|test| action("test", 172_800, 1, ActionKind::HealthTest(test)));
    assigned("assignment-health-test", assignment(actions.into()));
}
