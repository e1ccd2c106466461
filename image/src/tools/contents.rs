//! What a layer consists of: programs with their loader and libraries, other files, and texts. Collected first, written once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::{ToolsManifest, ToolsProgram};

use super::elf;
use super::elf::Elf;
use super::packages::{Found, Packages, plain};
use crate::arch::Arch;

/// A part of a layer is missing or unusable.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// No package has them.
    #[error(
        "no package has\n  {}\nadd the packages that have them to the directory that --packages names; scripts/tools-layer --list names \
         those of the profile storage", .0.join("\n  ")
    )]
    Missing(Vec<String>),
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It is damaged.
    #[error("{path} is no usable ELF file")]
    Elf {
        path: PathBuf,
        #[source]
        source: object::Error,
    },
    /// It is for another processor than the worker.
    #[error("{0} is for another processor than the worker")]
    OtherProcessor(PathBuf),
    /// It is a script: its interpreter would have to be there.
    #[error("the program {0} is a script, and the layer has no interpreter")]
    Script(String),
    /// The worker is not static.
    #[error("the worker {0} is no static program of a processor that Landfall is built for (crt-static)")]
    Worker(PathBuf),
}

/// Content of one file.
enum Content {
    Path(PathBuf),
    Bytes(Vec<u8>),
}

/// The files of a layer, by path.
pub(super) struct Contents<'a> {
    packages: &'a Packages,
    architecture: Arch,
    files: BTreeMap<PathBuf, (Content, u32)>,
    programs: BTreeMap<String, ToolsProgram>,
    loader: bool,
    /// What no package has: all of it is said at once.
    missing: BTreeSet<String>,
}

impl<'a> Contents<'a> {
    /// A layer with this worker, and nothing else.
    pub(super) fn new(packages: &'a Packages, worker: &Path) -> Result<Self, ContentsError> {
        let found = read(worker)?.filter(|elf| elf.loader.is_none());
        let architecture =
            found.and_then(|elf| elf.architecture).ok_or_else(|| ContentsError::Worker(worker.into()))?;
        let (files, programs, missing) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let mut contents = Self { packages, architecture, files, programs, loader: false, missing };
        contents.put(ToolsManifest::WORKER, worker.to_owned(), 0o755);
        Ok(contents)
    }

    /// The processor that it is for.
    pub(super) const fn architecture(&self) -> Arch {
        self.architecture
    }

    /// Whether a program in it is dynamic.
    pub(super) const fn has_loader(&self) -> bool {
        self.loader
    }

    /// The programs, by path.
    pub(super) fn programs(&self) -> Vec<ToolsProgram> {
        self.programs.values().cloned().collect()
    }

    /// Adds a program by its name alone, with everything it needs.
    pub(super) fn program(&mut self, name: &str) -> Result<(), ContentsError> {
        let Some(found) = self.packages.program(name) else {
            self.missing.insert(format!("the program {name}"));
            return Ok(());
        };
        let elf = read(&found.source)?.ok_or_else(|| ContentsError::Script(name.to_owned()))?;
        let path = format!("usr/sbin/{name}");
        let (package, version) = found.package.clone();
        self.programs.insert(path.clone(), ToolsProgram { path: format!("/{path}"), package, version });
        self.put(&path, found.source.clone(), 0o755);
        if let Some(loader) = &elf.loader {
            self.loader = true;
            match self.packages.file(Path::new(loader)) {
                Some(file) => {
                    // Where the program says, with or without /usr: the one is a link to the other.
                    let place = loader.trim_start_matches('/').trim_start_matches("usr/");
                    self.put(&format!("usr/{place}"), file.source, 0o755);
                }
                None => self.lacks(loader, name),
            }
        }
        self.needs(&elf, &found)
    }

    /// Adds a library by its name alone, with everything it needs.
    pub(super) fn add_library(&mut self, name: &str, needed_by: &str) -> Result<(), ContentsError> {
        let triplet = format!("{}-linux-gnu", self.architecture.as_str());
        let path = format!("usr/lib/{triplet}/{name}");
        if self.files.contains_key(Path::new(&path)) {
            return Ok(());
        }
        let Some(found) = self.packages.find_library(name, &triplet) else {
            self.lacks(name, needed_by);
            return Ok(());
        };
        self.put(&path, found.source.clone(), 0o644);
        match read(&found.source)? {
            Some(elf) => self.needs(&elf, &found),
            None => {
                self.lacks(name, needed_by);
                Ok(())
            }
        }
    }

    fn lacks(&mut self, library: &str, needed_by: &str) {
        self.missing.insert(format!("the library {library}, which {needed_by} needs"));
    }

    /// Whether everything was found.
    ///
    /// # Errors
    /// [`ContentsError::Missing`] with all that was not.
    pub(super) fn complete(&self) -> Result<(), ContentsError> {
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(ContentsError::Missing(self.missing.iter().cloned().collect()))
    }

    fn needs(&mut self, elf: &Elf, found: &Found) -> Result<(), ContentsError> {
        if elf.architecture != Some(self.architecture) {
            return Err(ContentsError::OtherProcessor(found.source.clone()));
        }
        let needed_by = format!("/{}", found.path.display());
        elf.needs.iter().try_for_each(|name| self.add_library(name, &needed_by))
    }

    /// Adds a file of a package.
    pub(super) fn file(&mut self, path: &str) {
        // Never outside of the layer, with or without a leading /.
        let at = plain(Path::new(path)).and_then(|at| at.to_str().map(str::to_owned));
        let found = self.packages.file(Path::new(path));
        match at.zip(found) {
            Some((at, found)) => self.put(&at, found.source, 0o644),
            None => {
                self.missing.insert(format!("the file {path}"));
            }
        }
    }

    /// Adds a file.
    pub(super) fn put(&mut self, path: &str, source: PathBuf, mode: u32) {
        self.files.insert(path.into(), (Content::Path(source), mode));
    }

    /// Adds a file with this content.
    pub(super) fn bytes(&mut self, path: &str, content: Vec<u8>) {
        self.files.insert(path.into(), (Content::Bytes(content), 0o644));
    }

    /// Writes everything to an empty directory; bytes of all files.
    ///
    /// # Errors
    /// The path, and the system's error.
    pub(super) fn write<'d>(
        &self, root: &Path, directories: impl Iterator<Item = &'d &'d str>, links: &[(&str, &str)],
    ) -> Result<u64, (PathBuf, io::Error)> {
        let at = |path: &Path| root.join(path);
        for directory in directories {
            make(root, Path::new(directory)).map_err(|e| (at(Path::new(directory)), e))?;
        }
        let mut bytes = 0;
        for (path, (content, mode)) in &self.files {
            let parent = path.parent().unwrap_or(Path::new(""));
            let to = at(path);
            let written = make(root, parent).and_then(|()| match content {
                Content::Path(source) => {
                    File::open(source).and_then(|mut from| io::copy(&mut from, &mut File::create_new(&to)?))
                }
                Content::Bytes(text) => io::copy(&mut text.as_slice(), &mut File::create_new(&to)?),
            });
            let set = |written| fs::set_permissions(&to, Permissions::from_mode(*mode)).map(|()| written);
            bytes += written.and_then(set).map_err(|e| (at(path), e))?;
        }
        // Last: no file is written through one.
        for (link, target) in links {
            symlink(target, at(Path::new(link))).map_err(|e| (at(Path::new(link)), e))?;
        }
        fs::set_permissions(root, Permissions::from_mode(0o755)).map_err(|e| (root.into(), e))?;
        Ok(bytes)
    }
}

/// Makes a directory and those above it, with a mode that does not depend on who makes them.
fn make(root: &Path, path: &Path) -> io::Result<()> {
    let mut whole = root.to_owned();
    for part in path {
        whole.push(part);
        if !whole.is_dir() {
            fs::create_dir(&whole)?;
            fs::set_permissions(&whole, Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Option<Elf>, ContentsError> {
    let bytes = fs::read(path).map_err(|source| ContentsError::Read { path: path.to_owned(), source })?;
    elf::read(&bytes).map_err(|source| ContentsError::Elf { path: path.to_owned(), source })
}
