//! The computer's serial port, as the BMC shows it over the network.

use std::collections::VecDeque;

/// The serial port, and who has it.
#[derive(Debug, Clone, Default)]
pub struct Serial {
    /// What was typed, by whichever session.
    pub typed: Vec<u8>,
    /// Breaks so far.
    pub breaks: u32,
    /// How often it was activated.
    pub activated: u32,
    /// How often a session asked for its end.
    pub deactivated: u32,
    /// What is typed is written back.
    pub echoes: bool,
    /// The session that has it, by its name.
    pub owner: Option<String>,
    /// The session that had it, and is to learn that.
    pub(crate) evicted: Option<String>,
    /// What the computer has written, and no session was sent.
    pub(crate) output: VecDeque<u8>,
}

impl Serial {
    /// The BMC ends it by itself.
    pub fn end(&mut self) {
        self.evicted = self.owner.take();
    }
}
