//! `landfall-coordinator backup`: of the running coordinator over its socket, or of an unused data directory.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::Problem;
use tokio::net::UnixStream;

use super::{BackupError, Manifest, files, io_error, pack::Packed, read};
use crate::config::Config;
use landfall_store::{DATABASE, copy_database, hold};

/// A backup that was made.
#[derive(Debug)]
pub struct Taken {
    /// What is in it.
    pub manifest: Manifest,
    /// Whether a running coordinator made it.
    pub online: bool,
}

/// Makes a backup of the coordinator that `config` describes, in the new file `output`, mode 0600. It is read again and
/// compared with its manifest before it gets its name.
///
/// # Errors
/// [`BackupError`]; then there is no `output`.
pub async fn take(config: &Config, output: &Path) -> Result<Taken, BackupError> {
    if output.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(output.to_owned()));
    }
    let mut part = output.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let taken = write(config, &part, output).await;
    if taken.is_err() {
        // The first failure says more than this one's could.
        let _left = fs::remove_file(&part);
    }
    taken
}

async fn write(config: &Config, part: &Path, output: &Path) -> Result<Taken, BackupError> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", part)(error)),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part);
    let mut file = file.map_err(io_error("make", part))?;
    let socket = config.api_socket();
    let online = UnixStream::connect(&socket).await.is_ok();
    if online {
        download(&socket, part, &mut file).await?;
    } else {
        offline(&config.data_dir, part, &mut file)?;
    }
    file.sync_all().map_err(io_error("flush", part))?;
    let manifest = read::verify(part)?;
    // A link and not a rename: it refuses to take the place of what came meanwhile.
    fs::hard_link(part, output).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => BackupError::Exists(output.to_owned()),
        _ => io_error("make", output)(error),
    })?;
    fs::remove_file(part).map_err(io_error("remove", part))?;
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(io_error("flush", parent))?;
    Ok(Taken { manifest, online })
}

async fn download(socket: &Path, part: &Path, file: &mut File) -> Result<(), BackupError> {
    let broke = |error: reqwest::Error| {
        let mut text = error.to_string();
        let mut next = std::error::Error::source(&error);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        BackupError::Refused(text)
    };
    let client = reqwest::Client::builder().no_proxy().unix_socket(socket).build().map_err(broke)?;
    let mut answer = client.get("http://localhost/backup").send().await.map_err(broke)?;
    if !answer.status().is_success() {
        let status = answer.status();
        let text = answer.text().await.unwrap_or_default();
        let said = serde_json::from_str::<Problem>(&text).map_or_else(|_| status.to_string(), |p| p.to_string());
        return Err(BackupError::Refused(said));
    }
    while let Some(piece) = answer.chunk().await.map_err(broke)? {
        file.write_all(&piece).map_err(io_error("write", part))?;
    }
    Ok(())
}

fn offline(data_dir: &Path, part: &Path, file: &mut File) -> Result<(), BackupError> {
    if !data_dir.join(DATABASE).is_file() {
        return Err(BackupError::Nothing(data_dir.to_owned()));
    }
    let _held = hold(data_dir)?;
    files::remove_stale(data_dir)?;
    let copy = files::staging(data_dir);
    copy_database(data_dir, &copy)?;
    let opened = File::open(&copy).map_err(io_error("open", &copy));
    fs::remove_file(&copy).map_err(io_error("remove", &copy))?;
    let packed = Packed::of(data_dir, opened?)?;
    packed.write(io::BufWriter::new(file)).map_err(io_error("write", part))?;
    Ok(())
}
