//! The marks by which kernels, tools and firmware know what is on a disk or partition: one table of them, finding them,
//! and clearing them.

mod clear;
mod find;
mod table;

pub(crate) use clear::{clear, zero_except};
pub(crate) use find::{at_start, find, is_table};
#[cfg(test)]
pub(crate) use find::{tests, volume_names};
