//! The columns: which there are, and what a header makes of them.

use landfall_api::nearest;

/// What the cells of a column are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Bmc,
    Credentials,
    Certificate,
    Ways,
    Macs,
    Serial,
    Uuid,
    Ip,
    Management,
    Maintenance,
    /// A label of that key.
    Label(String),
    /// A user's name or a password, which no document has. Its cells are never repeated.
    Account,
    /// Without a header: spreadsheets write delimiters behind the last column.
    Unnamed,
    /// The header is at fault already.
    Refused,
}

/// Each column's name, and how the files of others call it: of EKS Anywhere, TripleO, Metal3 and MAAS.
const KNOWN: [(&str, &[&str], Column); 13] = [
    ("name", &["hostname"], Column::Name),
    ("bmc", &["bmc_address", "bmc_ip", "pm_addr"], Column::Bmc),
    ("credentials", &[], Column::Credentials),
    ("certificate", &[], Column::Certificate),
    ("ways", &[], Column::Ways),
    ("macs", &["mac", "mac_address", "mac_addresses"], Column::Macs),
    ("serial", &[], Column::Serial),
    ("uuid", &[], Column::Uuid),
    ("ip", &["ip_address"], Column::Ip),
    ("management", &[], Column::Management),
    ("maintenance", &[], Column::Maintenance),
    ("username", &["bmc_username", "pm_user"], Column::Account),
    ("password", &["bmc_password", "pm_password"], Column::Account),
];
const LABEL: &str = "label.";

impl Column {
    /// The name as the documentation has it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Label(key) => format!("{LABEL}{key}"),
            other => {
                KNOWN.iter().find(|(_, _, column)| column == other).map(|(name, ..)| *name).unwrap_or_default().into()
            }
        }
    }

    /// The one that a header's cell names.
    fn named(cell: &str) -> Option<Self> {
        if cell.is_empty() {
            return Some(Self::Unnamed);
        }
        let plain = cell.to_ascii_lowercase().replace([' ', '-'], "_");
        if plain.starts_with(LABEL) {
            // The key keeps its letters.
            let key = cell.get(LABEL.len()..).unwrap_or_default().trim();
            return (!key.is_empty()).then(|| Self::Label(key.to_owned()));
        }
        let (.., column) = KNOWN.iter().find(|(name, other, _)| *name == plain || other.contains(&plain.as_str()))?;
        Some(column.clone())
    }
}

/// What is wrong with a header: the cell, or none; what; and what to do.
pub(super) type Fault = (String, String, String);

/// The columns of a header.
#[derive(Debug)]
pub(super) struct Header {
    /// Its line.
    pub(super) line: u64,
    columns: Vec<(Column, String)>,
}

impl Header {
    /// Reads the cells of a header, and says what is wrong with them.
    pub(super) fn read(line: u64, cells: &[String]) -> (Self, Vec<Fault>) {
        let (mut columns, mut faults): (Vec<(Column, String)>, Vec<Fault>) = (Vec::new(), Vec::new());
        for cell in cells.iter().map(|cell| cell.trim()) {
            let mut column = Column::named(cell).unwrap_or(Column::Refused);
            let several = matches!(column, Column::Account | Column::Unnamed | Column::Refused);
            if column == Column::Refused {
                faults.push((cell.to_owned(), format!("\"{cell}\" is an unknown column"), hint(cell)));
            } else if let Some((_, first)) = columns.iter().find(|(other, _)| *other == column && !several) {
                let message = match first.eq_ignore_ascii_case(cell) {
                    true => format!("the column \"{cell}\" stands twice"),
                    false => format!("the columns \"{first}\" and \"{cell}\" mean the same"),
                };
                faults.push((cell.to_owned(), message, "remove one of the two".to_owned()));
                column = Column::Refused;
            }
            columns.push((column, cell.to_owned()));
        }
        let header = Self { line, columns };
        if header.columns.iter().all(|(column, _)| matches!(column, Column::Refused | Column::Unnamed)) {
            // A row of values, which may be passwords: none is repeated.
            let message = "the file has no header: its first row names no column";
            let hint = format!("begin it with a row such as name,bmc,credentials,macs. {}", list());
            return (header, vec![(String::new(), message.to_owned(), hint)]);
        }
        let by_bmc = header.has(&Column::Bmc);
        for needed in [Column::Name, Column::Macs].into_iter().filter(|needed| *needed == Column::Name || !by_bmc) {
            if !header.has(&needed) {
                let hint = "every machine needs a name, and the address of a port that it netboots from or a BMC that lists them";
                faults.push((needed.name(), format!("the column {} is missing", needed.name()), hint.to_owned()));
            }
        }
        (header, faults)
    }

    /// Whether there is such a column.
    pub(super) fn has(&self, column: &Column) -> bool {
        self.columns.iter().any(|(other, _)| other == column)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    /// A row's cells, each with its column, and without the spaces around it.
    pub(super) fn cells<'r>(&'r self, row: &'r [String]) -> impl Iterator<Item = (&'r Column, &'r str)> {
        self.columns.iter().zip(row).map(|((column, _), cell)| (column, cell.as_str()))
    }

    /// A column as this header calls it.
    pub(super) fn called(&self, column: &Column) -> String {
        let called = self.columns.iter().find(|(other, _)| other == column);
        called.map_or_else(|| column.name(), |(_, called)| called.clone())
    }

    /// The columns of names and passwords.
    pub(super) fn accounts(&self) -> Vec<&str> {
        let accounts = self.columns.iter().filter(|(column, _)| *column == Column::Account);
        accounts.map(|(_, called)| called.as_str()).collect()
    }
}

fn list() -> String {
    let names: Vec<&str> = KNOWN.iter().map(|(name, ..)| *name).collect();
    format!("The columns are {} and {LABEL}KEY", names.join(", "))
}

fn hint(cell: &str) -> String {
    let names: Vec<&str> = KNOWN.iter().map(|(name, ..)| *name).collect();
    let plain = cell.to_ascii_lowercase();
    if plain.starts_with("label") || plain.starts_with("annotation") {
        return format!("write a column for each label, such as label.rack. {}", list());
    }
    match nearest(cell, &names) {
        Some(name) => format!("did you mean \"{name}\"? {}", list()),
        None => format!("remove it, or write it as a label: label.KEY. {}", list()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_header_is_refused_with_what_is_wrong() {
        for (header, at, said) in [
            (
                "name,macs,bmcs",
                "bmcs",
                "did you mean \"bmc\"? The columns are name, bmc, credentials, certificate, ways, macs",
            ),
            ("name,macs,labels", "labels", "write a column for each label, such as label.rack"),
            ("name,macs,annotation.a", "annotation.a", "write a column for each label"),
            ("name,macs,label.", "label.", "\"label.\" is an unknown column"),
            ("name,macs,gateway", "gateway", "\"gateway\" is an unknown column; remove it, or write it as a label"),
            ("name,macs,Name", "Name", "the column \"Name\" stands twice"),
            ("name,macs,hostname", "hostname", "the columns \"name\" and \"hostname\" mean the same"),
            ("name,macs,label.a,label.a", "label.a", "the column \"label.a\" stands twice"),
            ("macs", "name", "the column name is missing"),
            ("name", "macs", "the column macs is missing"),
            ("node-1,root,hunter2", "", "the file has no header: its first row names no column"),
        ] {
            let cells: Vec<String> = header.split(',').map(str::to_owned).collect();
            let (_, faults) = Header::read(1, &cells);
            let [(place, message, hint)] = faults.as_slice() else { panic!("{header}: {faults:?}") };
            let all = format!("{message}; {hint}");
            assert!(place == at && all.contains(said) && !all.contains("hunter2"), "{header}: {place}: {all}");
        }
    }

    #[test]
    fn a_header_is_read_in_any_case_and_order() {
        let cells = [" MACS ", "Label.Rack", "", "BMC-IP", "username", "password", "Name", ""].map(str::to_owned);
        let (header, faults) = Header::read(3, &cells);
        assert_eq!(faults, []);
        let label = Column::Label("Rack".into());
        assert!(header.has(&label) && header.has(&Column::Name) && header.has(&Column::Macs));
        assert_eq!((header.called(&Column::Bmc), header.called(&Column::Ip)), ("BMC-IP".into(), "ip".into()));
        assert_eq!(header.accounts(), ["username", "password"]);
    }
}
