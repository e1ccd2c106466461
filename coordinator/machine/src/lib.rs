//! One machine as pure logic: its workflow, its session, its lease, its life. No I/O, no clock, no runtime.
//!
//! [`step`] is all there is to it: a [`MachineState`] and an [`Input`] go in, the state as it is now and the [`Effect`]s
//! that are to be carried out come out, in their order. [`run`] is the part of it that moves a workflow.

mod advance;
mod connect;
mod context;
mod deletion;
pub mod derive;
mod disks;
mod effect;
pub mod elsewhere;
mod epoch;
mod fencing;
mod heard;
mod hello;
pub mod identity;
mod input;
mod lease;
pub mod life;
mod limits;
mod persons;
pub mod pool;
pub mod power;
mod reboot;
mod receipts;
mod restore;
pub mod run;
mod session;
mod state;
mod step;
mod stopping;
mod tick;
mod time;
pub mod turn;
mod unknown;

pub use effect::{Effect, Refusal, SETTLE, Tell, Which};
pub use epoch::Epoch;
pub use fencing::newest as newest_session;
pub use input::Input;
pub use life::{has_begun, has_ended, is_held, is_open, is_running, waits};
pub use limits::Limits;
pub use restore::{BEAT_EVERY, Horizon, mark_behind};
pub use session::{Beat, Session};
pub use state::MachineState;
pub use step::step;
pub use tick::is_due;
pub use time::{Now, Steady};
