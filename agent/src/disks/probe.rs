//! What sysfs says of storage buses that are still coming up.

use std::{fs, path::Path, time::Duration};

use super::scan::Buses;

/// What the kernel's `usb-storage` waits where it does not say (`delay_use` in drivers/usb/storage/usb.c).
const USB_DELAY: Duration = Duration::from_secs(1);
/// States of an NVMe controller in which it will not come up by itself any more, or is up
/// (`nvme_sysfs_show_state` in drivers/nvme/host/sysfs.c).
const SETTLED: [&str; 4] = ["live", "deleting", "deleting (no IO)", "dead"];

/// Looks at `sys`, which is `/sys`. What cannot be read is left out: not every kernel has every bus.
pub(super) fn buses(sys: &Path) -> Buses {
    let nvme = entries(&sys.join("class/nvme")).into_iter().filter_map(|name| {
        let state = attribute(&sys.join("class/nvme").join(&name).join("state"))?;
        (!SETTLED.contains(&state.as_str())).then_some((name, state))
    });
    let hosts = sys.join("class/scsi_host");
    let usb = entries(&hosts).into_iter().filter(|host| {
        let of_usb = matches!(attribute(&hosts.join(host).join("proc_name")).as_deref(), Some("usb-storage" | "uas"));
        of_usb && !entries(&hosts.join(host).join("device")).iter().any(|child| child.starts_with("target"))
    });
    Buses {
        nvme: nvme.collect(),
        usb: usb.collect(),
        usb_delay: attribute(&sys.join("module/usb_storage/parameters/delay_use"))
            .and_then(|text| delay(&text))
            .unwrap_or(USB_DELAY),
        drivers: Vec::new(),
    }
}

/// `delay_use`: seconds, or since Linux 6.13 milliseconds with the suffix `ms`.
fn delay(text: &str) -> Option<Duration> {
    match text.strip_suffix("ms") {
        Some(milliseconds) => milliseconds.parse().ok().map(Duration::from_millis),
        None => text.parse().ok().map(Duration::from_secs),
    }
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn attribute(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_controllers_that_come_up_are_waited_for() {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(buses(sys.path()), Buses { usb_delay: USB_DELAY, ..Buses::default() }, "no bus at all");
        for (name, state) in [("nvme0", "live\n"), ("nvme1", "resetting\n"), ("nvme2", "dead\n")] {
            write(&format!("class/nvme/{name}/state"), state);
        }
        for (host, driver, target) in [(0, "ahci", false), (1, "usb-storage", true), (2, "uas", false)] {
            write(&format!("class/scsi_host/host{host}/proc_name"), &format!("{driver}\n"));
            if target {
                write(&format!("class/scsi_host/host{host}/device/target{host}:0:0/uevent"), "");
            }
        }
        write("module/usb_storage/parameters/delay_use", "1500ms\n");
        assert_eq!(
            buses(sys.path()),
            Buses {
                nvme: vec![("nvme1".into(), "resetting".into())],
                usb: vec!["host2".into()],
                usb_delay: Duration::from_millis(1500),
                ..Buses::default()
            }
        );
        write("module/usb_storage/parameters/delay_use", "7\n");
        assert_eq!(buses(sys.path()).usb_delay, Duration::from_secs(7));
    }
}
