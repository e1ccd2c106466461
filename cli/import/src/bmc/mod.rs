//! A table of machines and their BMCs: each row becomes a Machine.
//!
//! Unlike files of other installers a table has a header that names each value, so that a row is either a machine or at fault: nothing
//! is left open, and one fault keeps all documents back.

mod cells;
mod columns;
mod machine;
mod table;

use std::collections::{BTreeMap, btree_map::Entry};

use landfall_api::{ErrorCode, Machine, Problem};

use self::columns::{Column, Header};
use self::table::rows;
pub use self::table::{CsvFile, MAX_CSV_BYTES};
use crate::Import;
use crate::report::Report;

/// Maps tables of machines. `credentials`: the Secret for each BMC whose row names none.
///
/// # Errors
/// A [`Problem`] for each fault of each file; its subject is the file, the line and the column. No value of a column of passwords is
/// repeated.
pub fn bmc(files: &[CsvFile<'_>], credentials: Option<&str>) -> Result<Import, Vec<Problem>> {
    let (mut found, mut report) = (Found::default(), Report::default());
    for file in files {
        report.in_file(file.name);
        found.file(file, credentials, &mut report);
    }
    if !found.problems.is_empty() {
        return Err(found.problems);
    }
    let mut import = Import { commands: vec!["landfall apply -f DOCUMENTS".to_owned()], ..Import::default() };
    for machine in &found.machines {
        let document = serde_json::to_value(machine).map_err(|error| {
            vec![Problem::new(ErrorCode::Internal, format!("a machine cannot be written: {error}"))]
        })?;
        import.documents.push(document);
    }
    let names: Vec<&str> = files.iter().map(|file| file.name).collect();
    Ok(report.into_import(&names, import))
}

/// What the files have.
#[derive(Default)]
struct Found {
    machines: Vec<Machine>,
    problems: Vec<Problem>,
    /// What belongs to one machine alone, with that machine's number, name and place.
    taken: BTreeMap<(&'static str, String), (usize, String, String)>,
}

impl Found {
    fn file(&mut self, file: &CsvFile<'_>, credentials: Option<&str>, report: &mut Report) {
        let rows = match rows(file) {
            Ok(rows) => rows,
            Err(problem) => return self.problems.push(problem),
        };
        let Some((first, rows)) = rows.split_first() else {
            return self
                .say(file.name, 1, "", "the file is empty", "begin it with a row such as name,bmc,credentials,macs");
        };
        let (header, faults) = Header::read(first.line, &first.cells);
        for (column, message, hint) in faults {
            self.say(file.name, header.line, &column, message, hint);
        }
        if !header.has(&Column::Name) || !header.has(&Column::Macs) && !header.has(&Column::Bmc) {
            // Of each row the same would be said.
            return;
        }
        if rows.is_empty() {
            self.say(file.name, header.line, "", "no machine follows the header", "write a row for each machine");
        }
        // Said once, and not of each row.
        let unnamed = header.has(&Column::Bmc) && !header.has(&Column::Credentials) && credentials.is_none();
        let credentials = if unnamed { Some("unnamed") } else { credentials };
        let (mut accounts, mut bmcs) = (false, false);
        for row in rows {
            if row.cells.len() != header.len() {
                let message = match row.cells.len() {
                    1 => format!("the row has 1 cell, and the header has {}", header.len()),
                    cells => format!("the row has {cells} cells, and the header has {}", header.len()),
                };
                let hint = "write a cell for each column, also an empty one; put one that has a delimiter in quotes";
                self.say(file.name, row.line, "", message, hint);
                continue;
            }
            let read = machine::read(&header, row, credentials);
            for (column, message, hint) in read.faults {
                self.say(file.name, row.line, &column, message, hint);
            }
            accounts |= read.account;
            if read.machine.spec.bmc.is_some() {
                bmcs = true;
                report.count("BMC", true);
            }
            report.count("machine", true);
            self.alone(file.name, row.line, &header, &read.machine);
            self.machines.push(read.machine);
        }
        if unnamed && bmcs {
            let hint = "name a Secret with username and password in a column credentials, or for all rows with --credentials SECRET";
            self.say(file.name, header.line, "credentials", "the BMCs have no account", hint);
        }
        if accounts {
            report.count("account", false);
            let message = format!(
                "the account in {} is not taken, because machines have no passwords; apply it as a Secret, and remove the columns",
                header.accounts().join(" and ")
            );
            report.todo(header.line, message);
        }
    }

    fn say(&mut self, file: &str, line: u64, column: &str, message: impl Into<String>, hint: impl Into<String>) {
        let place = place(file, line, column);
        self.problems.push(Problem::new(ErrorCode::InvalidDocument, message).at(place).hint(hint));
    }

    /// Refuses what another machine has already.
    fn alone(&mut self, file: &str, line: u64, header: &Header, machine: &Machine) {
        let name = &machine.metadata.name;
        if name.is_empty() {
            return;
        }
        let (number, spec) = (self.machines.len(), &machine.spec);
        let mut values = vec![(Column::Name, "name", name.clone())];
        values.extend(spec.identity.macs.iter().map(|mac| (Column::Macs, "mac", mac.to_string())));
        values.extend(spec.bmc.iter().map(|bmc| (Column::Bmc, "bmc", bmc.address.to_string())));
        values.extend(spec.reservations.iter().map(|one| (Column::Ip, "ip", one.address.to_string())));
        for (column, what, value) in values {
            match self.taken.entry((what, value.clone())) {
                Entry::Vacant(entry) => drop(entry.insert((number, name.clone(), place(file, line, "")))),
                // One port twice in a row is refused as such.
                Entry::Occupied(entry) if entry.get().0 == number => {}
                Entry::Occupied(entry) => {
                    let (_, other, at) = entry.get();
                    if column == Column::Name {
                        let (message, hint) = (format!("{value} stands twice, first at {at}"), "give it another name");
                        return self.say(file, line, &header.called(&column), message, hint);
                    }
                    let message = format!("{value} also belongs to {other}, at {at}");
                    let hint = "two machines must not share it; correct one of them";
                    self.say(file, line, &header.called(&column), message, hint);
                }
            }
        }
    }
}

/// `file:line column`.
fn place(file: &str, line: u64, column: &str) -> String {
    if column.is_empty() { format!("{file}:{line}") } else { format!("{file}:{line} {column}") }
}
