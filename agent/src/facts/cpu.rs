//! Processors: how many sockets, cores and threads there are, and what they can do.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use landfall_api::CpuFacts;
use sysinfo::System;

use super::{children, read};

/// What `system` has, and what the kernel shows under these directories, `/sys/devices/system/cpu` and `/proc`.
pub(super) fn facts(system: Option<&System>, sys: &Path, proc: &Path) -> CpuFacts {
    let cpus = system.map(System::cpus).unwrap_or_default();
    let many = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (mut cores, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    for cpu in children(sys).iter().filter(|path| is_cpu(path)) {
        // A processor that is offline has no topology.
        let number = |name: &str| read(&cpu.join("topology").join(name)).parse::<i32>().ok();
        let Some(socket) = number("physical_package_id") else { continue };
        sockets.insert(socket);
        // A core's id counts within its die.
        cores.extend(number("core_id").map(|core| (socket, number("die_id"), core)));
    }
    CpuFacts {
        model: cpus.first().map(|cpu| cpu.brand().trim().to_owned()).unwrap_or_default(),
        logical: many(cpus.len()),
        architecture: std::env::consts::ARCH.to_owned(),
        sockets: many(sockets.len()),
        cores: many(cores.len()),
        flags: flags(&fs::read_to_string(proc.join("cpuinfo")).unwrap_or_default()),
    }
}

/// Of the first processor; x86 and ARM have other words for them.
fn flags(cpuinfo: &str) -> Vec<String> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(key, _)| ["flags", "Features"].contains(&key.trim())).map(|(_, words)| words);
    let words: BTreeSet<&str> = found.unwrap_or_default().split_whitespace().collect();
    words.into_iter().map(str::to_owned).collect()
}

fn is_cpu(path: &Path) -> bool {
    let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("cpu"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    #[test]
    fn sockets_cores_and_threads_are_counted_apart() {
        let sys = tree(&[("cpufreq/x", ""), ("cpu9/online", "0\n")]);
        // Two sockets of two cores of two threads; core ids are those of their socket.
        for n in 0..8 {
            for (name, value) in [("physical_package_id", n / 4), ("core_id", n % 4 / 2), ("die_id", 0)] {
                let file = sys.path().join(format!("cpu{n}/topology/{name}"));
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, format!("{value}\n")).unwrap();
            }
        }
        let seen = facts(None, sys.path(), Path::new("/nowhere"));
        assert_eq!((seen.cores, seen.sockets), (4, 2));
    }

    #[test]
    fn flags_are_those_of_the_first_processor() {
        let x86 = "processor\t: 0\nflags\t\t: vmx fpu avx2 fpu\n\nprocessor\t: 1\nflags\t: sse\n";
        assert_eq!(flags(x86), ["avx2", "fpu", "vmx"]);
        assert_eq!(flags("processor : 0\nFeatures : sha2 aes\n"), ["aes", "sha2"]);
        assert!(flags("").is_empty());
    }
}
