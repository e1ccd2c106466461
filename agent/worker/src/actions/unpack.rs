//! `unpack`: an archive behind a URL goes into the new system. Doing it twice leaves what doing it once does.

use landfall_api::{ErrorCode, Problem, Unpack, UnpackResult, message::ActionResult};
use landfall_disk::{Access, Content, ContentOrder, Image, Proof, open_source, with_content};
use landfall_unpack::{Limits, Manner, Tally, UnpackError, Unpacker};

use super::place::Place;
use crate::{Context, Failure};

/// Unpacks it.
pub(super) fn perform(context: &Context<'_>, spec: &Unpack) -> Result<ActionResult, Failure> {
    let place = Place::open(context.target, &spec.path).map_err(|e| {
        let message = format!("cannot make the directory {} in the new system", spec.path);
        let hint = "correct path in the template, or check whether the file system is full";
        Failure::last(Problem::new(ErrorCode::DeviceIo, message).caused_by(&e).hint(hint).at(&spec.path))
    })?;
    context.report.info(format_args!("unpacking {} to {}", spec.url, spec.path));
    let Tally { entries, bytes } = fetched(context, spec, &place)?;
    context.report.info(format_args!("{entries} entries with {bytes} bytes are unpacked"));
    // The agent knows which device is mounted there.
    Ok(ActionResult::Unpack(UnpackResult { root_device: String::new(), entries, bytes }))
}

fn fetched(context: &Context<'_>, spec: &Unpack, place: &Place) -> Result<Tally, Failure> {
    let of_file = |e: landfall_disk::WriteError| Failure { problem: e.problem(), retryable: e.retryable() };
    let image = Image {
        urls: vec![spec.url.clone()],
        proof: Proof::Stored(spec.digest),
        format: None,
        no_table: false,
        access: Access::default(),
    };
    let mut source = open_source(&image, true, context.report).map_err(of_file)?;
    // The agent ends this process where it must stop.
    let may_act = || Ok(());
    let order = ContentOrder { digest: spec.digest, memory: None, observer: context.report, may_act: &may_act };
    let unpacked = with_content(&mut *source, order, |content| {
        let unpacked = unpacked(place, content);
        // Bytes that were altered explain an archive that makes no sense; and all of them must be read to be proven.
        content.finish();
        unpacked
    });
    let retryable = |e: &UnpackError| matches!(e, UnpackError::Read { .. } | UnpackError::Io { .. });
    unpacked.map_err(of_file)?.map_err(|e| Failure { problem: e.problem().at(&spec.url), retryable: retryable(&e) })
}

fn unpacked(place: &Place, content: &mut Content<'_>) -> Result<Tally, UnpackError> {
    let mut unpacker = Unpacker::new(&place.path(), Limits::default(), &|| true)?;
    unpacker.archive(content, Manner::Archive)?;
    unpacker.finish()
}

#[cfg(test)]
mod tests {
    use std::{fs, io, path::Path};

    use landfall_api::{Digest, message::ActionKind};
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
        let spec = Unpack { url, digest, path: path.into(), disk: None };
        let job = testing::job(ActionKind::Unpack(spec.clone()));
        let report = Reporter::new(io::sink());
        perform(&Context { job: &job, report: &report, target: root }, &spec)
    }

    fn digest(bytes: &[u8]) -> Digest {
        Digest::from_sha256(Sha256::digest(bytes).into())
    }

    #[test]
    fn an_archive_is_unpacked_where_its_path_says_twice() {
        let (root, stored) = (tempfile::tempdir().unwrap(), archive());
        for stored in [&stored, &zstd::encode_all(&stored[..], 3).unwrap()] {
            let result = unpack(root.path(), stored, digest(stored), "/opt/app").unwrap();
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
