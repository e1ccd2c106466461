//! How tools of other projects read a disk.

use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::NamedTempFile;

fn dump(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file.as_file().sync_data().unwrap();
    file
}

/// A loop device, gone when dropped.
pub(crate) struct Loop(pub(crate) PathBuf);

impl Loop {
    /// None, and a loud line, where there are none with such sectors.
    pub(crate) fn over(file: &Path, sector: u32) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        let made = losetup.args(["--find", "--show", "--sector-size", &sector.to_string()]).arg(file).output();
        let why = match made {
            Ok(made) if made.status.success() => {
                return Some(Self(String::from_utf8_lossy(&made.stdout).trim().into()));
            }
            Ok(made) => String::from_utf8_lossy(&made.stderr).trim().to_owned(),
            Err(e) => format!("losetup: {e}"),
        };
        eprintln!("SKIPPED: no loop device with {sector}-byte sectors: {why}");
        None
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Nothing more can be done about a device that stays.
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// The types of signature that `wipefs` finds in a region of a disk.
pub(crate) fn wipefs(disk: &[u8], region: &Range<u64>) -> Vec<String> {
    let file = dump(&disk[region.start as usize..region.end as usize]);
    let output = Command::new("wipefs").args(["--no-act", "--parsable"]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| line.rsplit(',').next().map(str::to_owned)).collect()
}

/// `sgdisk -v` and `sfdisk --verify` on a disk with sectors of `sector` bytes: nothing to complain about. Skipped, loudly,
/// where either the tools or loop devices are missing.
pub(crate) fn assert_table_is_whole(disk: &[u8], sector: u32, case: &str) {
    let file = dump(disk);
    let Some(device) = Loop::over(file.path(), sector) else { return };
    for (tool, option, content) in
        [("sgdisk", "--verify", "No problems found"), ("sfdisk", "--verify", "No errors detected")]
    {
        let output = match Command::new(tool).arg(option).arg(&device.0).output() {
            Ok(output) => output,
            Err(why) => {
                eprintln!("SKIPPED: {tool}: {why}");
                continue;
            }
        };
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.contains(content), "{case}: {tool}: {said}");
    }
}
