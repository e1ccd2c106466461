//! Tests of the whole writer, a module for each claim; in one program, because linking 23 takes longer than running them.
//! `cargo test -p landfall-disk --test all power_cuts` runs one module.
#![allow(clippy::unwrap_used)] // Tests.

mod common;

mod crash;
mod device_faults;
mod divide;
mod fault_matrix;
mod faults;
mod formats;
mod grow;
mod http;
mod indexed;
mod keep;
mod kill;
mod lend;
mod loop_device;
mod mutants;
mod not_images;
mod power_cuts;
mod proofs;
mod read_back;
mod registries;
mod restart;
mod selection;
mod sources;
mod wipe;
