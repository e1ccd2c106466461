//! `writeFile`: puts one file into the installed system, whole or not at all. Doing it twice leaves what doing it once does.

use std::io::{self, Read};

use landfall_api::{ErrorCode, FileSource, Problem, WriteFile, WriteFileResult, message::ActionResult};
use landfall_disk::{CancelFlag, ProvenFile, Unobserved};

use super::installed_root::{InstalledRoot, may_act};
use super::{Machine, final_failure, installed_root};
use crate::rootfs::{Owner, Tree};
use crate::runner::{Failure, Job};

/// The largest file taken from a URL, bytes: as large as tools and archives are, and far from an image.
pub(super) const MAX_DOWNLOAD: u64 = 1 << 30;

/// Writes the file.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &WriteFile) -> Result<ActionResult, Failure> {
    let root = InstalledRoot::open(machine, job, spec.disk.as_ref(), &[&spec.path])?;
    let target = Target { tree: root.tree(), device: &root.device, cancel: &job.cancel, may_act: &|| may_act(job) };
    target.write(spec)?;
    tracing::info!("{} is written on {}", spec.path, root.device);
    Ok(ActionResult::WriteFile(WriteFileResult { root_device: root.close()? }))
}

/// The installed system's files, and what may stop their writing.
struct Target<'a> {
    tree: &'a Tree,
    /// For failures.
    device: &'a str,
    cancel: &'a CancelFlag,
    /// Asked before the first byte and again just before the file is put in place.
    may_act: &'a dyn Fn() -> Result<(), Failure>,
}

impl Target<'_> {
    fn write(&self, spec: &WriteFile) -> Result<(), Failure> {
        let owner = Owner {
            user: spec.owner.as_deref().map(|name| self.number("/etc/passwd", "owner", name)).transpose()?,
            group: spec.group.as_deref().map(|name| self.number("/etc/group", "group", name)).transpose()?,
        };
        match &spec.source {
            FileSource::Content(text) => self.put(spec, owner, text.expose().as_bytes()),
            FileSource::Download { url, digest } => {
                let failure = |e: landfall_disk::WriteError| Failure { problem: e.problem(), retryable: e.retryable() };
                let mut file =
                    ProvenFile::open(url, *digest, MAX_DOWNLOAD, &Unobserved, self.cancel).map_err(failure)?;
                let put = self.put(spec, owner, &mut file);
                // What went wrong with the download says more than that a read failed.
                file.into_failure().map_or(put, |e| Err(failure(e)))
            }
        }
    }

    fn put(&self, spec: &WriteFile, owner: Owner, content: impl Read) -> Result<(), Failure> {
        (self.may_act)()?;
        let mut content = Allowed { content, may_act: self.may_act, refused: None };
        let put = self.tree.write_owned(&spec.path, spec.mode, owner, &mut content);
        match (content.refused, put) {
            (Some(refused), _) => Err(refused),
            (None, put) => put.map_err(|e| installed_root::io(&e, self.device)),
        }
    }

    /// The number of an account: as stated, or that of its line in the installed system's list.
    fn number(&self, list: &'static str, field: &str, name: &str) -> Result<u32, Failure> {
        if let Ok(number) = name.parse() {
            return Ok(number);
        }
        let text = self.tree.read_text(list).map_err(|e| installed_root::io(&e, self.device))?.unwrap_or_default();
        let numbered = |line: &str| {
            let mut parts = line.split(':');
            (parts.next() == Some(name)).then(|| parts.nth(1)?.parse().ok()).flatten()
        };
        text.lines().find_map(numbered).ok_or_else(|| {
            let message = format!("{list} of the installed system has no \"{name}\"");
            let hint = format!("correct {field} in the template, or write its number");
            final_failure(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint).at(self.device))
        })
    }
}

/// Ends only if the installed system may be changed at that instant.
struct Allowed<'a, R> {
    content: R,
    may_act: &'a dyn Fn() -> Result<(), Failure>,
    refused: Option<Failure>,
}

impl<R: Read> Read for Allowed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        if count == 0
            && let Err(refused) = (self.may_act)()
        {
            self.refused = Some(refused);
            return Err(io::Error::other("the file may not be put in place any more"));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;

    use landfall_api::{Digest, SecretText};

    use super::*;

    fn file(path: &str, source: FileSource) -> WriteFile {
        WriteFile { path: path.into(), source, owner: None, group: None, mode: 0o640, disk: None }
    }

    fn text(path: &str) -> WriteFile {
        file(path, FileSource::Content(SecretText::new("new")))
    }

    fn written(root: &Path, spec: &WriteFile) -> Result<(), Failure> {
        let tree = Tree::open(root).unwrap();
        Target { tree: &tree, device: "/dev/vda2", cancel: &CancelFlag::new(), may_act: &|| Ok(()) }.write(spec)
    }

    #[test]
    fn a_file_replaces_another_with_mode_and_named_owner() {
        let root = tempfile::tempdir().unwrap();
        let me = fs::metadata(root.path()).unwrap();
        let (user, group) = if me.uid() == 0 { (4321, 5432) } else { (me.uid(), me.gid()) };
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/passwd"), format!("root:x:0:0::/:\napp:x:{user}:7::/:/bin/sh\n")).unwrap();
        fs::write(root.path().join("etc/group"), format!("www:x:{group}:\n")).unwrap();
        let owned = WriteFile { owner: Some("app".into()), group: Some("www".into()), ..text("/srv/app/key") };
        for _ in 0..2 {
            written(root.path(), &owned).unwrap();
        }
        let key = root.path().join("srv/app/key");
        let facts = fs::metadata(&key).unwrap();
        assert_eq!((facts.uid(), facts.gid(), facts.mode() & 0o7777), (user, group, 0o640));
        assert_eq!(fs::read(&key).unwrap(), b"new");
        assert_eq!(fs::metadata(root.path().join("srv")).unwrap().mode() & 0o777, 0o755);
        let refused = written(root.path(), &WriteFile { owner: Some("nemo".into()), ..owned }).unwrap_err();
        assert!(!refused.retryable && refused.problem.message.contains("/etc/passwd"), "{refused:?}");
    }

    #[test]
    fn no_link_of_the_installed_system_leads_out_of_it() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("victim"), "old").unwrap();
        symlink(outside.path(), root.path().join("absolute")).unwrap();
        symlink(outside.path().join("victim"), root.path().join("link")).unwrap();
        written(root.path(), &text("/absolute/victim")).unwrap_err();
        written(root.path(), &text("/link")).unwrap();
        assert_eq!(fs::read(outside.path().join("victim")).unwrap(), b"old");
        assert_eq!(fs::read(root.path().join("link")).unwrap(), b"new");
    }

    #[test]
    fn only_proven_bytes_replace_a_file() {
        let (root, served) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        fs::write(served.path(), "served").unwrap();
        fs::write(root.path().join("tool"), "old").unwrap();
        let url = format!("file://{}", served.path().display());
        // sha256sum of "served".
        let right: Digest = "sha256:8fe88bf015b53b37b5fa84dc726cd93aacca97f601185be11f5fb74fa3d77802".parse().unwrap();
        for (digest, stands) in [(Digest::from_sha256([0; 32]), "old"), (right, "served")] {
            let done = written(root.path(), &file("/tool", FileSource::Download { url: url.clone(), digest }));
            let code = done.err().map(|failure| failure.problem.code);
            assert_eq!(code, (stands == "old").then_some(ErrorCode::DigestMismatch));
            assert_eq!(fs::read_to_string(root.path().join("tool")).unwrap(), stands);
        }
    }

    #[test]
    fn nothing_is_put_in_place_once_the_lease_ran_out() {
        let root = tempfile::tempdir().unwrap();
        let tree = Tree::open(root.path()).unwrap();
        for allowed in 0..2_u32 {
            let left = Cell::new(allowed);
            let may_act = || match left.replace(left.get().saturating_sub(1)) {
                0 => Err(final_failure(Problem::new(ErrorCode::LeaseExpired, "over"))),
                _ => Ok(()),
            };
            let target = Target { tree: &tree, device: "/dev/vda2", cancel: &CancelFlag::new(), may_act: &may_act };
            assert_eq!(target.write(&text("/file")).unwrap_err().problem.code, ErrorCode::LeaseExpired);
            assert!(!root.path().join("file").exists(), "{allowed}");
        }
    }

    #[test]
    fn a_secret_reaches_the_file_and_no_failure() {
        let root = tempfile::tempdir().unwrap();
        let secret = || FileSource::Content(SecretText::new("geheim"));
        written(root.path(), &file("/key", secret())).unwrap();
        assert_eq!(fs::read(root.path().join("key")).unwrap(), b"geheim");
        fs::create_dir(root.path().join("directory")).unwrap();
        let refused = written(root.path(), &file("/directory", secret())).unwrap_err();
        assert!(!format!("{refused:?}").contains("geheim"), "{refused:?}");
    }
}
