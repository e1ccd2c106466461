//! A fleet of simulated machines in one process, over real TLS on loopback: each enrols, holds its session, reports its
//! run, restarts and phones home, by the agent's own session library.
//!
//! [`measure`] drives a fleet against a server and takes the figures, [`subject`] starts that server (the coordinator, or
//! [`echo`], which answers the same calls and keeps nothing), [`agent`] is one machine's life, [`machine`] what it is
//! made of, [`report`] says what it came to. Nothing here knows the coordinator's code.

pub mod agent;
pub mod chance;
pub mod echo;
pub mod machine;
pub mod measure;
pub mod process;
pub mod report;
pub mod subject;
