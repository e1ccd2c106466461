//! `landfall import`: files of other installers as documents. landfall-import does the work.

use std::io::Write as _;
use std::path::Path;
use std::{fs, io};

use landfall_import::{File, Import, Level};

use crate::args::ImportFrom;
use crate::failure::Failure;
use crate::output::Out;
use crate::table::Columns;
use crate::{args, files, output};

pub(crate) fn run(args: &args::Import, out: &mut Out) -> Result<(), Failure> {
    let (paths, to) = match &args.from {
        ImportFrom::Tinkerbell { files, to } => (files.as_slice(), to),
        ImportFrom::Curtin { file, to } => (std::slice::from_ref(file), to),
    };
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let texts = paths.iter().map(|path| files::content(path)).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<File<'_>> = names.iter().zip(&texts).map(|(name, text)| File { name, text }).collect();
    let import = match (&args.from, files.as_slice()) {
        (ImportFrom::Curtin { .. }, [file]) => landfall_import::curtin(file),
        _ => landfall_import::tinkerbell(&files),
    };
    let import = import.map_err(Failure::Invalid)?;
    match &to.output {
        Some(folder) => write(&import, folder, out)?,
        None => out.value(import.to_yaml().trim_end())?,
    }
    report(&import, out);
    if import.is_complete() { Ok(()) } else { Err(Failure::Incomplete) }
}

/// Each document as a file.
fn write(import: &Import, folder: &Path, out: &mut Out) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| {
        let hint =
            if error.kind() == io::ErrorKind::AlreadyExists { "remove it, or name another directory" } else { "" };
        Failure::local(format!("cannot write {}", path.display()), error, hint)
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for (name, text) in import.to_files() {
        let path = folder.join(name);
        let mut file = fs::File::create_new(&path).map_err(|error| failed(&path, error))?;
        file.write_all(text.as_bytes()).map_err(|error| failed(&path, error))?;
        out.line(&path.display().to_string())?;
    }
    Ok(())
}

/// For people: findings, what was mapped, and what to do next.
fn report(import: &Import, out: &Out) {
    for finding in &import.findings {
        output::to_stderr(&finding.to_string());
    }
    let mut table = Columns::new(&["KIND", "FOUND", "MAPPED"]);
    for tally in &import.tally {
        table.row(vec![tally.kind.clone(), tally.found.to_string(), tally.mapped.to_string()]);
    }
    if !import.tally.is_empty() {
        table.lines(out, true).iter().for_each(output::text_to_stderr);
    }
    let todo = import.findings.iter().filter(|finding| finding.level == Level::Todo).count();
    let many = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let documents = many(import.documents.len(), "document");
    output::to_stderr(&format!("{documents}; {} to work on", many(todo, "finding")));
    for command in &import.commands {
        output::to_stderr(&format!("next: {command}"));
    }
}
