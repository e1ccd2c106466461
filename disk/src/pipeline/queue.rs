//! What passes between two stages: items, or the error that ended the stage before.

use crossbeam_channel::{Receiver, Sender};

use crate::WriteError;

/// Where a stage puts what it made.
pub(super) type Queue<T> = Sender<Result<T, WriteError>>;
/// Where the next one takes it.
pub(super) type Source<T> = Receiver<Result<T, WriteError>>;
