//! The stages before the device: fetch, hash and decode, one thread each.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    thread::{Builder, Scope},
};

use crossbeam_channel::{Receiver, Sender, bounded};
use landfall_api::Digest;

use super::{blocks::Blocks, hasher::Hasher, meter::Meter};
use crate::{
    Expectation, Format, WriteError,
    buffer::{Buffer, Pool},
    decode::{DecodeError, Decoded, Input, Limits, Sink, decode, format_of, qcow2},
    proof::SignatureVerifier,
    source::ImageSource,
};

/// Bytes of a buffer of stored bytes.
const STORED: usize = 512 * 1024;
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

type Queue<T> = Sender<Result<T, WriteError>>;
type Source<T> = Receiver<Result<T, WriteError>>;

/// What a drained pipeline knows about its input. Only the stages make one, at their regular end.
#[derive(Debug)]
pub(crate) struct Evidence {
    stored: u64,
    announced: Option<u64>,
    digest: Option<Digest>,
    raw: u64,
    raw_digest: Option<Digest>,
    /// Every chunk was compared with its digest.
    chunks: bool,
    signed: Option<Result<(), String>>,
}

impl Evidence {
    /// Every chunk of an index was proven by itself.
    pub(super) fn by_chunks(raw: u64) -> Self {
        Self { stored: 0, announced: None, digest: None, raw, raw_digest: None, chunks: true, signed: None }
    }
    pub(super) fn raw_bytes(&self) -> u64 {
        self.raw
    }
    /// Input drained to its end, length equal, decoder finished, digest equal; in the order that names the cause rather
    /// than its consequence.
    pub(super) fn check(&self, expectation: Expectation<'_>, least_raw: u64, image: &str) -> Result<(), WriteError> {
        let truncated = |reason| Err(WriteError::Truncated { subject: image.into(), reason });
        if let Some(announced) = self.announced.filter(|announced| *announced != self.stored) {
            return truncated(format!("{} bytes came and the server announced {announced}", self.stored));
        }
        if self.raw < least_raw {
            return truncated(format!("it holds {} bytes and its partitions end at {least_raw}", self.raw));
        }
        let (expected, found) = match expectation {
            Expectation::Stored(expected) => (expected, self.digest),
            Expectation::Raw(expected) => (expected, self.raw_digest),
            Expectation::Signed(_) => {
                let held = self.signed.clone().unwrap_or_else(|| Err("nobody looked at it".into()));
                return held.map_err(|reason| WriteError::BadSignature { subject: image.into(), reason });
            }
            Expectation::Index(_) if self.chunks => return Ok(()),
            Expectation::Index(_) => {
                return Err(WriteError::Internal("the image was not compared with its index".into()));
            }
            Expectation::Waived => return Ok(()),
        };
        match found {
            Some(actual) if actual == expected => Ok(()),
            Some(actual) => Err(WriteError::DigestMismatch { url: image.into(), expected, actual }),
            None => Err(WriteError::Internal("the image was not hashed".into())),
        }
    }
}

/// What the first bytes told: how the rest is to be decoded.
pub(super) struct Opened<'a> {
    /// What to call it in messages.
    image: &'a str,
    start: Buffer,
    recipe: Recipe,
    /// Bytes of the stored file, where the source says so.
    announced: Option<u64>,
}

enum Recipe {
    /// From one end to the other.
    Linear(Format),
    /// By tables that were read first.
    Qcow2(Box<qcow2::Plan>),
}

impl<'a> Opened<'a> {
    /// Looks at the first bytes; of formats that need it, at the tables too.
    pub(super) fn look(
        source: &mut dyn ImageSource,
        wanted: Option<Format>,
        image: &'a str,
        stop: &AtomicBool,
        meter: &Meter<'_>,
    ) -> Result<Self, WriteError> {
        let bad = |reason| WriteError::BadFormat { subject: image.into(), reason };
        let pool = Pool::new(STORED);
        let mut start = fill(source, &pool, stop, meter)?;
        let format = agreed_format(start.data(), wanted, source.claimed_format()).map_err(bad)?;
        let recipe = if format == Format::Qcow2 {
            let plan = qcow2::Plan::read(source, stop).map_err(|error| match error {
                DecodeError::Bad(reason) => bad(reason),
                DecodeError::Unfinished(reason) => WriteError::Truncated { subject: image.into(), reason },
                DecodeError::Input(error) => error,
                DecodeError::Abandoned => WriteError::Internal("nobody took the tables".into()),
            })?;
            meter.expect_raw(plan.raw_bytes());
            source.seek(0..u64::MAX, stop)?;
            // What was looked at is read once more, so that all of the file passes in order.
            start.len = 0;
            Recipe::Qcow2(Box::new(plan))
        } else {
            Recipe::Linear(format)
        };
        Ok(Self { image, start, recipe, announced: source.total() })
    }

    /// How many raw bytes there will be, where something tells before their end.
    pub(super) fn raw_bytes(&self, expectation: Expectation<'_>) -> Option<u64> {
        match (expectation, &self.recipe) {
            (Expectation::Index(index), _) => Some(index.raw_bytes),
            (_, Recipe::Qcow2(plan)) => Some(plan.raw_bytes()),
            (_, Recipe::Linear(Format::Raw)) => self.announced,
            (_, Recipe::Linear(_)) => None,
        }
    }
}

impl Recipe {
    fn decode(&self, input: &mut dyn Input, sink: &mut Sink, limits: Limits) -> Result<(), DecodeError> {
        match self {
            Self::Linear(format) => decode(*format, input, sink, limits),
            Self::Qcow2(plan) => plan.decode(input, sink, limits).and_then(|()| sink.flush()),
        }
    }
}

/// The running stages, as the writer sees them.
pub(super) struct Stages {
    /// What comes out: pieces, and at the end either an error or a disconnection.
    pub(super) pieces: Source<Decoded>,
    /// Then this has what is known of the whole; disconnected without a word: a stage ended early.
    evidence: Receiver<Evidence>,
}

impl Stages {
    /// Once the pieces have ended without an error: what was seen.
    pub(super) fn evidence(&self) -> Result<Evidence, WriteError> {
        self.evidence.recv().map_err(|_| WriteError::Internal("a stage of the pipeline ended without a word".into()))
    }

    /// Starts the threads.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        opened: Opened<'scope>,
        source: &'scope mut dyn ImageSource,
        expectation: Expectation<'scope>,
        blocks: &Arc<Pool>,
        stop: &'scope AtomicBool,
        meter: &'scope Meter<'_>,
    ) -> Result<Self, WriteError> {
        let digest = match expectation {
            Expectation::Stored(digest) => Some(digest),
            _ => None,
        };
        let stored = Arc::new(Pool::new(STORED));
        let Opened { image, start, recipe, announced } = opened;
        let name = image.to_owned();
        let (fetched_in, fetched) = bounded(DEPTH);
        let (hashed_in, hashed) = bounded(DEPTH);
        let (decoded_in, decoded) = bounded(DEPTH);
        let (told, evidence) = bounded(1);
        let spawn = |what, run: Box<dyn FnOnce() + Send + 'scope>| {
            let started = Builder::new().name(format!("landfall-{what}")).spawn_scoped(scope, run);
            started.map(|_| ()).map_err(|source| WriteError::Start { what, source })
        };
        let pool = Arc::clone(&stored);
        spawn("fetch", Box::new(move || fetch(source, start, &pool, &fetched_in, stop, meter)))?;
        let hasher = digest.as_ref().map(Hasher::like);
        let signature = match expectation {
            Expectation::Signed(signature) => Some(signature.verifier()),
            _ => None,
        };
        spawn("hash", Box::new(move || hash(&fetched, &hashed_in, hasher, signature)))?;
        let pool = Arc::clone(blocks);
        let ordered = matches!(expectation, Expectation::Raw(_) | Expectation::Index(_));
        let decoding = move || {
            let sink = Sink::new(pool, decoded_in);
            Decoding { stored, image: name, recipe, digest, announced, ordered }.run(hashed, sink, &told);
        };
        spawn("decode", Box::new(decoding))?;
        let check = match expectation {
            Expectation::Raw(digest) => RawCheck::Whole { hasher: Hasher::like(&digest), next: 0 },
            Expectation::Index(index) => RawCheck::Blocks(Blocks::new(index, image)),
            Expectation::Stored(_) | Expectation::Signed(_) | Expectation::Waived => {
                return Ok(Self { pieces: decoded, evidence });
            }
        };
        let (pieces_in, pieces) = bounded(DEPTH);
        let (told, checked) = bounded(1);
        spawn("check", Box::new(move || check_raw(&decoded, &pieces_in, &evidence, &told, check)))?;
        let evidence = checked;
        Ok(Self { pieces, evidence })
    }
}

fn agreed_format(start: &[u8], wanted: Option<Format>, claimed: Option<Format>) -> Result<Format, String> {
    let found = format_of(start)?;
    let differs = |said: &Format| *said != found;
    if let Some(wanted) = wanted.filter(differs) {
        return Err(format!("it is said to be {wanted} and its content is {found}"));
    }
    match claimed.filter(differs) {
        Some(claimed) => Err(format!("its server says that it is {claimed} and its content is {found}")),
        None => Ok(found),
    }
}

/// A buffer full of stored bytes; less than full only at their end.
fn fill(source: &mut dyn ImageSource, pool: &Pool, stop: &AtomicBool, meter: &Meter<'_>) -> Result<Buffer, WriteError> {
    let mut block = pool.take();
    while !block.is_full() {
        let at = block.len;
        let n = source.read(&mut block.space()[at..], stop)?;
        if n == 0 {
            break;
        }
        block.len += n;
        meter.stored(n as u64, source.total());
    }
    Ok(block)
}

fn fetch(
    source: &mut dyn ImageSource,
    start: Buffer,
    pool: &Pool,
    out: &Queue<Stored>,
    stop: &AtomicBool,
    meter: &Meter<'_>,
) {
    let mut stored = 0;
    let (mut first, mut next) = (true, Ok(start));
    loop {
        let block = match next {
            Ok(block) => block,
            Err(error) => {
                // A writer that has left does not care why.
                let _ = out.send(Err(error));
                return;
            }
        };
        stored += block.len as u64;
        // An empty first buffer is one that was read elsewhere.
        let ended = !(block.is_full() || first && block.len == 0);
        first = false;
        if out.send(Ok(Stored::Block(block))).is_err() {
            return;
        }
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
        next = fill(source, pool, stop, meter);
    }
}

fn hash(
    input: &Source<Stored>,
    out: &Queue<Stored>,
    mut hasher: Option<Hasher>,
    mut signature: Option<Box<dyn SignatureVerifier + '_>>,
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
        if out.send(item).is_err() {
            return;
        }
    }
}

/// What looks at raw bytes as they pass. They must come in order.
enum RawCheck<'a> {
    /// One digest of them all.
    Whole {
        hasher: Hasher,
        /// Offset of the next byte.
        next: u64,
    },
    /// A digest for each mapped block.
    Blocks(Blocks<'a>),
}

impl RawCheck<'_> {
    fn look(&mut self, piece: &mut Decoded) -> Result<(), WriteError> {
        match self {
            Self::Whole { hasher, next } => {
                let range = piece.range();
                if range.start != *next {
                    return Err(WriteError::Internal("raw bytes came out of order".into()));
                }
                *next = range.end;
                match piece {
                    Decoded::Block { bytes, .. } => hasher.update(bytes.data()),
                    Decoded::Zeroes(_) => hasher.zeroes(range.end - range.start),
                }
                Ok(())
            }
            Self::Blocks(blocks) => blocks.check(piece),
        }
    }

    fn conclude(self, evidence: Evidence) -> Result<Evidence, WriteError> {
        Ok(match self {
            Self::Whole { hasher, .. } => Evidence { raw_digest: Some(hasher.finish()), ..evidence },
            Self::Blocks(blocks) => {
                blocks.end()?;
                Evidence { chunks: true, ..evidence }
            }
        })
    }
}

fn check_raw(
    input: &Source<Decoded>,
    out: &Queue<Decoded>,
    evidence: &Receiver<Evidence>,
    told: &Sender<Evidence>,
    mut check: RawCheck<'_>,
) {
    for item in input {
        let item = item.and_then(|mut piece| check.look(&mut piece).map(|()| piece));
        if out.send(item).is_err() {
            return;
        }
    }
    // Without evidence a stage before this one failed, and has said so.
    let Ok(evidence) = evidence.recv() else { return };
    match check.conclude(evidence) {
        // In both cases: a writer that has left does not care.
        Ok(evidence) => {
            let _ = told.send(evidence);
        }
        Err(error) => {
            let _ = out.send(Err(error));
        }
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
    fn run(self, queue: Source<Stored>, mut sink: Sink, told: &Sender<Evidence>) {
        let mut input = Hashed { queue, pool: Arc::clone(&self.stored), block: None, at: 0, drained: None };
        let limits = Limits { ordered: self.ordered, ..Limits::default() };
        let error = match self.recipe.decode(&mut input, &mut sink, limits) {
            Ok(()) => match Self::finish(&mut input, &sink) {
                Ok(evidence) => {
                    // A writer that has left needs no evidence.
                    let _ = told.send(evidence);
                    return;
                }
                Err(error) => error,
            },
            Err(DecodeError::Abandoned) => return,
            Err(DecodeError::Input(error)) => error,
            Err(DecodeError::Unfinished(reason)) => WriteError::Truncated { subject: self.image, reason },
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

    /// Content that does not decode was most often altered or cut on its way. Where a digest can tell, the rest is
    /// fetched to find out, because "the file is not the one you named" helps more than "corrupt block".
    fn better_reason(self, input: &mut Hashed, reason: String) -> WriteError {
        let bad = WriteError::BadFormat { subject: self.image.clone(), reason };
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
        Err(WriteError::Start { what: "pipeline", source: io::Error::other("a stage ended without a word") })
    })
}
