//! Small artificial kernel packages for the tests of this crate.

use std::{fs, path::Path};

/// A tree with real (tiny) ELF files, so that the tests go through the same parser as a real package.
pub(crate) struct FakeTree {
    dir: tempfile::TempDir,
    version: String,
}

impl FakeTree {
    pub(crate) fn new(version: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("lib/modules").join(version);
        fs::create_dir_all(base.join("kernel")).unwrap();
        fs::create_dir_all(dir.path().join("boot")).unwrap();
        fs::write(dir.path().join(format!("boot/vmlinuz-{version}")), "kernel").unwrap();
        fs::write(base.join("modules.builtin"), "").unwrap();
        fs::write(base.join("modules.builtin.modinfo"), "").unwrap();
        Self { dir, version: version.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn module(self, path: &str, modinfo: &str) -> Self {
        let file = self.dir.path().join("lib/modules").join(&self.version).join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, elf(modinfo.as_bytes())).unwrap();
        self
    }

    pub(crate) fn builtin(self, path: &str, entry: &str) -> Self {
        let base = self.dir.path().join("lib/modules").join(&self.version);
        let append = |name: &str, text: String| {
            let file = base.join(name);
            let old = fs::read_to_string(&file).unwrap();
            fs::write(file, old + &text).unwrap();
        };
        let name = Path::new(path).file_stem().unwrap().to_str().unwrap();
        append("modules.builtin", format!("{path}\n"));
        append("modules.builtin.modinfo", format!("{name}.{entry}\0"));
        self
    }
}

/// A relocatable 64-bit ELF file with the sections null, .modinfo and .shstrtab.
fn elf(modinfo: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.modinfo\0.shstrtab\0";
    let names_at = 64 + modinfo.len();
    let table_at = (names_at + NAMES.len()).next_multiple_of(8);
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    out.extend([1u16, 62].iter().flat_map(|v| v.to_le_bytes()));
    out.extend(1u32.to_le_bytes());
    out.extend([0u64, 0, table_at as u64].iter().flat_map(|v| v.to_le_bytes()));
    out.extend(0u32.to_le_bytes());
    out.extend([64u16, 0, 0, 64, 3, 2].iter().flat_map(|v| v.to_le_bytes()));
    out.extend(modinfo);
    out.extend(NAMES);
    out.resize(table_at, 0);
    for (name, kind, offset, size) in [(0u32, 0u32, 0, 0), (1, 1, 64, modinfo.len()), (10, 3, names_at, NAMES.len())] {
        out.extend(name.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend([0u64, 0, offset as u64, size as u64, 0, 1, 0].iter().flat_map(|v| v.to_le_bytes()));
    }
    out
}
