//! `unpack`: an archive behind a URL, or every layer of an image, goes into the new system. Doing it twice leaves what doing it
//! once does.

use landfall_api::{Digest, ErrorCode, Problem, Unpack, UnpackResult, UnpackSource, message::ActionResult};
use landfall_disk::{
    Access, CancelFlag, ContentOrder, Image, Proof, WriteError, open_source, root_layers, with_content,
};
use landfall_unpack::{Limits, Manner, Tally, UnpackError, Unpacker};

use super::place::Place;
use crate::{Context, Failure, Reporter};

/// Unpacks it.
pub(super) fn perform(context: &Context<'_>, spec: &Unpack) -> Result<ActionResult, Failure> {
    let place = Place::open(context.target, &spec.path).map_err(|e| {
        let message = format!("cannot make the directory {} in the new system", spec.path);
        let hint = "correct path in the template, or check whether the file system is full";
        Failure::last(Problem::new(ErrorCode::DeviceIo, message).caused_by(&e).hint(hint).at(&spec.path))
    })?;
    let fetch = Fetch { access: Access::from(&spec.access), report: context.report };
    let root = place.path();
    // The agent ends this process where it must stop.
    let mut unpacker = Unpacker::new(&root, Limits::default(), &|| true).map_err(|e| refused(&e, &spec.path))?;
    match &spec.source {
        UnpackSource::Archive { url, digest } => {
            context.report.info(format_args!("unpacking {url} to {}", spec.path));
            fetch.unpack(url, *digest, Manner::Archive, &mut unpacker)?;
        }
        UnpackSource::Image { url } => {
            let layers = root_layers(url, &fetch.access, context.report, &CancelFlag::new()).map_err(unfetched)?;
            for (number, layer) in layers.iter().enumerate() {
                let (which, all) = (number + 1, layers.len());
                let said = format_args!("unpacking layer {which} of {all}, {} bytes, to {}", layer.size, spec.path);
                context.report.info(said);
                fetch.unpack(&layer.url, layer.digest, Manner::Layer, &mut unpacker)?;
            }
        }
    }
    let Tally { entries, bytes } = unpacker.finish().map_err(|e| refused(&e, &spec.path))?;
    context.report.info(format_args!("{entries} entries with {bytes} bytes are unpacked"));
    // The agent knows which device is mounted there.
    Ok(ActionResult::Unpack(UnpackResult { root_device: String::new(), entries, bytes }))
}

/// How files are fetched.
struct Fetch<'a> {
    access: Access,
    report: &'a Reporter,
}

impl Fetch<'_> {
    fn unpack(&self, url: &str, digest: Digest, manner: Manner, to: &mut Unpacker<'_>) -> Result<(), Failure> {
        let image = Image {
            urls: vec![url.to_owned()],
            proof: Proof::Stored(digest),
            format: None,
            no_table: false,
            access: self.access.clone(),
        };
        let mut source = open_source(&image, true, self.report).map_err(unfetched)?;
        let order = ContentOrder { digest, memory: None, observer: self.report, may_act: &|| Ok(()) };
        let unpacked = with_content(source.as_mut(), order, |content| {
            let unpacked = to.archive(content, manner);
            // Bytes that were altered explain an archive that makes no sense.
            if unpacked.is_err() {
                content.finish();
            }
            unpacked
        });
        unpacked.map_err(unfetched)?.map_err(|e| refused(&e, &image.shown_name()))
    }
}

fn unfetched(error: WriteError) -> Failure {
    Failure { problem: error.problem(), retryable: error.retryable() }
}

fn refused(error: &UnpackError, at: &str) -> Failure {
    let retryable = matches!(error, UnpackError::Read { .. } | UnpackError::Io { .. });
    Failure { problem: error.problem().at(at), retryable }
}

#[cfg(test)]
mod tests {
    use std::{fs, io, path::Path};

    use landfall_api::{ImageAccess, message::ActionKind};
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::{Reporter, testing};

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
        let job = testing::job(ActionKind::Unpack(spec.clone()));
        let report = Reporter::new(io::sink());
        perform(&Context { job: &job, report: &report, target: root }, &spec)
    }

    fn digest(bytes: &[u8]) -> Digest {
        Digest::from_sha256(Sha256::digest(bytes).into())
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
    fn altered_and_cut_archives_never_succeed() {
        let (root, stored) = (tempfile::tempdir().unwrap(), archive());
        let right = digest(&stored);
        let mut altered = stored.clone();
        altered[512] ^= 1;
        // What follows the archive's end mark counts as well.
        let longer = [&stored[..], &[0; 512]].concat();
        for bytes in [&altered, &stored[..stored.len() - 512].to_vec(), &longer, &b"<html>".to_vec()] {
            let failure = unpack(root.path(), bytes, right, "/").unwrap_err();
            assert_eq!(failure.problem.code, ErrorCode::DigestMismatch, "{failure:?}");
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
}
