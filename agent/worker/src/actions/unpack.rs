//! `unpack`: an archive behind a URL goes into the new system. Doing it twice leaves what doing it once does.

use std::io::{self, BufReader};

use landfall_api::{ErrorCode, Problem, Unpack, UnpackResult, message::ActionResult};
use landfall_disk::{CancelFlag, ProvenFile};
use landfall_unpack::{Limits, Manner, Tally, UnpackError, Unpacker};

use super::place::Place;
use crate::{Context, Failure};

/// The largest file that is fetched, bytes: ext4's largest file.
const MAX_BYTES: u64 = 16 << 40;
/// One read.
const CHUNK: usize = 256 << 10;

/// Unpacks it.
pub(super) fn perform(context: &Context<'_>, spec: &Unpack) -> Result<ActionResult, Failure> {
    let place = Place::open(context.target, &spec.path).map_err(|e| {
        let message = format!("cannot make the directory {} in the new system", spec.path);
        let hint = "correct path in the template, or check whether the file system is full";
        Failure::last(Problem::new(ErrorCode::DeviceIo, message).caused_by(&e).hint(hint).at(&spec.path))
    })?;
    context.report.info(format_args!("unpacking {} to {}", spec.url, spec.path));
    let of_file = |e: landfall_disk::WriteError| Failure { problem: e.problem(), retryable: e.retryable() };
    // The agent ends this process where it must stop.
    let never = CancelFlag::new();
    let file = ProvenFile::open(&spec.url, spec.digest, MAX_BYTES, context.report, &never).map_err(of_file)?;
    let mut input = BufReader::with_capacity(CHUNK, file);
    let unpacked = unpacked(&place, &mut input);
    // Bytes that were altered explain an archive that makes no sense; and all of them must be read to be proven.
    let rest = io::copy(&mut input, &mut io::sink());
    if let Some(failure) = input.into_inner().into_failure() {
        return Err(of_file(failure));
    }
    let retryable = |e: &UnpackError| matches!(e, UnpackError::Read { .. } | UnpackError::Io { .. });
    let tally = unpacked.map_err(|e| Failure { problem: e.problem().at(&spec.url), retryable: retryable(&e) })?;
    rest.map_err(|e| Failure::passing(Problem::new(ErrorCode::SourceUnreachable, e.to_string()).at(&spec.url)))?;
    let Tally { entries, bytes } = tally;
    context.report.info(format_args!("{entries} entries with {bytes} bytes are unpacked"));
    // The agent knows which device is mounted there.
    Ok(ActionResult::Unpack(UnpackResult { root_device: String::new(), entries, bytes }))
}

fn unpacked(place: &Place, input: &mut dyn io::BufRead) -> Result<Tally, UnpackError> {
    let mut unpacker = Unpacker::new(&place.path(), Limits::default(), &|| true)?;
    unpacker.archive(input, Manner::Archive)?;
    unpacker.finish()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

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
        for _ in 0..2 {
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
