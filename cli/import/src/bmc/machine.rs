//! A row as a machine.

use landfall_api::{
    API_VERSION, BmcAddress, BmcSpec, BootWay, Digest, Document, Kind, Machine, Metadata, Object, Reservation,
};

use super::cells::{self, Fault};
use super::columns::{Column, Header};
use super::table::Row;

/// What a row says, and what is wrong with it.
#[derive(Debug)]
pub(super) struct Reading {
    /// Only as good as the row: without the cells that are at fault.
    pub(super) machine: Machine,
    /// Columns, what is so, and what to do.
    pub(super) faults: Vec<(String, String, String)>,
    /// Whether it has a user's name or a password.
    pub(super) account: bool,
}

/// Reads the row of a machine. `credentials`: the Secret for a BMC whose row names none.
pub(super) fn read(header: &Header, row: &Row, credentials: Option<&str>) -> Reading {
    let mut wrong = RowFaults { header, faults: Vec::new() };
    let mut machine = Machine {
        api_version: API_VERSION.to_owned(),
        kind: Kind::Machine,
        metadata: Metadata::default(),
        spec: Default::default(),
        status: None,
    };
    let (mut bmc, mut account) = (Bmc::default(), false);
    for (column, cell) in header.cells(&row.cells) {
        // A quote that is not closed takes the lines behind it.
        if cell.contains(['\n', '\r']) {
            let hint = "close the quote before it, or remove the line break";
            wrong.say(column, ("the cell has a line break".to_owned(), hint.to_owned()));
            continue;
        }
        let cell = cell.trim();
        if cell.is_empty() {
            continue;
        }
        let Object { metadata, spec, .. } = &mut machine;
        match column {
            Column::Name => cell.clone_into(&mut metadata.name),
            Column::Bmc => {
                bmc.stated = true;
                bmc.address = wrong.or_say(column, cells::address(cell));
            }
            Column::Credentials => bmc.credentials = Some(cell.to_owned()),
            Column::Certificate => {
                bmc.with_certificate = true;
                bmc.certificate = wrong.or_say(column, cells::certificate(cell));
            }
            Column::Ways => bmc.ways = wrong.or_say(column, cells::ways(cell)).unwrap_or_default(),
            Column::Macs => spec.identity.macs = wrong.or_say(column, cells::macs(cell)).unwrap_or_default(),
            Column::Serial => spec.identity.serial = Some(cell.to_owned()),
            Column::Uuid => spec.identity.smbios_uuid = wrong.or_say(column, cells::uuid(cell)),
            Column::Ip => {
                // The port gets its place below: its column may stand behind this one.
                let reservation = |address| Reservation { mac: landfall_api::MacAddr([0; 6]), address };
                spec.reservations.extend(wrong.or_say(column, cells::ip(cell)).map(reservation));
            }
            Column::Management => spec.management = wrong.or_say(column, cells::management(cell)).unwrap_or_default(),
            Column::Maintenance => spec.maintenance = wrong.or_say(column, cells::truth(cell)).unwrap_or_default(),
            Column::Label(key) => drop(metadata.labels.insert(key.clone(), cell.to_owned())),
            Column::Account => account = true,
            Column::Unnamed => {
                let message = "there is a value in a column without a name".to_owned();
                wrong.say(column, (message, "name the column in the header, or remove the value".to_owned()));
            }
            Column::Refused => {}
        }
    }
    if machine.metadata.name.is_empty() {
        wrong.say(&Column::Name, ("the machine has no name".to_owned(), "write one".to_owned()));
    }
    machine.spec.bmc = bmc.spec(credentials, &mut wrong);
    match machine.spec.identity.macs.first() {
        Some(first) => machine.spec.reservations.iter_mut().for_each(|reservation| reservation.mac = *first),
        None if !machine.spec.reservations.is_empty() => {
            machine.spec.reservations.clear();
            let hint = "write the port's address in the column macs, or leave the cell empty".to_owned();
            wrong.say(&Column::Ip, ("the row has no port that the address is for".to_owned(), hint));
        }
        None => {}
    }
    wrong.rules(&machine);
    Reading { machine, faults: wrong.faults, account }
}

/// What the row says of its BMC.
#[derive(Default)]
struct Bmc {
    stated: bool,
    address: Option<BmcAddress>,
    credentials: Option<String>,
    with_certificate: bool,
    certificate: Option<Digest>,
    ways: Vec<BootWay>,
}

impl Bmc {
    fn spec(self, default: Option<&str>, wrong: &mut RowFaults<'_>) -> Option<BmcSpec> {
        if !self.stated {
            let said = [
                (self.credentials.is_some(), Column::Credentials),
                (self.with_certificate, Column::Certificate),
                (!self.ways.is_empty(), Column::Ways),
            ];
            for (_, column) in said.into_iter().filter(|(said, _)| *said) {
                let message = "there is no BMC that it belongs to".to_owned();
                wrong.say(&column, (message, "write the BMC's address in the column bmc, or remove it".to_owned()));
            }
            return None;
        }
        let Some(credentials) = self.credentials.or_else(|| default.map(str::to_owned)) else {
            let hint = "name a Secret with username and password here, or for all rows with --credentials SECRET";
            wrong.say(&Column::Credentials, ("the BMC has no account".to_owned(), hint.to_owned()));
            return None;
        };
        let Self { address, certificate, ways, .. } = self;
        Some(BmcSpec { certificate, ways, ..BmcSpec::new(address?, credentials) })
    }
}

/// Collects what is wrong with a row, at its columns.
struct RowFaults<'h> {
    header: &'h Header,
    faults: Vec<(String, String, String)>,
}

impl RowFaults<'_> {
    fn say(&mut self, column: &Column, (message, hint): Fault) {
        self.faults.push((self.header.called(column), message, hint));
    }

    fn or_say<T>(&mut self, column: &Column, result: Result<T, Fault>) -> Option<T> {
        result.map_err(|fault| self.say(column, fault)).ok()
    }

    /// What `landfall apply` would refuse, at the columns that it comes from. A column that is at fault already has no second fault: its
    /// cell was not taken.
    fn rules(&mut self, machine: &Machine) {
        let before: Vec<String> = self.faults.iter().map(|(column, ..)| column.clone()).collect();
        for fault in Document::from(machine.clone()).faults() {
            let called = match column(&fault.subject) {
                Some(column) => self.header.called(&column),
                None => fault.subject,
            };
            if !before.contains(&called) {
                self.faults.push((called, fault.message, fault.hint));
            }
        }
    }
}

/// The column that a field of the document comes from.
fn column(path: &str) -> Option<Column> {
    if let Some(key) = path.strip_prefix("metadata.labels.") {
        return Some(Column::Label(key.to_owned()));
    }
    let columns = [
        ("metadata.name", Column::Name),
        ("spec.identity.macs", Column::Macs),
        ("spec.identity.serial", Column::Serial),
        ("spec.identity.smbiosUuid", Column::Uuid),
        ("spec.bmc.credentials", Column::Credentials),
        ("spec.bmc.certificate", Column::Certificate),
        ("spec.bmc.ways", Column::Ways),
        ("spec.bmc", Column::Bmc),
        ("spec.reservations[0].mac", Column::Macs),
        ("spec.reservations", Column::Ip),
    ];
    columns.into_iter().find(|(field, _)| path.starts_with(field)).map(|(_, column)| column)
}
