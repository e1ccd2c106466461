//! The Debian packages that a layer is made from: each unpacked (`dpkg-deb -x`) to a directory named PACKAGE_VERSION.

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// Where programs are.
const PROGRAMS: [&str; 2] = ["usr/sbin", "usr/bin"];
/// Where libraries are; it has a directory for each architecture, such as `x86_64-linux-gnu`.
const LIBRARIES: &str = "usr/lib";
/// Links that one may lead to, as the kernel has it.
const MAX_LINKS: usize = 40;

/// The packages cannot be read.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum PackagesError {
    /// The directory or a part of it.
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A directory has another name than PACKAGE_VERSION.
    #[error("{0} is not named PACKAGE_VERSION; unpack each package with dpkg-deb -x to a directory of that name")]
    Name(PathBuf),
    /// One package in two versions: either could be meant.
    #[error("package {name} is there as {} and as {}; leave only one of them in the directory", versions[0], versions[1])]
    Two { name: String, versions: [String; 2] },
    /// There is none.
    #[error("{0} has no unpacked package; unpack each with dpkg-deb -x to a directory PACKAGE_VERSION in it")]
    Empty(PathBuf),
}

/// Every package, in the order of names.
#[derive(Debug, Default)]
pub(super) struct Packages(Vec<Package>);

#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    root: PathBuf,
}

/// A file of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Its content, links followed.
    pub(super) source: PathBuf,
    /// Where it is in the package, links followed.
    pub(super) path: PathBuf,
    /// The package with that name, and its version.
    pub(super) package: (String, String),
}

impl Packages {
    /// Reads the names of the directories in `directory`.
    ///
    /// # Errors
    /// [`PackagesError`]
    pub(super) fn open(directory: &Path) -> Result<Self, PackagesError> {
        let read = |source| PackagesError::Read { path: directory.to_owned(), source };
        let mut packages: Vec<Package> = Vec::new();
        for entry in fs::read_dir(directory).map_err(read)? {
            let root = entry.map_err(read)?.path();
            let name = root.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('_'));
            let (name, version) = name.ok_or_else(|| PackagesError::Name(root.clone()))?;
            packages.push(Package { name: name.to_owned(), version: version.to_owned(), root });
        }
        packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        if let Some(two) = packages.windows(2).find(|two| two[0].name == two[1].name) {
            let versions = [two[0].version.clone(), two[1].version.clone()];
            return Err(PackagesError::Two { name: two[0].name.clone(), versions });
        }
        if packages.is_empty() { Err(PackagesError::Empty(directory.to_owned())) } else { Ok(Self(packages)) }
    }

    /// A program by its name alone.
    pub(super) fn program(&self, name: &str) -> Option<Found> {
        PROGRAMS.iter().find_map(|directory| self.file(&Path::new(directory).join(name)))
    }

    /// A library by its name alone, for the machine that `triplet` names, such as `x86_64-linux-gnu`.
    pub(super) fn find_library(&self, name: &str, triplet: &str) -> Option<Found> {
        let places = [Path::new(LIBRARIES).join(triplet), LIBRARIES.into()];
        places.iter().find_map(|place| self.file(&place.join(name)))
    }

    /// What is at a path, links followed: also into other packages.
    pub(super) fn file(&self, path: &Path) -> Option<Found> {
        let mut path = plain(path)?;
        for _ in 0..MAX_LINKS {
            let (package, at) = [path.clone(), merged(&path)].into_iter().find_map(|path| {
                let has = |package: &&Package| package.root.join(&path).symlink_metadata().is_ok();
                Some((self.0.iter().find(has)?, path))
            })?;
            let source = package.root.join(&at);
            match fs::read_link(&source) {
                Ok(target) => path = plain(&at.parent().unwrap_or(Path::new("")).join(target))?,
                Err(_) if source.is_file() => {
                    let package = (package.name.clone(), package.version.clone());
                    return Some(Found { source, path: at, package });
                }
                Err(_) => return None,
            }
        }
        None
    }
}

/// The same place by its other name: `/lib` is `/usr/lib` in an installed system, and packages use either.
fn merged(path: &Path) -> PathBuf {
    path.strip_prefix("usr").map_or_else(|_| Path::new("usr").join(path), Path::to_owned)
}

/// A path below the root, without a leading `/`, `.` and `..`; `None`: it leads out of it.
pub(super) fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::RootDir => plain = PathBuf::new(),
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => plain.pop().then_some(())?,
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn packages() -> (tempfile::TempDir, Packages) {
        let directory = tempfile::tempdir().unwrap();
        let file = |path: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "content").unwrap();
        };
        file("e2fsprogs_1.47.0-2/sbin/mke2fs");
        file("libext2fs2_1.47.0-2/usr/lib/x86_64-linux-gnu/libext2fs.so.2.4");
        let link = |target: &str, at: &str| symlink(target, directory.path().join(at)).unwrap();
        link("mke2fs", "e2fsprogs_1.47.0-2/sbin/mkfs.ext4");
        link("/sbin/mkfs.ext4", "e2fsprogs_1.47.0-2/sbin/mkfs.ext3");
        link("../../../etc/passwd", "e2fsprogs_1.47.0-2/sbin/outside");
        link("circle", "e2fsprogs_1.47.0-2/sbin/circle");
        link("libext2fs.so.2.4", "libext2fs2_1.47.0-2/usr/lib/x86_64-linux-gnu/libext2fs.so.2");
        let opened = Packages::open(directory.path()).unwrap();
        (directory, opened)
    }

    #[test]
    fn programs_and_libraries_are_found_through_links() {
        let (_directory, packages) = packages();
        for name in ["mke2fs", "mkfs.ext4", "mkfs.ext3"] {
            let found = packages.program(name).unwrap();
            assert_eq!(found.path, Path::new("sbin/mke2fs"), "{name}");
            assert_eq!(found.package, ("e2fsprogs".to_owned(), "1.47.0-2".to_owned()));
        }
        let library = packages.find_library("libext2fs.so.2", "x86_64-linux-gnu").unwrap();
        assert!(library.path.ends_with("libext2fs.so.2.4") && library.package.0 == "libext2fs2", "{library:?}");
        assert_eq!(packages.find_library("libext2fs.so.2", "aarch64-linux-gnu"), None);
        for name in ["outside", "circle", "absent"] {
            assert_eq!(packages.program(name), None, "{name}");
        }
    }

    #[test]
    fn a_directory_that_is_no_package_is_named() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(Packages::open(directory.path()), Err(PackagesError::Empty(_))));
        fs::create_dir(directory.path().join("e2fsprogs")).unwrap();
        let error = Packages::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("e2fsprogs is not named PACKAGE_VERSION"), "{error}");
    }

    #[test]
    fn two_versions_of_a_package_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["libssl3_3.0.15-1", "libssl3_3.0.11-1", "libc6_2.36"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let error = Packages::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("libssl3 is there as 3.0.11-1 and as 3.0.15-1"), "{error}");
    }
}
