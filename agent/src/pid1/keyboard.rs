//! Ctrl-Alt-Del. The kernel would restart at once; the agent writes back what is in memory first.

use nix::sys::reboot::set_cad_enabled;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The kernel obeys the keys again, and at once.
pub(super) fn give_back() {
    // Where it refuses, the machine has a power button.
    set_cad_enabled(true).unwrap_or_default();
}

/// Restarts that a person asks for at the keyboard.
pub(super) struct Restarts(Option<Signal>);

impl Restarts {
    /// From now on the kernel sends SIGINT instead of restarting (reboot(2)).
    pub(super) fn listen() -> Self {
        let asked = signal(SignalKind::interrupt()).and_then(|signal| {
            set_cad_enabled(false)?;
            Ok(signal)
        });
        Self(asked.inspect_err(|e| tracing::warn!("Ctrl-Alt-Del restarts this machine without a sync: {e}")).ok())
    }

    /// Waits for the keys.
    pub(super) async fn pressed(&mut self) {
        let pressed = match &mut self.0 {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if pressed.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
