//! `landfall backup`: a copy of all data of the coordinator, complete or not at all.

use std::{io, os::fd::AsFd, path::Path};

use futures::{StreamExt, stream::BoxStream};
use landfall_client::{Client, ClientError};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio_util::bytes::Bytes;

use crate::args::Backup;
use crate::failure::Failure;
use crate::output::Out;
use crate::{human, output};

pub(crate) async fn run(args: &Backup, client: &Client, out: &Out) -> Result<(), Failure> {
    if args.output == Path::new("-") {
        if out.is_terminal() {
            return Err(Failure::Usage(
                "a backup is binary data, which a terminal cannot show; write it to a file or a pipe".into(),
            ));
        }
        let bytes = client.backup().await?;
        let out = std::fs::File::from(io::stdout().as_fd().try_clone_to_owned()?);
        // Half a backup is useless, even if the reader caused it.
        copy(bytes, &mut tokio::fs::File::from_std(out)).await.map_err(Failure::cut_off)?;
        return Ok(());
    }
    let path = &args.output;
    let failed = |e: io::Error| Failure::local(format!("cannot write {}", path.display()), e, "");
    // Checked before the request, to avoid a long useless response.
    if !args.overwrite && path.exists() {
        let what = format!("{} already exists", path.display());
        return Err(Failure::local(
            what, "a backup replaces a file only with --overwrite", "use another name, or --overwrite",
        ));
    }
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // Made with mode 0600, and gone again if anything fails.
    let fresh = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    let bytes = client.backup().await?;
    let mut file = tokio::fs::File::from_std(fresh.as_file().try_clone().map_err(failed)?);
    let size = copy(bytes, &mut file).await?;
    file.sync_all().await.map_err(failed)?;
    let persisted = if args.overwrite { fresh.persist(path) } else { fresh.persist_noclobber(path) };
    persisted.map_err(|e| failed(e.error))?;
    output::to_stderr(&format!("{} written, {}", path.display(), human::bytes(size)));
    Ok(())
}

/// Bytes that were copied. An answer that breaks off is a failure: HTTP says so.
async fn copy(
    mut bytes: BoxStream<'static, Result<Bytes, ClientError>>, to: &mut (impl AsyncWrite + Unpin),
) -> Result<u64, Failure> {
    let mut size = 0;
    while let Some(chunk) = bytes.next().await {
        let chunk = chunk?;
        to.write_all(&chunk).await?;
        size += chunk.len() as u64;
    }
    to.flush().await?;
    if size == 0 {
        return Err(Failure::local("the backup is empty", "the coordinator sent nothing", "read its log"));
    }
    Ok(size)
}
