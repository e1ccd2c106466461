//! `landfall import`: files of other installers, and tables of machines, as documents. landfall-import does the work.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::{MAX_FILE_BYTES, Problem};
use landfall_import::{CsvFile, File, Import, Level, MAX_CSV_BYTES};

use crate::args::ImportFrom;
use crate::failure::Failure;
use crate::output::Out;
use crate::table::Columns;
use crate::{args, files, output};

pub(crate) fn run(args: &args::Import, out: &mut Out) -> Result<(), Failure> {
    let (import, to) = match &args.from {
        ImportFrom::Tinkerbell { files, to } => (imported(files, landfall_import::tinkerbell)?, to),
        ImportFrom::Curtin { file, to } => {
            let curtin =
                |files: &[File<'_>]| files.first().map_or_else(|| Ok(Import::default()), landfall_import::curtin);
            (imported(std::slice::from_ref(file), curtin)?, to)
        }
        ImportFrom::Bmc { files, credentials, to } => (tables(files, credentials.as_deref())?, to),
    };
    match &to.output {
        Some(folder) => write(&import, folder, out)?,
        None => {
            let text = import.to_yaml();
            out.value(text.trim_end())?;
            if text.len() > MAX_FILE_BYTES {
                output::to_stderr(
                    "note: landfall apply reads no file of that length; use --output, and apply the directory",
                );
            }
        }
    }
    report(&import, out);
    if import.is_complete() { Ok(()) } else { Err(Failure::Incomplete) }
}

/// Of files of YAML.
fn imported(
    paths: &[PathBuf], import: impl Fn(&[File<'_>]) -> Result<Import, Vec<Problem>>,
) -> Result<Import, Failure> {
    let names = shown(paths);
    let texts = paths.iter().map(|path| files::content(path)).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<File<'_>> = names.iter().zip(&texts).map(|(name, text)| File { name, text }).collect();
    import(&files).map_err(Failure::NotImported)
}

/// Of files of CSV.
fn tables(paths: &[PathBuf], credentials: Option<&str>) -> Result<Import, Failure> {
    let names = shown(paths);
    let contents = paths.iter().map(|path| files::bytes(path, MAX_CSV_BYTES)).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<CsvFile<'_>> =
        names.iter().zip(&contents).map(|(name, content)| CsvFile { name, content }).collect();
    landfall_import::bmc(&files, credentials).map_err(Failure::NotImported)
}

fn shown(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
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
