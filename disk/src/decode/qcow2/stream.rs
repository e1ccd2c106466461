//! The one pass over the stored bytes: plain runs go straight to their place, the rest is collected and unpacked by
//! worker threads.

use super::super::{DecodeError, Input};
use super::map::Run;
use super::place::{Batch, Gaps, Item, MOST, Placer};
use super::plan::Plan;
use super::tables::SECTOR;
use super::watch::Watch;

/// A plain run of at least so many bytes needs no company to make pieces that are worth their while.
const LONG: u64 = 512 << 10;
/// Raw bytes that are gathered where the orders of file and raw image meet.
const ENOUGH: u64 = 2 << 20;

/// Takes a batch to be placed and gives another, empty one; the zeroes before its end are to be placed too.
pub(super) type Hand<'h> = dyn FnMut(Batch, &mut Gaps<'_>, &mut Placer) -> Result<Batch, DecodeError> + 'h;

/// How much may follow the last data (clusters that are not used, snapshots), bytes, if the server does not state the
/// file's length: a body without an end must be stopped.
const TAIL: u64 = 64 << 20;

/// The pass.
pub(super) struct Pass<'p, 'i, 'h> {
    plan: &'p Plan,
    stored: Stored<'p, 'i>,
    placer: Placer,
    gaps: Gaps<'p>,
    ordered: bool,
    any_compressed: bool,
    batch: Batch,
    hand: &'h mut Hand<'h>,
}

impl<'p, 'i, 'h> Pass<'p, 'i, 'h> {
    pub(super) fn new(
        plan: &'p Plan, input: &'i mut dyn Input, placer: Placer, ordered: bool, hand: &'h mut Hand<'h>,
    ) -> Self {
        Self {
            plan,
            stored: Stored { input, at: 0, watch: Watch::new(&plan.watched), last: Vec::new() },
            placer,
            gaps: Gaps { rest: &plan.map.zeroes, header: &plan.header },
            ordered,
            any_compressed: plan.map.runs.iter().any(Run::compressed),
            batch: Batch::default(),
            hand,
        }
    }

    /// Everything but the head, and the input to its end.
    pub(super) fn run(mut self) -> Result<(), DecodeError> {
        let runs = &self.plan.map.runs;
        for (i, run) in runs.iter().enumerate() {
            let alone = run.cut() && runs.get(i + 1).is_none_or(Run::cut);
            if self.is_direct(run, alone) { self.direct(run)? } else { self.gather(run)? }
        }
        self.hand_over()?;
        self.gaps.before(u64::MAX, &mut self.placer)?;
        self.placer.flush()?;
        let announced = self.plan.announced.is_some();
        self.stored.pass(if announced { u64::MAX } else { self.stored.at.saturating_add(TAIL) }, |_| Ok(()))?;
        if !announced && !self.stored.input.fill()?.is_empty() {
            let reason =
                format!("more than {TAIL} bytes follow its last data, and its server does not state the length");
            return Err(DecodeError::Bad(reason));
        }
        self.stored.watch.finish(self.stored.at)
    }

    fn is_direct(&self, run: &Run, alone: bool) -> bool {
        let raw = run.raw(&self.plan.header);
        let long = raw.end - raw.start >= LONG;
        !run.compressed() && if self.ordered { alone } else { long || (alone && !self.any_compressed) }
    }

    fn direct(&mut self, run: &Run) -> Result<(), DecodeError> {
        self.hand_over()?;
        let (raw, place) = (run.raw(&self.plan.header), run.stored(&self.plan.header));
        self.gaps.before(raw.start, &mut self.placer)?;
        self.placer.go(raw.start)?;
        self.stored.pass(place.start, |_| Ok(()))?;
        let placer = &mut self.placer;
        self.stored.pass(place.end, |bytes| placer.copy(bytes))?;
        self.stored.must_reach(place.end)
    }

    fn gather(&mut self, run: &Run) -> Result<(), DecodeError> {
        let raw = run.raw(&self.plan.header);
        let after = self.batch.raw + (raw.end - raw.start);
        if (run.cut() && after > ENOUGH) || (!self.ordered && after > MOST) {
            self.hand_over()?;
        }
        let (stored, cut) =
            self.stored.gather(run.stored(&self.plan.header), run.compressed(), &mut self.batch.stored)?;
        self.batch.raw += raw.end - raw.start;
        self.batch.items.push(Item { raw, stored, compressed: run.compressed(), cut });
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), DecodeError> {
        if !self.batch.items.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.batch = (self.hand)(batch, &mut self.gaps, &mut self.placer)?;
        }
        Ok(())
    }
}

/// The stored bytes as they pass.
struct Stored<'p, 'i> {
    input: &'i mut dyn Input,
    at: u64,
    watch: Watch<'p>,
    /// The last gathered bytes, a sector at most: the next compressed cluster may start among them.
    last: Vec<u8>,
}

impl Stored<'_, '_> {
    /// Goes on to this offset or the input's end.
    fn pass(&mut self, end: u64, mut each: impl FnMut(&[u8]) -> Result<(), DecodeError>) -> Result<(), DecodeError> {
        while self.at < end {
            let bytes = self.input.fill()?;
            let n = usize::try_from(end - self.at).map_or(bytes.len(), |left| left.min(bytes.len()));
            let bytes = &bytes[..n];
            if bytes.is_empty() {
                break;
            }
            self.watch.see(self.at, bytes)?;
            each(bytes)?;
            self.input.consume(n);
            self.at += n as u64;
        }
        Ok(())
    }

    fn must_reach(&self, end: u64) -> Result<(), DecodeError> {
        if self.at < end {
            return Err(DecodeError::Unfinished(format!("it has {} bytes, but its data extends to {end}", self.at)));
        }
        Ok(())
    }

    /// Adds what is at `place` to `to`: where there, and whether the end of its last sector is missing.
    fn gather(
        &mut self, place: std::ops::Range<u64>, compressed: bool, to: &mut Vec<u8>,
    ) -> Result<(std::ops::Range<usize>, bool), DecodeError> {
        self.pass(place.start, |_| Ok(()))?;
        let start = to.len();
        // What passed already is in the sector shared with the one before; the plan allows no more.
        let shared = self.at.saturating_sub(place.start) as usize;
        to.extend_from_slice(self.last.get(self.last.len().saturating_sub(shared)..).unwrap_or_default());
        self.pass(place.end, |bytes| {
            to.extend_from_slice(bytes);
            Ok(())
        })?;
        let missing = place.end.saturating_sub(self.at);
        let padding_only = compressed && missing < SECTOR && self.at > place.start;
        if !padding_only {
            self.must_reach(place.end)?;
        }
        let gathered = to.get(start..).unwrap_or_default();
        self.last.clear();
        self.last.extend_from_slice(&gathered[gathered.len().saturating_sub(SECTOR as usize)..]);
        Ok((start..to.len(), missing > 0))
    }
}
