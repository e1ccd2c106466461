//! CPUs: each computes for a while what is known, and its temperature is watched.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use landfall_api::{ErrorCode, HealthReport, HealthTestKind, Problem};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use sha2::{Digest as _, Sha256};

use super::super::{final_failure, installed_root::may_act};
use super::{of_time, single};
use crate::runner::{Failure, Job};

/// Between looks at sensors, and whether the job goes on.
const LOOK: Duration = Duration::from_millis(500);
/// The drivers whose sensors are in CPUs (Linux, Documentation/hwmon): Intel's, AMD's, and that of ARM boards.
const SENSORS: [&str; 4] = ["coretemp", "k10temp", "zenpower", "cpu_thermal"];
/// CPUs with wrong results that are named; the others are counted.
const NAMED: usize = 4;
const HWMON: &str = "/sys/class/hwmon";
/// SHA-256 of 64 KiB in which byte n is n modulo 251, as sha256sum says.
const INTEGER: [u8; 32] = [
    0x4b, 0x64, 0x0d, 0x85, 0xab, 0x3b, 0xa3, 0x0f, 0xd0, 0x2c, 0x9f, 0xc9, 0xdb, 0x4a, 0x89, 0x28, 0xf4, 0x16, 0x32,
    0x2a, 0xd2, 0x70, 0x22, 0xea, 0x58, 0xa6, 0x5a, 0xae, 0xe6, 0x8a, 0x4d, 0xf2,
];
/// 0.3 after 4096 steps of x → 3.9 x (1 − x), as the bits of an IEEE 754 double: a wrong bit anywhere changes all of them.
const FLOAT: u64 = 0x3fef_2a81_7471_4b95;

/// Tests them. Blocking.
pub(super) fn test(job: &Job, time: Duration, max_celsius: Option<u8>) -> Result<Vec<HealthReport>, Failure> {
    let hwmon = Path::new(HWMON);
    let coolest = hottest(hwmon);
    if max_celsius.is_some() && coolest.is_none() {
        let text = "maxCelsius is set, and no temperature sensor of a CPU answers";
        let hint = format!("add its driver ({}) to the boot image, or remove maxCelsius", SENSORS.join(", "));
        return Err(final_failure(Problem::new(ErrorCode::NotFound, text).hint(hint).at(HWMON)));
    }
    let began = (Timestamp::now(), Instant::now());
    let cpus = cpus();
    let (stop, wrong) = (AtomicBool::new(false), Mutex::new(Vec::<(usize, u64)>::new()));
    let mut hot = coolest;
    let watched = thread::scope(|scope| {
        for cpu in &cpus {
            let (stop, wrong) = (&stop, &wrong);
            scope.spawn(move || {
                let errors = works(*cpu, || stop.load(Ordering::Relaxed));
                if errors > 0 {
                    wrong.lock().unwrap_or_else(PoisonError::into_inner).push((*cpu, errors));
                }
            });
        }
        let ended = watch(job, began.1, time, || hot = hot.max(hottest(hwmon)));
        stop.store(true, Ordering::Relaxed);
        ended
    });
    watched?;
    let mut wrong = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    wrong.sort_unstable();
    let too_hot = hot.filter(|celsius| max_celsius.is_some_and(|limit| *celsius > i32::from(limit)));
    let limit = max_celsius.unwrap_or_default();
    let hot_words = too_hot.map(|celsius| format!("it reached {celsius} °C, and the limit is {limit}"));
    let named = wrong.iter().take(NAMED).map(|(cpu, n)| format!("cpu{cpu} computed {n} wrong results"));
    let others = wrong.len().saturating_sub(NAMED);
    let others = (others > 0).then(|| format!("{others} other CPUs computed wrong results"));
    let faults = hot_words.into_iter().chain(named).chain(others).collect();
    tracing::info!("{} CPUs computed for {} s", cpus.len(), began.1.elapsed().as_secs());
    Ok(single(
        job,
        HealthReport {
            errors: wrong.iter().map(|(_, errors)| errors).sum(),
            hottest_celsius: hot,
            faults,
            ..HealthReport::begun(HealthTestKind::Cpu, "cpu", began.0)
        },
    ))
}

/// Waits for that time, and looks meanwhile.
fn watch(job: &Job, began: Instant, time: Duration, mut look: impl FnMut()) -> Result<(), Failure> {
    loop {
        may_act(job)?;
        look();
        let done = began.elapsed();
        let left = time.saturating_sub(done);
        job.report.progress(job.action, of_time(time, left));
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK));
    }
}

/// Every CPU that this process may use. Where the kernel does not say (its set may be larger than ours of 1024), as many numbers as
/// there are CPUs.
fn cpus() -> Vec<usize> {
    let all = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let named: Vec<usize> = (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu).unwrap_or(false)).collect();
    if named.is_empty() { (0..thread::available_parallelism().map_or(1, NonZero::get)).collect() } else { named }
}

/// Computes on that CPU until it is stopped; how many results were wrong.
fn works(cpu: usize, stopped: impl Fn() -> bool) -> u64 {
    let mut only = CpuSet::new();
    if let Err(error) = only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only)) {
        // It may have gone offline. The kernel then chooses.
        tracing::warn!("the test of cpu{cpu} runs on any CPU: {error}");
    }
    let input: Vec<u8> = (0..64 << 10).map(|n: usize| (n % 251) as u8).collect();
    let mut errors = 0;
    loop {
        let digest: [u8; 32] = Sha256::digest(std::hint::black_box(&input)).into();
        errors += u64::from(digest != INTEGER);
        errors += u64::from(chaos(std::hint::black_box(0.3)) != FLOAT);
        if stopped() {
            return errors;
        }
    }
}

fn chaos(start: f64) -> u64 {
    (0..4096).fold(start, |x, _| 3.9 * x * (1.0 - x)).to_bits()
}

/// The highest temperature of all sensors of CPUs, degrees Celsius.
fn hottest(hwmon: &Path) -> Option<i32> {
    let drivers = fs::read_dir(hwmon).into_iter().flatten().flatten().map(|one| one.path());
    let of_cpu = drivers
        .filter(|driver| fs::read_to_string(driver.join("name")).is_ok_and(|name| SENSORS.contains(&name.trim())));
    let files = of_cpu.flat_map(|driver| fs::read_dir(driver).into_iter().flatten().flatten());
    let inputs = files.filter(|file| {
        file.file_name().to_str().is_some_and(|name| name.starts_with("temp") && name.ends_with("_input"))
    });
    // The kernel counts in thousandths.
    let celsius = |text: String| text.trim().parse::<i32>().ok().map(|millis| millis.div_euclid(1000));
    inputs.filter_map(|file| fs::read_to_string(file.path()).ok().and_then(celsius)).max()
}

#[cfg(test)]
mod tests {
    use landfall_api::HealthTest;
    use landfall_api::message::ActionKind;

    use super::*;
    use crate::actions::testing;

    const TIME: Duration = Duration::from_millis(50);

    fn job(max_celsius: Option<u8>) -> Job {
        testing::job(ActionKind::HealthTest(HealthTest::Cpu { time: TIME, max_celsius }))
    }

    #[test]
    fn good_cpus_compute_what_is_known() {
        let [report] = &test(&job(None), TIME, None).unwrap()[..] else { panic!("one report") };
        assert_eq!((report.passed(), report.errors), (true, 0), "{report:?}");
        assert_eq!(works(cpus()[0], || true), 0);
        assert_ne!(chaos(0.300_000_000_000_000_1), FLOAT, "one wrong bit changes the result");
    }

    #[test]
    fn only_sensors_of_cpus_are_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(hottest(dir.path()), None);
        for (driver, name, millis) in
            [("hwmon0", "coretemp", "71500\n"), ("hwmon1", "nvme", "99000\n"), ("hwmon2", "coretemp", "64000\n")]
        {
            fs::create_dir(dir.path().join(driver)).unwrap();
            fs::write(dir.path().join(driver).join("name"), format!("{name}\n")).unwrap();
            fs::write(dir.path().join(driver).join("temp2_input"), millis).unwrap();
            fs::write(dir.path().join(driver).join("temp2_max"), "100000\n").unwrap();
        }
        assert_eq!(hottest(dir.path()), Some(71));
    }

    #[test]
    fn a_test_of_cpus_ends_with_the_lease() {
        let failure = test(&testing::without_lease(job(None)), Duration::from_secs(3600), None).unwrap_err();
        assert_eq!(failure.problem.code, ErrorCode::LeaseExpired);
    }
}
