//! archive2disk: a tar archive.

use landfall_api::Digest;
use serde_json::json;

use super::{Context, List, Source, image2disk, with};
use crate::fields::is_true;

pub(super) fn add(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    let line = source.env("ARCHIVE_URL").map_or(source.line, |text| text.line);
    let url = source.required("ARCHIVE_URL", context);
    let url = image2disk::checked(url, line, context.report);
    let plain = source.env("ARCHIVE_TYPE").is_none_or(|kind| kind.text.trim().eq_ignore_ascii_case("tar"));
    let stated = source.env("TARFILE_CHECKSUM");
    let known = stated.as_ref().and_then(|text| text.text.trim().parse::<Digest>().ok());
    let digest = match (known, stated) {
        (Some(digest), _) if plain => digest.to_string(),
        (Some(_), Some(text)) => {
            let message = "TARFILE_CHECKSUM is that of the tar file before it was compressed; write the digest of the \
                stored file";
            context.report.todo(text.line, message);
            crate::todo::value("digest")
        }
        (_, stated) => image2disk::digest("the archive", stated.map_or(line, |text| text.line), context.report),
    };
    if let Some(waived) = source.env("INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION").filter(|text| is_true(&text.text)) {
        context.report.todo(waived.line, "an archive is never unpacked unchecked; write its digest");
    }
    source.not_needed(&["FS_TYPE"], "the file system is recognised", context);
    let path = source.env("DEST_PATH").map(|text| context.text(&text)).filter(|path| path != "/");
    let device = source.device("DEST_DISK", context);
    let disk = list.disk(device.as_ref(), source.line, context);
    let spec = with(with(json!({"url": url, "digest": digest}), "path", path), "disk", disk);
    list.items.push(source.done("unpack", spec, context));
    true
}
