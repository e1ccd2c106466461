//! The clients of BMCs against servers on loopback.

mod common;
mod complaints;
mod console;
mod ipmi;
mod ipmi_sim;
mod webhook;
