//! Which modules of its kernel the boot image lacks for a device: `landfall-image` packs their names and what they fit.

use std::fs::File;
use std::io;
use std::path::Path;

use landfall_api::{MISSING_MODULES, ModuleIndex};

/// Names of the modules that fit a device with this modalias; none where the boot image does not say, as one of an earlier release.
///
/// The file is read for each device anew: few have no driver, and kept in memory the text would take half a megabyte.
pub(super) fn modules(alias: &str) -> Vec<String> {
    super::directory(Path::new("/")).and_then(|directory| modules_in(&directory, alias)).unwrap_or_default()
}

fn modules_in(directory: &Path, alias: &str) -> io::Result<Vec<String>> {
    let text = io::read_to_string(zstd::Decoder::new(File::open(directory.join(MISSING_MODULES))?)?)?;
    let fitting = ModuleIndex::parse("", &text, "").for_device(alias);
    Ok(fitting.iter().map(|module| module.as_str().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_names_the_modules_that_the_image_lacks() {
        let directory = tempfile::tempdir().unwrap();
        let text = "alias pci:v00008086d000015F3sv*sd*bc*sc*i* igc\nalias usb:v0B95p1790d* ax88179_178a\n";
        let stored = zstd::encode_all(text.as_bytes(), 3).unwrap();
        std::fs::write(directory.path().join(MISSING_MODULES), stored).unwrap();
        let of = |alias| modules_in(directory.path(), alias).unwrap();
        assert_eq!(of("pci:v00008086d000015F3sv00001028sd00000A1Bbc02sc00i00"), ["igc"]);
        assert_eq!(of("pci:v00008086d000015F4sv00001028sd00000A1Bbc02sc00i00"), [""; 0]);
        std::fs::write(directory.path().join(MISSING_MODULES), "cut off").unwrap();
        assert!(modules_in(directory.path(), "pci:v1").is_err(), "and the device has no module named");
    }
}
