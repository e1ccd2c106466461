//! The first look at an image: its format by content, and of formats that need it the tables.

use super::{Context, Expectation};
use crate::buffer::{Buffer, Pool};
use crate::content::{Mistake, recognise};
use crate::decode::{DecodeError, Input, Limits, Sink, decode, format_of, qcow2, vmdk};
use crate::memory::BUFFERS;
use crate::source::ImageSource;
use crate::{Defect, Format, WriteError};

/// Bytes of a buffer of stored bytes.
pub(super) const STORED: usize = 512 * 1024;
const _: () = assert!(STORED >= vmdk::START, "the first buffer holds all that says what a VMDK is");

/// What the first bytes showed: how to decode the rest.
pub(super) struct Opened {
    pub(super) start: Buffer,
    pub(super) recipe: Recipe,
    /// Bytes of the stored file, where the source says so.
    pub(super) announced: Option<u64>,
    /// Bytes of the raw image, where its start says so.
    stated: Option<u64>,
}

/// How stored bytes become raw ones.
pub(super) enum Recipe {
    /// From one end to the other.
    Linear(Format),
    /// By tables that were read first.
    Qcow2(Box<qcow2::Plan>),
}

impl Opened {
    /// Looks at the first bytes; of formats that need it, at the tables too.
    pub(super) fn look(
        source: &mut dyn ImageSource, wanted: Option<Format>, context: Context<'_>,
    ) -> Result<Self, WriteError> {
        let Context { image, stop, meter, memory } = context;
        let bad = |defect, reason| WriteError::BadFormat { subject: image.into(), reason, defect };
        let pool = Pool::new(STORED);
        let mut start = fill(source, &pool, context)?;
        let agreed = agreed_format(start.data(), wanted, source.claimed_format());
        let format = agreed.map_err(|(defect, reason)| bad(defect, reason))?;
        let mut stated = None;
        if format == Format::Vmdk {
            let bytes = vmdk_bytes(start.data(), image)?;
            meter.expect_raw(bytes);
            stated = Some(bytes);
        }
        let recipe = if format == Format::Qcow2 {
            let left = memory.map(|available| available.saturating_sub(BUFFERS));
            let plan = qcow2::Plan::read(source, left, stop).map_err(|error| match error {
                DecodeError::Bad(reason) => bad(Defect::Unsupported, reason),
                DecodeError::Unfinished(reason) => WriteError::Truncated { subject: image.into(), reason },
                DecodeError::Input(error) => error,
                DecodeError::Memory(bytes) => WriteError::NotEnoughMemory {
                    subject: image.into(),
                    needed: BUFFERS + bytes,
                    available: memory.unwrap_or_default(),
                },
                DecodeError::Abandoned => WriteError::Internal("the tables were not consumed".into()),
            })?;
            meter.expect_raw(plan.raw_bytes());
            source.seek(0..u64::MAX, stop)?;
            // What was looked at is read once more, so that all of the file passes in order.
            start.len = 0;
            Recipe::Qcow2(Box::new(plan))
        } else {
            Recipe::Linear(format)
        };
        Ok(Self { start, recipe, announced: source.total(), stated })
    }

    /// How many raw bytes there will be, if that is known before their end.
    pub(super) fn raw_bytes(&self, expectation: Expectation<'_>) -> Option<u64> {
        match (expectation, &self.recipe) {
            (Expectation::Index(index), _) => Some(index.raw_bytes),
            (_, Recipe::Qcow2(plan)) => Some(plan.raw_bytes()),
            (_, Recipe::Linear(Format::Raw)) => self.announced,
            (_, Recipe::Linear(_)) => self.stated,
        }
    }
}

impl Recipe {
    pub(super) fn decode(&self, input: &mut dyn Input, sink: &mut Sink, limits: Limits) -> Result<(), DecodeError> {
        match self {
            Self::Linear(format) => decode(*format, input, sink, limits),
            Self::Qcow2(plan) => plan.decode(input, sink, limits).and_then(|()| sink.flush()),
        }
    }
}

/// How many bytes the disk in a VMDK has that starts like this.
fn vmdk_bytes(start: &[u8], image: &str) -> Result<u64, WriteError> {
    let bad = |reason, defect| WriteError::BadFormat { subject: image.into(), reason, defect };
    vmdk::open(start).map(|header| header.raw_bytes()).map_err(|refusal| match refusal {
        vmdk::Refusal::Kind(reason) => bad(reason, Defect::Other(Mistake::Vmdk)),
        vmdk::Refusal::Bad(reason) => bad(reason, Defect::Content),
        vmdk::Refusal::Short(within) => {
            WriteError::Truncated { subject: image.into(), reason: format!("it ends in the {within}") }
        }
    })
}

fn agreed_format(start: &[u8], wanted: Option<Format>, claimed: Option<Format>) -> Result<Format, (Defect, String)> {
    let found = format_of(start);
    let differs = |said: &Format| *said != found;
    // Anything is raw; a name says more.
    let known = if found == Format::Raw { recognise(start) } else { None };
    let (defect, content) = match known {
        Some((name, mistake)) if mistake != Mistake::Volume => (Some(Defect::Other(mistake)), name.to_owned()),
        _ => (None, found.to_string()),
    };
    if let Some(wanted) = wanted.filter(differs) {
        let reason = format!("its stated format is {wanted}, but its content is {content}");
        return Err((defect.unwrap_or(Defect::Stated), reason));
    }
    match claimed.filter(differs) {
        Some(claimed) => {
            let reason = format!("its server states the format {claimed}, but its content is {content}");
            Err((defect.unwrap_or(Defect::Server), reason))
        }
        None => Ok(found),
    }
}

/// A buffer full of stored bytes; less than full only at their end.
pub(super) fn fill(source: &mut dyn ImageSource, pool: &Pool, context: Context<'_>) -> Result<Buffer, WriteError> {
    let mut block = pool.take();
    while !block.is_full() {
        let at = block.len;
        let n = source.read(&mut block.space()[at..], context.stop)?;
        if n == 0 {
            break;
        }
        block.len += n;
        context.meter.stored(n as u64, source.total());
    }
    Ok(block)
}
