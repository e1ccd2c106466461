//! What every back end refuses beyond.

/// At most this many events are kept for one workflow; an agent that reports more is refused. A run of ten actions
/// with a hundred attempts each stays below it.
pub const MAX_EVENTS_PER_WORKFLOW: u64 = 10_000;

/// A document as stored, larger than this many bytes of JSON, is refused: other back ends hold 1.5 MiB an object.
pub const MAX_DOCUMENT_BYTES: usize = 1 << 20;
