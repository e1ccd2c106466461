//! One machine as pure logic: no I/O, no clock, no runtime.

pub mod derive;
pub mod run;
pub mod stopping;
