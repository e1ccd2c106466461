//! A machine's power: what is wanted of it, and what the next step is towards that. Pure: the caller reads the BMC, makes the step, and
//! notes in the machine's status that it was made.
//!
//! A step has succeeded when the machine's agent is heard, never because the BMC said so. Each way to netboot is tried once, one after
//! the other; then a person has to look.

mod attempts;
mod conditions;
mod plan;
mod step;
mod time;
mod wanted;

pub use attempts::{asks_again_to_eject, begin, cleared, doubt, end, gives, holds, note};
pub use conditions::{Contact, Ports, erase, follow_document, recognise, show, show_medium, status_of};
pub use plan::{Look, has_time, next, tried};
pub use step::{Outcome, Step};
pub use wanted::{Wanted, wanted};
