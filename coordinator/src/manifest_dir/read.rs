//! The files of the directory, read and parsed. Knows nothing of what is stored.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fs, io};

use landfall_api::{Document, ErrorCode, MAX_FILE_BYTES, Problem, Sourced};

/// The largest number of files; with more, none is read.
const MAX_FILES: usize = 10_000;

/// A file's documents, or all that is wrong with it.
pub type FileContent = Result<Vec<Sourced>, Vec<Problem>>;

/// What is in the directory.
#[derive(Debug, Default)]
pub struct Scan {
    /// Every file by name, with its documents or all that is wrong with it.
    pub files: Vec<(String, FileContent)>,
    /// Why the directory itself cannot be read. Then there are no files.
    pub problem: Option<Problem>,
}

/// Reads every `*.yaml`, `*.yml` and `*.json` of the directory. Not what is below it, nor what begins with a dot or ends
/// like an editor's copy.
pub fn scan(directory: &Path) -> Scan {
    match list(directory) {
        Ok(names) if names.len() > MAX_FILES => {
            let message = format!("there are {} files; the limit is {MAX_FILES}", names.len());
            let problem = Problem::new(ErrorCode::LimitReached, message).at(directory.display().to_string());
            Scan { problem: Some(problem.hint("put several documents into one file")), ..Scan::default() }
        }
        Ok(names) => {
            let files = names.into_iter().map(|name| {
                let read = read(directory, &name);
                (name, read)
            });
            Scan { files: files.collect(), problem: None }
        }
        Err(error) => {
            let problem = Problem::new(ErrorCode::NotFound, format!("cannot read the directory: {error}"))
                .at(directory.display().to_string())
                .hint(
                    "correct manifests.directory, or make it readable for the coordinator's user; nothing was \
                    changed",
                );
            Scan { problem: Some(problem), ..Scan::default() }
        }
    }
}

fn list(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let wanted = [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end));
        if wanted && !name.starts_with('.') && !name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn read(directory: &Path, name: &str) -> FileContent {
    let text = content(&directory.join(name)).map_err(|problem| vec![problem.at(name)])?;
    Document::from_yaml_str(name, &text)
}

fn content(path: &Path) -> Result<String, Problem> {
    let unreadable = |error: io::Error| {
        Problem::new(ErrorCode::InvalidDocument, format!("cannot read it: {error}"))
            .hint("make it readable for the coordinator's user")
    };
    // Looked at before it is opened: opening a FIFO would wait for its writer.
    let meta = fs::metadata(path).map_err(unreadable)?;
    if !meta.is_file() {
        return Err(Problem::new(ErrorCode::InvalidDocument, "it is not a file").hint("remove it"));
    }
    if meta.mode() & 0o002 != 0 {
        return Err(Problem::new(ErrorCode::Forbidden, "every user of this host may write it, so it is not trusted")
            .hint("chmod o-w it"));
    }
    let mut text = String::new();
    let limit = MAX_FILE_BYTES as u64 + 1;
    File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text)).map_err(unreadable)?;
    Ok(text)
}
