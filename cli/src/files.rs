//! The files of an apply: found, read, parsed; and checked for errors across the whole set.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::{Document, ErrorCode, MAX_FILE_BYTES, Problem, Sourced};

use crate::failure::Failure;

/// The deepest level of directories, so that a loop of links ends.
const MAX_DEPTH: usize = 16;

/// Reads every document of every file, in the order of [`landfall_api::Kind::ALL`] and then as written.
///
/// # Errors
/// [`Failure::Refused`] with every fault of every file.
pub(crate) fn read(paths: &[PathBuf], recursive: bool) -> Result<Vec<Sourced>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        find(path, recursive, 0, &mut files)?;
    }
    let (mut documents, mut problems) = (Vec::new(), Vec::new());
    for file in &files {
        match Document::from_yaml_str(&file.display().to_string(), &content(file)?) {
            Ok(found) => documents.extend(found),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() {
        if documents.is_empty() {
            let given = paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
            let hint = "the command reads a directory's *.yaml, *.yml and *.json, with -R also those in subdirectories";
            return Err(Failure::local("there is no document", format!("none was found in {given}"), hint));
        }
        problems.extend(clashes(&documents));
    }
    if !problems.is_empty() {
        return Err(Failure::Refused(problems));
    }
    documents.sort_by_key(|sourced| sourced.document.kind());
    Ok(documents)
}

fn find(path: &Path, recursive: bool, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if path == Path::new("-") {
        files.push(path.to_owned());
        return Ok(());
    }
    let failed = |error: io::Error| Failure::local(format!("cannot read {}", path.display()), error, "");
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    if depth == MAX_DEPTH {
        let hint = "check for a link that leads back to a parent directory";
        return Err(Failure::local(
            format!("{} is too deep", path.display()),
            format!("{MAX_DEPTH} directories"),
            hint,
        ));
    }
    let mut entries: Vec<PathBuf> =
        fs::read_dir(path).map_err(failed)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>().map_err(failed)?;
    entries.sort();
    for entry in entries {
        let readable = entry.extension().and_then(|e| e.to_str()).is_some_and(|e| ["yaml", "yml", "json"].contains(&e));
        if entry.is_dir() {
            if recursive {
                find(&entry, recursive, depth + 1, files)?;
            }
        } else if readable {
            files.push(entry);
        }
    }
    Ok(())
}

/// A file's whole text, or that of standard input.
///
/// # Errors
/// [`Failure::Local`]: it cannot be read, or is not UTF-8.
pub(crate) fn content(path: &Path) -> Result<String, Failure> {
    let utf8 = |error| Failure::local(format!("cannot read {}", path.display()), error, "save it as UTF-8");
    String::from_utf8(bytes(path, MAX_FILE_BYTES)?).map_err(|error| utf8(error.utf8_error()))
}

/// A file's bytes, or those of standard input: at most one more than `limit`, so that a longer file is refused and not cut.
///
/// # Errors
/// [`Failure::Local`]: it cannot be read.
pub(crate) fn bytes(path: &Path, limit: usize) -> Result<Vec<u8>, Failure> {
    let failed = |error: io::Error| Failure::local(format!("cannot read {}", path.display()), error, "");
    let mut reader: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(fs::File::open(path).map_err(failed)?)
    };
    let mut content = Vec::new();
    reader.by_ref().take(limit as u64 + 1).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

/// Two documents of one name, or two machines with one address.
fn clashes(documents: &[Sourced]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (mut names, mut macs) = (BTreeMap::new(), BTreeMap::new());
    for sourced in documents {
        let reference = sourced.document.reference();
        if let Some(first) = names.insert(reference.clone(), sourced) {
            let message = format!("{reference} appears twice, first at {}", first.origin.place(""));
            problems.push(
                Problem::new(ErrorCode::InvalidDocument, message)
                    .at(sourced.origin.place("metadata.name"))
                    .hint("remove one of the two, or give it another name"),
            );
            continue;
        }
        let Document::Machine(machine) = &sourced.document else { continue };
        for (i, mac) in machine.spec.identity.macs.iter().enumerate() {
            let path = format!("spec.identity.macs[{i}]");
            if let Some((first, at)) = macs.insert(*mac, (reference.clone(), sourced.origin.place(&path))) {
                problems.push(
                    Problem::new(ErrorCode::AlreadyExists, format!("{mac} also belongs to {first}, at {at}"))
                        .at(sourced.origin.place(&path))
                        .hint("two machines must not share an address; correct one of them"),
                );
            }
        }
    }
    problems
}
