//! `unpack`: an archive behind a URL, or every layer of an image, goes into the new system. Doing it twice leaves what doing it
//! once does.

use std::{os::fd::OwnedFd, path::Path};

use landfall_api::message::{ActionResult, HiddenPoint};
use landfall_api::{Digest, ErrorCode, Problem, Unpack, UnpackResult, UnpackSource};
use landfall_disk::{
    Access, CancelFlag, ContentOrder, Image, Proof, RootLayer, available_memory, image_at, root_layers, shown_name,
    with_content,
};
use landfall_unpack::{Limits, Manner, Tally, Target, UnpackError, Unpacker};

use super::spool::{Spool, Wanted, unfetched};
use crate::{Failure, Reporter};

/// Unpacks it into the system whose root is at `system`, and in which nothing may go to the places that are `hidden`.
///
/// # Errors
/// [`Failure`]; after one of the download or of its digest that system is as it was, layers apart that were unpacked before.
pub fn perform(
    system: &Path, hidden: &[HiddenPoint], spec: &Unpack, report: &Reporter,
) -> Result<ActionResult, Failure> {
    let target = Target { system, path: &spec.path, hidden };
    let innermost = target.look().map_err(|e| impossible(&e, &spec.path))?;
    let root = Target { path: "/", hidden: &[], ..target }.look().map_err(|e| impossible(&e, "/"))?;
    let fetch = Fetch { access: spec.access.clone(), report, directories: [root, innermost] };
    let mut to = To { target, unpacker: None };
    match &spec.source {
        UnpackSource::Archive { url, digest } => {
            report.info(format_args!("unpacking {url} to {}", spec.path));
            fetch.unpack(url, *digest, None, Manner::Archive, &mut to)?;
        }
        UnpackSource::Image { url } => {
            let layers = root_layers(url, &fetch.access, report, &CancelFlag::new());
            let layers = layers.map_err(|e| unfetched(&e))?;
            fetch.unpack_all(&layers, &mut to)?;
        }
    }
    let Tally { entries, bytes } = to.begun()?.finish().map_err(|e| refused(&e, &spec.path))?;
    report.info(format_args!("{entries} entries with {bytes} bytes are unpacked"));
    // The agent knows which device is mounted there.
    Ok(ActionResult::Unpack(UnpackResult { root_device: String::new(), entries, bytes }))
}

/// Unpacks every layer of a root file system into the empty directory `root`, which has room for one of them beside their content.
///
/// # Errors
/// [`Failure`]
pub(crate) fn layers(root: &Path, layers: &[RootLayer], access: Access, report: &Reporter) -> Result<Tally, Failure> {
    let target = Target { system: root, path: "/", hidden: &[] };
    let look = || target.look().map_err(|e| impossible(&e, "/"));
    let fetch = Fetch { access, report, directories: [look()?, look()?] };
    let mut to = To { target, unpacker: None };
    fetch.unpack_all(layers, &mut to)?;
    to.begun()?.finish().map_err(|e| refused(&e, "/"))
}

/// The directory that is unpacked to. Nothing is made before the first bytes are proven.
struct To<'a> {
    target: Target<'a>,
    unpacker: Option<Unpacker<'a>>,
}

impl<'a> To<'a> {
    fn begun(&mut self) -> Result<Unpacker<'a>, Failure> {
        // The agent ends this process where it must stop.
        let new = || Unpacker::new(&self.target, Limits::default(), &|| true);
        self.unpacker.take().map_or_else(new, Ok).map_err(|e| impossible(&e, self.target.path))
    }
}

/// How files are fetched.
struct Fetch<'a> {
    access: Access,
    report: &'a Reporter,
    /// In whose file systems they may be stored.
    directories: [OwnedFd; 2],
}

impl Fetch<'_> {
    fn unpack_all(&self, layers: &[RootLayer], to: &mut To<'_>) -> Result<(), Failure> {
        for (number, layer) in layers.iter().enumerate() {
            let (which, all, path) = (number + 1, layers.len(), to.target.path);
            self.report.info(format_args!("unpacking layer {which} of {all}, {} bytes, to {path}", layer.size));
            self.unpack(&layer.url, layer.digest, Some(layer.size), Manner::Layer, to)?;
        }
        Ok(())
    }

    fn unpack(
        &self, url: &str, digest: Digest, size: Option<u64>, manner: Manner, to: &mut To<'_>,
    ) -> Result<(), Failure> {
        let image = Image { access: self.access.clone(), ..image_at(url, Proof::Stored(digest)) };
        let directories = self.directories.each_ref();
        let spool = Spool::fetch(&Wanted { image: &image, digest, size }, &directories, self.report)?;
        let mut unpacker = to.begun()?;
        let mut source = spool.into_source();
        let order = ContentOrder { memory: available_memory(), observer: self.report, may_act: &|| Ok(()) };
        let unpacked = with_content(source.as_mut(), order, |content| unpacker.archive(content, manner));
        unpacked.map_err(|e| unfetched(&e))?.map_err(|e| refused(&e, &shown_name(&image)))?;
        to.unpacker = Some(unpacker);
        Ok(())
    }
}

fn refused(error: &UnpackError, at: &str) -> Failure {
    Failure { problem: error.problem().at(at), retryable: error.retryable() }
}

/// There can be no such directory.
fn impossible(error: &UnpackError, path: &str) -> Failure {
    if let UnpackError::Refused { .. } = error {
        return refused(error, path);
    }
    let message = format!("cannot unpack to {path} of the new system");
    let hint = "correct path in the template, or check whether the file system is full";
    let problem = Problem::new(ErrorCode::DeviceIo, message).caused_by(error);
    Failure { problem: problem.hint(hint).at(path), retryable: error.retryable() }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, io};

    use landfall_api::ImageAccess;

    use super::*;
    use crate::registry::{digest, serve};

    fn archive() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(5);
        header.set_mode(0o640);
        builder.append_data(&mut header, "etc/motd", &b"hello"[..]).unwrap();
        builder.into_inner().unwrap()
    }

    fn unpack(root: &Path, stored: &[u8], digest: Digest, path: &str) -> Result<ActionResult, Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), stored).unwrap();
        let url = format!("file://{}", file.path().display());
        let source = UnpackSource::Archive { url, digest };
        let spec = Unpack { source, access: ImageAccess::default(), path: path.into(), disk: None };
        perform(root, &[], &spec, &Reporter::new(io::sink()))
    }

    #[test]
    fn an_archive_is_unpacked_where_its_path_says_twice() {
        let (root, raw) = (tempfile::tempdir().unwrap(), archive());
        for stored in [raw.clone(), zstd::bulk::compress(&raw, 1).unwrap()] {
            let result = unpack(root.path(), &stored, digest(&stored), "/opt/app").unwrap();
            let ActionResult::Unpack(result) = result else { panic!("{result:?}") };
            assert_eq!((result.entries, result.bytes), (1, 5));
        }
        assert_eq!(fs::read(root.path().join("opt/app/etc/motd")).unwrap(), b"hello");
    }

    #[test]
    fn altered_and_cut_archives_change_nothing() {
        let (root, stored) = (tempfile::tempdir().unwrap(), archive());
        let right = digest(&stored);
        let mut altered = stored.clone();
        altered[512] ^= 1;
        // What follows the archive's end mark counts as well.
        let longer = [&stored[..], &[0; 512]].concat();
        for bytes in [&altered, &stored[..stored.len() - 512].to_vec(), &longer, &b"<html>".to_vec()] {
            let failure = unpack(root.path(), bytes, right, "/opt/app").unwrap_err();
            assert_eq!((failure.problem.code, failure.retryable), (ErrorCode::DigestMismatch, true), "{failure:?}");
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "the system is as it was");
        }
        let page = b"<html>".to_vec();
        let failure = unpack(root.path(), &page, digest(&page), "/").unwrap_err();
        assert!(matches!(failure.problem.code, ErrorCode::BadFormat | ErrorCode::Truncated), "{failure:?}");
    }

    #[test]
    fn a_file_in_the_directorys_place_is_named() {
        let (root, stored) = (tempfile::tempdir().unwrap(), archive());
        fs::write(root.path().join("opt"), "").unwrap();
        let failure = unpack(root.path(), &stored, digest(&stored), "/opt/app").unwrap_err();
        assert_eq!((failure.problem.code, failure.problem.subject.as_str()), (ErrorCode::DeviceIo, "/opt/app"));
    }

    fn layer(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn every_layer_of_an_image_is_unpacked_and_proven() {
        let layers = [layer(&[("etc/a", "1"), ("etc/b", "1")]), layer(&[("etc/.wh.a", ""), ("etc/c", "2")])];
        let of = |layer: &Vec<u8>| {
            let kind = "application/vnd.oci.image.layer.v1.tar";
            format!(r#"{{"mediaType":"{kind}","digest":"{}","size":{}}}"#, digest(layer), layer.len())
        };
        let manifest = format!(r#"{{"schemaVersion":2,"layers":[{}]}}"#, layers.each_ref().map(of).join(","));
        let proof = digest(manifest.as_bytes());
        let mut files: BTreeMap<_, _> =
            layers.iter().map(|it| (format!("/v2/a/blobs/{}", digest(it)), it.clone())).collect();
        files.insert(format!("/v2/a/manifests/{proof}"), manifest.into_bytes());
        let perform = |files: &BTreeMap<String, Vec<u8>>, root: &Path| {
            let url = format!("oci+http://{}/a@{proof}", serve(files.clone()));
            let source = UnpackSource::Image { url };
            let spec = Unpack { source, access: ImageAccess::default(), path: "/".into(), disk: None };
            super::perform(root, &[], &spec, &Reporter::new(io::sink()))
        };
        let root = tempfile::tempdir().unwrap();
        perform(&files, root.path()).unwrap();
        let there = |name: &str| root.path().join("etc").join(name).exists();
        assert_eq!([there("a"), there("b"), there("c")], [false, true, true]);
        // A blob of the same length that is not the one of its digest: it is not begun.
        let path = format!("/v2/a/blobs/{}", digest(&layers[1]));
        let altered = layer(&[("etc/.wh.b", ""), ("etc/c", "2")]);
        assert_eq!(altered.len(), layers[1].len(), "only the digest tells");
        files.insert(path, altered);
        let root = tempfile::tempdir().unwrap();
        let failure = perform(&files, root.path()).unwrap_err();
        assert_eq!(failure.problem.code, ErrorCode::DigestMismatch, "{failure:?}");
        let there = |name: &str| root.path().join("etc").join(name).exists();
        assert_eq!([there("a"), there("b"), there("c")], [true, true, false]);
    }
}
