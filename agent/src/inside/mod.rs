//! Programs of an installed system or of the tools layer, run inside it: in its root, with the kernel's file systems in place, and with nothing left
//! of them when they end.

mod enter;
mod init;
mod output;
mod program;
mod supervised;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use self::enter::Setting;
pub(crate) use self::init::{INIT, agent_as_init, init};
pub(crate) use self::output::{Hidden, lines};
pub(crate) use self::program::{PATH, run};
pub(crate) use self::supervised::{Ended, RunError, supervise};
