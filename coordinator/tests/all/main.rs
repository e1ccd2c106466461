//! Tests of the coordinator as a whole: the real program as a process of its own, or its parts behind real TLS.

mod agent_session;
mod backup;
mod besieged;
mod cable;
mod disk_full;
mod flood;
mod garbage;
mod half_open;
mod inspect;
mod kill;
mod local;
mod operations;
mod permissions;
mod permissions_identity;
mod permitted;
mod process;
mod recorded;
mod relay;
mod several;
mod several_hosts;
mod several_people;
mod site;
mod takeover;
mod telemetry;
