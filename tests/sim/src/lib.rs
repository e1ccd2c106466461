//! A fleet of simulated machines in one process, over real TLS on loopback: each enrols, holds its session, reports its
//! workflow, restarts and phones home, by the agent's own session library.
//!
//! [`measure`] drives a fleet against a server and takes the figures, [`subject`] starts that server (the coordinator, or several of one
//! store, or [`echo`], which answers the same calls and keeps nothing), [`power`] does so with machines behind BMCs, [`agent`] is one
//! machine's life, [`machine`] its parts, [`report`] prints the result. This crate does not use the coordinator's code.

pub mod agent;
pub mod chance;
pub mod echo;
pub mod machine;
pub mod measure;
mod member;
pub mod power;
pub mod process;
pub mod report;
pub mod subject;
