//! The stages before the device: fetch, hash and decode, one thread each.

use std::{io, sync::Arc, thread::Scope, time::Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use landfall_api::Digest;

use super::blocks::Blocks;
use super::evidence::Evidence;
use super::hasher::Hasher;
use super::meter::{Meter, Wait};
use super::opened::{Opened, Recipe, STORED, fill};
use super::queue::{Queue, Source};
use super::rawcheck::{RawCheck, check_raw};
use super::{Context, Expectation, spawn};
use crate::buffer::{Buffer, Pool};
use crate::decode::{DecodeError, Decoded, Input, Limits, Sink, WINDOW_MAX};
use crate::memory::BUFFERS;
use crate::proof::SignatureVerifier;
use crate::source::ImageSource;
use crate::{Defect, WriteError};

/// How many buffers wait between two stages. All queues and hands together hold less than 32 MiB.
const DEPTH: usize = 4;

/// How much is fetched only to tell altered content from a wrong file, bytes: where the server says how long the file is,
/// and where it does not.
const ANNOUNCED: u64 = 16 << 30;
const UNANNOUNCED: u64 = 64 << 20;

/// Stored bytes, or their end.
enum Stored {
    Block(Buffer),
    /// All bytes there are were fetched.
    Drained(Drained),
}

/// What is known of the stored bytes at their end.
#[derive(Debug, Clone)]
struct Drained {
    stored: u64,
    /// How many the server had announced.
    announced: Option<u64>,
    /// Set by the hash stage.
    digest: Option<Digest>,
    /// Likewise: whether the signature holds, and why not.
    signed: Option<Result<(), String>>,
}

/// The running stages, as the writer sees them.
pub(super) struct Stages {
    /// What comes out: pieces, and at the end either an error or a disconnection.
    pub(super) pieces: Source<Decoded>,
    /// Then this has what is known of the whole image; disconnected without a value: a stage ended early.
    evidence: Receiver<Evidence>,
}

impl Stages {
    /// Once the pieces have ended without an error: what was seen.
    pub(super) fn evidence(&self) -> Result<Evidence, WriteError> {
        self.evidence.recv().map_err(|_| WriteError::Internal("a stage of the pipeline ended without a result".into()))
    }

    /// Starts the threads. `in_order`: pieces come in the image's order.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>, opened: Opened, source: &'scope mut dyn ImageSource,
        expectation: Expectation<'scope>, in_order: bool, blocks: &Arc<Pool>, context: Context<'scope>,
    ) -> Result<Self, WriteError> {
        let Context { image, meter, memory, .. } = context;
        let digest = match expectation {
            Expectation::Stored(digest) => Some(digest),
            _ => None,
        };
        let stored = Arc::new(Pool::new(STORED));
        let Opened { start, recipe, announced, .. } = opened;
        let (fetched_in, fetched) = bounded(DEPTH);
        let (hashed_in, hashed) = bounded(DEPTH);
        let (decoded_in, decoded) = bounded(DEPTH);
        let (judged, evidence) = bounded(1);
        let pool = Arc::clone(&stored);
        spawn(scope, "fetch", move || fetch(source, start, &pool, &fetched_in, context))?;
        let hasher = digest.as_ref().map(Hasher::like);
        let signature = match expectation {
            Expectation::Signed(signature) => Some(signature.verifier()),
            _ => None,
        };
        spawn(scope, "hash", move || hash(&fetched, &hashed_in, hasher, signature, meter))?;
        let pool = Arc::clone(blocks);
        let ordered = in_order || matches!(expectation, Expectation::Raw(_) | Expectation::Index(_));
        let decoding = move || {
            let sink = Sink::new(pool, decoded_in);
            Decoding { stored, image: image.to_owned(), recipe, digest, announced, ordered, memory }
                .run(hashed, sink, &judged);
        };
        spawn(scope, "decode", decoding)?;
        let check = match expectation {
            Expectation::Raw(digest) => RawCheck::Whole { hasher: Hasher::like(&digest), next: 0 },
            Expectation::Index(index) => RawCheck::Blocks(Blocks::new(index, image)),
            Expectation::Stored(_) | Expectation::Signed(_) | Expectation::Waived => {
                return Ok(Self { pieces: decoded, evidence });
            }
        };
        let (pieces_in, pieces) = bounded(DEPTH);
        let (judged, checked) = bounded(1);
        spawn(scope, "check", move || check_raw(&decoded, &pieces_in, &evidence, &judged, check))?;
        let evidence = checked;
        Ok(Self { pieces, evidence })
    }
}

fn fetch(source: &mut dyn ImageSource, start: Buffer, pool: &Pool, out: &Queue<Stored>, context: Context<'_>) {
    let mut stored = 0;
    let (mut first, mut next) = (true, Ok(start));
    loop {
        let block = match next {
            Ok(block) => block,
            Err(error) => {
                // If the writer has gone, it needs no reason.
                let _ = out.send(Err(error));
                return;
            }
        };
        stored += block.len as u64;
        // An empty first buffer is one that was read elsewhere.
        let elsewhere = first && block.len == 0;
        let ended = !block.is_full() && !elsewhere;
        first = false;
        let waiting = Instant::now();
        if out.send(Ok(Stored::Block(block))).is_err() {
            return;
        }
        context.meter.waited(Wait::Fetched, waiting);
        if ended {
            // As above.
            let _ = out.send(Ok(Stored::Drained(Drained {
                stored,
                announced: source.total(),
                digest: None,
                signed: None,
            })));
            return;
        }
        next = fill(source, pool, context);
    }
}

fn hash(
    input: &Source<Stored>, out: &Queue<Stored>, mut hasher: Option<Hasher>,
    mut signature: Option<Box<dyn SignatureVerifier + '_>>, meter: &Meter<'_>,
) {
    for item in input {
        let item = match item {
            Ok(Stored::Block(block)) => {
                if let Some(hasher) = &mut hasher {
                    hasher.update(block.data());
                }
                if let Some(signature) = &mut signature {
                    signature.update(block.data());
                }
                Ok(Stored::Block(block))
            }
            Ok(Stored::Drained(drained)) => {
                let signed = signature.take().map(SignatureVerifier::finish);
                Ok(Stored::Drained(Drained { digest: hasher.take().map(Hasher::finish), signed, ..drained }))
            }
            Err(error) => Err(error),
        };
        let waiting = Instant::now();
        if out.send(item).is_err() {
            return;
        }
        meter.waited(Wait::Hashed, waiting);
    }
}

/// The decode stage.
struct Decoding {
    stored: Arc<Pool>,
    image: String,
    recipe: Recipe,
    /// Digest of the stored bytes, where it is known.
    digest: Option<Digest>,
    /// Bytes of the stored file, where the source says so.
    announced: Option<u64>,
    /// Raw bytes are looked at as they pass.
    ordered: bool,
    /// Bytes that are available for the write, if known.
    memory: Option<u64>,
}

/// Stored bytes as a decoder wants them.
struct Hashed {
    queue: Source<Stored>,
    pool: Arc<Pool>,
    block: Option<Buffer>,
    at: usize,
    drained: Option<Drained>,
}

impl Input for Hashed {
    fn fill(&mut self) -> Result<&[u8], DecodeError> {
        while self.drained.is_none() && self.block.as_ref().is_none_or(|block| self.at == block.len) {
            if let Some(done) = self.block.take() {
                self.pool.give(done);
            }
            match receive(&self.queue).map_err(DecodeError::Input)? {
                Stored::Block(block) => (self.block, self.at) = (Some(block), 0),
                Stored::Drained(drained) => self.drained = Some(drained),
            }
        }
        Ok(self.block.as_ref().map_or(&[], |block| &block.data()[self.at..]))
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

impl Decoding {
    fn run(self, queue: Source<Stored>, mut sink: Sink, judged: &Sender<Evidence>) {
        let mut input = Hashed { queue, pool: Arc::clone(&self.stored), block: None, at: 0, drained: None };
        let window = self.memory.map_or(WINDOW_MAX, |bytes| bytes.saturating_sub(BUFFERS).min(WINDOW_MAX));
        let limits = Limits { ordered: self.ordered, window, ..Limits::default() };
        let error = match self.recipe.decode(&mut input, &mut sink, limits) {
            Ok(()) => match Self::finish(&mut input, &sink) {
                Ok(evidence) => {
                    // A writer that has left needs no evidence.
                    let _ = judged.send(evidence);
                    return;
                }
                Err(error) => error,
            },
            Err(DecodeError::Abandoned) => return,
            Err(DecodeError::Input(error)) => error,
            Err(DecodeError::Unfinished(reason)) => WriteError::Truncated { subject: self.image, reason },
            Err(DecodeError::Memory(bytes)) => WriteError::NotEnoughMemory {
                subject: self.image,
                needed: BUFFERS + bytes,
                available: self.memory.unwrap_or_default(),
            },
            Err(DecodeError::Bad(reason)) => self.better_reason(&mut input, reason),
        };
        sink.fail(error);
    }

    /// The decoder is content; is the input at its end?
    fn finish(input: &mut Hashed, sink: &Sink) -> Result<Evidence, WriteError> {
        let at_end = match input.fill() {
            Ok(rest) => rest.is_empty(),
            Err(DecodeError::Input(error)) => return Err(error),
            Err(_) => false,
        };
        match input.drained.take() {
            Some(Drained { stored, announced, digest, signed }) if at_end => {
                Ok(Evidence { stored, announced, digest, raw: sink.end(), raw_digest: None, chunks: false, signed })
            }
            _ => Err(WriteError::Internal("a decoder ended before its input".into())),
        }
    }

    /// Content that does not decode was usually altered or cut in transfer. If a digest was stated, the rest is fetched
    /// to check it, because "the file is not the one you named" helps more than "corrupt block".
    fn better_reason(self, input: &mut Hashed, reason: String) -> WriteError {
        let bad = WriteError::BadFormat { subject: self.image.clone(), reason, defect: Defect::Content };
        let Some(expected) = self.digest else { return bad };
        // A server that never ends is not read to its end.
        let mut left = self.announced.map_or(UNANNOUNCED, |announced| announced.min(ANNOUNCED));
        loop {
            match input.fill().map(<[u8]>::len) {
                Ok(0) => break,
                Ok(rest) if rest as u64 > left => return bad,
                Ok(rest) => {
                    left -= rest as u64;
                    input.consume(rest);
                }
                Err(DecodeError::Input(error @ WriteError::Truncated { .. })) => return error,
                Err(_) => return bad,
            }
        }
        match input.drained.take().and_then(|drained| drained.digest) {
            Some(actual) if actual != expected => WriteError::DigestMismatch { url: self.image, expected, actual },
            _ => bad,
        }
    }
}

fn receive(input: &Source<Stored>) -> Result<Stored, WriteError> {
    input.recv().unwrap_or_else(|_| {
        Err(WriteError::Start { what: "pipeline", source: io::Error::other("a stage ended without a result") })
    })
}
