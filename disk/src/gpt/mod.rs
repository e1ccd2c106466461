//! GUID partition tables: reading either copy with every check, and writing header, entries and LBA 0 as pieces of
//! their own. The `gpt` crate writes them all at once, which the commit order forbids; the tests use it as an
//! independent reader.

mod keep;
mod layout;
mod legacy;
mod made;
mod old;
mod place;
mod table;

pub(crate) use keep::Kept;
pub use keep::{KeptPartition, find_kept};
pub(crate) use layout::{Captured, Fate, HEAD, Layout, Piece};
pub(crate) use legacy::{
    Legacy, LegacyPartition, has_signature, held_back, legacy_partitions, plausible_table, put_boot_code,
};
pub use made::{NewPartition, NewTable, TableKind};
pub(crate) use old::{Old, Retirement};
pub use place::RECEIPT_TYPE;
pub use table::{Entry, Header, Table, TableError};
