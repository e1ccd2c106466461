//! The stages before the device: fetch, hash and decode, one thread each.

use std::{
    io,
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{Builder, Scope},
};

use landfall_api::Digest;
use sha2::{Digest as _, Sha256};

use super::{decode::Decoder, meter::Meter};
use crate::{
    Expectation, Format, WriteError,
    buffer::{Buffer, Pool},
    gpt::HEAD,
    source::ImageSource,
};

/// Bytes of a buffer of stored bytes.
const STORED: usize = 512 * 1024;
/// How many buffers wait between two stages. All queues and hands together hold less than 16 MiB.
const DEPTH: usize = 4;

/// Stored bytes, or their end.
enum Stored {
    Block(Buffer),
    /// All bytes there are were fetched; how many the server had announced.
    Drained {
        announced: Option<u64>,
    },
    /// The same, counted and hashed.
    Hashed {
        stored: u64,
        announced: Option<u64>,
        digest: Digest,
    },
}

type Queue<T> = SyncSender<Result<T, WriteError>>;
type Source<T> = Receiver<Result<T, WriteError>>;

/// Decoded bytes, or the evidence that there are no more.
pub(super) enum Decoded {
    /// [`HEAD`] bytes; fewer only in the last one.
    Block(Buffer),
    /// Everything was fetched, hashed and decoded.
    End(Evidence),
}

/// What a drained pipeline knows about its input. Only the decode stage makes one, at its regular end.
#[derive(Debug)]
pub(crate) struct Evidence {
    stored: u64,
    announced: Option<u64>,
    digest: Digest,
    raw: u64,
    /// Set when the decoder stopped in mid-frame, to what it waits for.
    unfinished: Option<String>,
}

impl Evidence {
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored
    }
    pub(super) fn raw_bytes(&self) -> u64 {
        self.raw
    }
    /// Input drained to its end, length equal, decoder finished, digest equal; in the order that names the cause rather
    /// than its consequence.
    pub(super) fn check(&self, expectation: Expectation, least_raw: u64, image: &str) -> Result<(), WriteError> {
        let truncated = |reason| Err(WriteError::Truncated { subject: image.into(), reason });
        if let Some(announced) = self.announced.filter(|announced| *announced != self.stored) {
            return truncated(format!("{} bytes came and the server announced {announced}", self.stored));
        }
        if let Some(why) = &self.unfinished {
            return truncated(why.clone());
        }
        if self.raw < least_raw {
            return truncated(format!("it holds {} bytes and its partitions end at {least_raw}", self.raw));
        }
        match expectation {
            Expectation::Digest(expected) if expected != self.digest => {
                Err(WriteError::DigestMismatch { url: image.into(), expected, actual: self.digest })
            }
            Expectation::Digest(_) | Expectation::Waived => Ok(()),
        }
    }
}

/// The running stages, as the writer sees them.
pub(super) struct Stages {
    /// What comes out.
    pub(super) decoded: Source<Decoded>,
    /// Where its buffers go back to.
    pub(super) blocks: Arc<Pool>,
}

impl Stages {
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        source: &'scope mut dyn ImageSource,
        expectation: Expectation,
        format: Option<Format>,
        stop: &'scope AtomicBool,
        meter: &'scope Meter<'_>,
    ) -> Result<Self, WriteError> {
        let stored = Arc::new(Pool::new(STORED));
        let blocks = Arc::new(Pool::new(HEAD));
        let (fetched_in, fetched) = sync_channel(DEPTH);
        let (hashed_in, hashed) = sync_channel(DEPTH);
        let (decoded_in, decoded) = sync_channel(DEPTH);
        let image = source.name().to_owned();
        let spawn = |what, run: Box<dyn FnOnce() + Send + 'scope>| {
            let started = Builder::new().name(format!("landfall-{what}")).spawn_scoped(scope, run);
            started.map(|_| ()).map_err(|source| WriteError::Start { what, source })
        };
        let pool = Arc::clone(&stored);
        spawn("fetch", Box::new(move || fetch(source, &pool, &fetched_in, stop, meter)))?;
        spawn("hash", Box::new(move || hash(&fetched, &hashed_in)))?;
        let pool = Arc::clone(&blocks);
        let decode = move || Decode { stored, blocks: pool, image, format, expectation, out: decoded_in }.run(&hashed);
        spawn("decode", Box::new(decode))?;
        Ok(Self { decoded, blocks })
    }
}

fn fetch(source: &mut dyn ImageSource, pool: &Pool, out: &Queue<Stored>, stop: &AtomicBool, meter: &Meter<'_>) {
    loop {
        let mut block = pool.take();
        let mut ended = false;
        while !block.is_full() && !ended {
            let at = block.len;
            match source.read(&mut block.space()[at..], stop) {
                Ok(0) => ended = true,
                Ok(n) => {
                    block.len += n;
                    meter.stored(n as u64, source.total());
                }
                Err(error) => {
                    // A writer that has left does not care why.
                    let _ = out.send(Err(error));
                    return;
                }
            }
        }
        let sent = out.send(Ok(Stored::Block(block)));
        let sent = if ended { out.send(Ok(Stored::Drained { announced: source.total() })) } else { sent };
        if ended || sent.is_err() {
            return;
        }
    }
}

fn hash(input: &Source<Stored>, out: &Queue<Stored>) {
    let (mut hasher, mut stored) = (Sha256::new(), 0);
    for item in input {
        let item = match item {
            Ok(Stored::Block(block)) => {
                hasher.update(block.data());
                stored += block.len as u64;
                Ok(Stored::Block(block))
            }
            Ok(Stored::Drained { announced } | Stored::Hashed { announced, .. }) => {
                let digest = Digest::from_sha256(hasher.clone().finalize().into());
                Ok(Stored::Hashed { stored, announced, digest })
            }
            Err(error) => Err(error),
        };
        if out.send(item).is_err() {
            return;
        }
    }
}

/// The decode stage.
struct Decode {
    stored: Arc<Pool>,
    blocks: Arc<Pool>,
    image: String,
    format: Option<Format>,
    expectation: Expectation,
    out: Queue<Decoded>,
}

impl Decode {
    fn run(self, input: &Source<Stored>) {
        if let Err(error) = self.decode(input) {
            // A writer that has left does not care why.
            let _ = self.out.send(Err(error));
        }
    }

    fn decode(&self, input: &Source<Stored>) -> Result<(), WriteError> {
        let mut decoder: Option<Decoder> = None;
        let mut out = self.blocks.take();
        let mut raw = 0;
        loop {
            match receive(input)? {
                Stored::Block(block) if block.len == 0 => self.stored.give(block),
                Stored::Block(block) => {
                    if decoder.is_none() {
                        decoder = Some(Decoder::for_content(block.data(), self.format).map_err(|r| self.bad(r))?);
                    }
                    let Some(decoder) = decoder.as_mut() else { continue };
                    let mut rest = block.data();
                    while !rest.is_empty() || decoder.has_more() {
                        let at = out.len;
                        let (taken, made) = match decoder.step(rest, &mut out.space()[at..]) {
                            Ok(step) => step,
                            Err(reason) => return Err(self.better_reason(input, reason)),
                        };
                        rest = &rest[taken..];
                        out.len += made;
                        raw += made as u64;
                        if out.is_full() {
                            let full = std::mem::replace(&mut out, self.blocks.take());
                            if self.out.send(Ok(Decoded::Block(full))).is_err() {
                                return Ok(());
                            }
                        }
                    }
                    self.stored.give(block);
                }
                Stored::Hashed { stored, announced, digest } => {
                    let unfinished = decoder.as_ref().and_then(Decoder::unfinished);
                    let evidence = Evidence { stored, announced, digest, raw, unfinished };
                    if out.len > 0 && self.out.send(Ok(Decoded::Block(out))).is_err() {
                        return Ok(());
                    }
                    // A writer that has left needs no evidence.
                    let _ = self.out.send(Ok(Decoded::End(evidence)));
                    return Ok(());
                }
                Stored::Drained { .. } => return Err(WriteError::Internal("bytes came past the hash stage".into())),
            }
        }
    }

    fn bad(&self, reason: String) -> WriteError {
        WriteError::BadFormat { subject: self.image.clone(), reason }
    }

    /// Content that does not decode was most often altered or cut on its way. Where a digest can tell, the rest is
    /// fetched to find out, because "the file is not the one you named" helps more than "corrupt block".
    fn better_reason(&self, input: &Source<Stored>, reason: String) -> WriteError {
        let Expectation::Digest(expected) = self.expectation else { return self.bad(reason) };
        loop {
            match receive(input) {
                Ok(Stored::Hashed { digest: actual, .. }) if actual != expected => {
                    return WriteError::DigestMismatch { url: self.image.clone(), expected, actual };
                }
                Ok(Stored::Hashed { .. } | Stored::Drained { .. }) => return self.bad(reason),
                Ok(Stored::Block(block)) => self.stored.give(block),
                Err(error @ WriteError::Truncated { .. }) => return error,
                Err(_) => return self.bad(reason),
            }
        }
    }
}

fn receive(input: &Source<Stored>) -> Result<Stored, WriteError> {
    input.recv().unwrap_or_else(|_| {
        Err(WriteError::Start { what: "pipeline", source: io::Error::other("a stage ended without a word") })
    })
}
