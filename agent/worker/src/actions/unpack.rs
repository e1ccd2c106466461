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
    use std::{
        collections::BTreeMap,
        fs,
        io::{self, BufRead as _, BufReader, Write as _},
        net::TcpListener,
        path::Path,
    };

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

    /// A registry that has these at their paths, on loopback; its address.
    fn serve(files: BTreeMap<String, Vec<u8>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let path = lines.next().and_then(|line| Some(line.split(' ').nth(1)?.to_owned())).unwrap_or_default();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let body = files.get(&path).map_or(&b""[..], Vec::as_slice);
                let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
                let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                // A client may hang up.
                drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
            }
        });
        address
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
            let job = testing::job(ActionKind::Unpack(spec.clone()));
            let report = Reporter::new(io::sink());
            perform(&Context { job: &job, report: &report, target: root }, &spec)
        };
        let root = tempfile::tempdir().unwrap();
        perform(&files, root.path()).unwrap();
        let there = |name: &str| root.path().join("etc").join(name).exists();
        assert_eq!([there("a"), there("b"), there("c")], [false, true, true]);
        // A blob of the same length that is not the one of its digest.
        let path = format!("/v2/a/blobs/{}", digest(&layers[1]));
        let altered = layer(&[("etc/.wh.b", ""), ("etc/c", "2")]);
        assert_eq!(altered.len(), layers[1].len(), "only the digest tells");
        files.insert(path, altered);
        let failure = perform(&files, root.path()).unwrap_err();
        assert_eq!(failure.problem.code, ErrorCode::DigestMismatch, "{failure:?}");
    }
}
