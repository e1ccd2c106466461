//! Programs of an installed system, run inside it: in its root, with the kernel's file systems in place, and with nothing left
//! of them when they end.

mod enter;
mod init;
mod output;
mod program;

pub(crate) use self::{
    init::{INIT, agent_as_init, init},
    program::{Ended, RunError, Setting, run},
};
