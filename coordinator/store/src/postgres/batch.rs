//! One transaction of the writer: two round trips, whatever is in it; one more each where others write, or events come again.
//!
//! It begins, takes the locks, and reads what it must know of the log and of what others have written; then everything is decided in
//! memory; then it writes all of it and commits. Statements of one round trip are sent together, and one that the server refuses
//! makes the commit a rollback.
//!
//! While it has the lock of revisions, every other coordinator waits. So in that time it parses no document of others but those that
//! its jobs are about, and the rest while the commit is under way. Where others write, it takes the jobs that came while it waited, too.

use std::collections::{HashMap, HashSet};

use landfall_api::{Document, Kind};
use tokio_postgres::{Error, Row, types::ToSql};
use uuid::Uuid;

use super::appends::{Log, Place, Wanted, place};
use super::error::PostgresError;
use super::job::{Job, Note, Planned, Positions};
use super::load::{self, Other, as_stored, number};
use super::rows::{self, Entry};
use super::session::Session;
use crate::hold::{Alone, Turn};
use crate::journal::By;
use crate::memory::{Table, fence_of};
use crate::overlay::{Newer, Overlay};
use crate::rules::Asked;
use crate::stored::DOCUMENT_SCHEMA;
use crate::{Change, ChangeOp, HISTORY_PER_DOCUMENT, StoreError};

/// Changes of others that are read with the lock: what several coordinators write in turn.
const MOST: usize = 8192;

type Params<'a, const N: usize> = [&'a (dyn ToSql + Sync); N];

/// Why a transaction has not been committed.
pub(super) enum Failed {
    /// Others changed more than is read with the lock, or some of it is no longer kept or not to be read.
    Behind,
    /// A workflow's events were deleted while this transaction waited for its row: there was none to lock.
    Deleted,
    Error(PostgresError),
}

impl<E: Into<PostgresError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// A transaction that was committed.
pub(super) struct Committed {
    pub(super) planned: Vec<Planned>,
    pub(super) positions: Positions,
    /// What others had changed before; `None` if this version cannot read all of it.
    pub(super) others: Option<Vec<Change>>,
    pub(super) changes: Vec<Change>,
}

/// What a transaction is to write.
struct Plan<'j> {
    planned: Vec<Planned>,
    changes: Vec<Change>,
    entries: Vec<Entry>,
    log: Log,
    turns: Turns,
    notes: Vec<&'j Note>,
}

/// The number of the turn of each thing that one coordinator does at a time, as the transaction has them.
#[derive(Default)]
struct Turns {
    numbers: Vec<i64>,
    has_begun: bool,
}

/// Where it is in the stored array.
pub(super) const fn place_of(what: Alone) -> i32 {
    what as i32 + 1
}

impl Turns {
    fn of(&self, what: Alone) -> u64 {
        self.numbers.get(what as usize).map_or(0, |stored| number(*stored))
    }

    fn is(&self, turn: Turn) -> bool {
        self.of(turn.what) == turn.number
    }

    fn begin(&mut self, what: Alone) -> u64 {
        let number = self.of(what) + 1;
        self.numbers.resize(self.numbers.len().max(what as usize + 1), 0);
        self.numbers[what as usize] = as_stored(number);
        self.has_begun = true;
        number
    }
}

/// What a transaction goes by.
pub(super) struct Ground<'s> {
    pub(super) session: &'s Session,
    pub(super) table: &'s Table,
    /// Documents whose names are taken.
    pub(super) unreadable: &'s HashSet<(Kind, String)>,
    /// Whether others write too, as far as is known.
    pub(super) is_beside: bool,
    /// Whether others are to learn of it at once.
    pub(super) hints: bool,
}

/// Does all of it in one transaction, or nothing. `more` adds to the jobs what has come meanwhile.
pub(super) async fn commit(
    ground: &Ground<'_>, jobs: &mut Vec<Job>, more: impl FnOnce(&mut Vec<Job>),
) -> Result<Committed, Failed> {
    let &Ground { session, table, .. } = ground;
    let Begun { log, turns, others } = begin(ground, jobs, more).await?;
    let newer = newer(&others, jobs)?;
    let revision = others.last().map_or_else(|| table.revision(), Other::revision);
    let plan = plan(Overlay::new(table, newer, revision), ground.unreadable, jobs, (log, turns));
    let known = positions_of(session, &plan.log.known).await?;
    let documents = async {
        // Lets the connection's task send what is to be written first.
        tokio::task::yield_now().await;
        others.into_iter().map(Other::into_change).collect()
    };
    let (positions, others) = tokio::join!(biased; write(session, &plan, ground.hints), documents);
    let mut positions = positions?;
    positions.events.extend(known);
    Ok(Committed { planned: plan.planned, positions, others, changes: plan.changes })
}

/// What others have made of the documents that the jobs are about.
fn newer(others: &[Other], jobs: &[Job]) -> Result<Vec<Newer>, Failed> {
    // The last change of each.
    let last: HashMap<_, _> = others.iter().map(|other| (other.key(), other)).collect();
    let asked = jobs.iter().flat_map(|job| match job {
        Job::Change { asked, .. } => asked.as_slice(),
        _ => &[],
    });
    let changed =
        asked.map(Asked::key).filter_map(|(kind, name)| Some((kind, name, last.get(&(kind.as_str(), name))?)));
    changed.map(|(kind, name, other)| Ok((kind, name.to_owned(), other.document().ok_or(Failed::Behind)?))).collect()
}

/// A statement that not every transaction needs.
async fn when<T>(is_needed: bool, statement: impl Future<Output = Result<T, Error>>) -> Result<Option<T>, Error> {
    if is_needed { statement.await.map(Some) } else { Ok(None) }
}

/// What was read with the locks: of the log, of the turns, and what others have changed.
struct Begun {
    log: Log,
    turns: Turns,
    others: Vec<Other>,
}

/// Begins, takes the locks, and reads.
async fn begin(ground: &Ground<'_>, jobs: &mut Vec<Job>, more: impl FnOnce(&mut Vec<Job>)) -> Result<Begun, Failed> {
    let &Ground { session, table, is_beside, .. } = ground;
    let is_locked = jobs.iter().any(|job| matches!(job, Job::Change { .. } | Job::Turn { .. }));
    let seen = table.revision();
    let is_newer = |locked: &Option<Row>| locked.as_ref().is_some_and(|row| number(row.get(0)) != seen);
    let (locked, log, rows) = if is_locked && is_beside {
        let locked = lock(session, true).await?;
        more(jobs);
        let reads = when(is_newer(&locked), load::rows_after(session, seen));
        let (rows, log) = tokio::join!(biased; reads, read_log(ground, jobs));
        (locked, log?, rows?)
    } else {
        let (locked, log) = tokio::join!(biased; lock(session, is_locked), read_log(ground, jobs));
        let (locked, log) = (locked?, log?);
        let rows = when(is_newer(&locked), load::rows_after(session, seen)).await?;
        (locked, log, rows)
    };
    let turns = Turns { numbers: locked.map(|row| row.get(1)).unwrap_or_default(), has_begun: false };
    let mut others = Vec::new();
    let Some(mut rows) = rows else { return Ok(Begun { log, turns, others }) };
    loop {
        let last = others.last().map_or(seen, Other::revision);
        let (next, newest) = load::others(&rows, last)?.ok_or(Failed::Behind)?;
        others.extend(next);
        match others.last().map(Other::revision) {
            Some(last) if last == newest => return Ok(Begun { log, turns, others }),
            Some(last) if others.len() < MOST => rows = load::rows_after(session, last).await?,
            // Without the lock: that may take long.
            _ => return Err(Failed::Behind),
        }
    }
}

/// Begins; answers the store's revision, where its lock is needed.
async fn lock(session: &Session, is_needed: bool) -> Result<Option<Row>, Error> {
    let (client, statements) = (&session.client, &session.statements);
    let (begun, locked) = tokio::join!(
        biased;
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED"),
        when(is_needed, client.query_one(&statements.lock, &[])),
    );
    begun?;
    locked
}

/// The newest workflows of machines that begin a session with this job, and its epoch.
fn taken_up(table: &Table, job: &Job) -> impl Iterator<Item = (Uuid, u64)> {
    let asked = if let Job::Change { asked, .. } = job { asked.as_slice() } else { &[] };
    asked.iter().filter_map(|asked| {
        let Asked::Update(document) = asked else { return None };
        let (workflow, epoch) = fence_of(document)?;
        let known = table.get(Kind::Machine, asked.key().1);
        known.as_ref().and_then(fence_of).filter(|known| *known == (workflow, epoch)).is_none().then_some(())?;
        Some((table.get(Kind::Workflow, workflow)?.metadata().uid?, epoch))
    })
}

/// Locks the runs that the jobs' events are of, or that another session takes up; reads what there is of them.
async fn read_log(ground: &Ground<'_>, jobs: &[Job]) -> Result<Log, Failed> {
    let (client, statements) = (&ground.session.client, &ground.session.statements);
    let raised = jobs.iter().flat_map(|job| taken_up(ground.table, job)).map(|(uid, _)| uid);
    let events = jobs.iter().flat_map(|job| match job {
        Job::Append { events, .. } => events.as_slice(),
        _ => &[],
    });
    let wanted = Wanted::of(events, raised);
    if wanted.workflows.is_empty() {
        return Ok(Log::default());
    }
    let workflows: Vec<_> = wanted.workflows.iter().collect();
    let column = |of: fn(&(Uuid, u32, u32)) -> i64| wanted.attempts.iter().map(of).collect::<Vec<_>>();
    let of = wanted.attempts.iter().map(|attempt| attempt.0).collect::<Vec<_>>();
    let (actions, attempts) = (column(|a| i64::from(a.1)), column(|a| i64::from(a.2)));
    let (in_runs, in_newest): (Params<'_, 1>, Params<'_, 3>) = ([&workflows], [&of, &actions, &attempts]);
    let (made, runs, newest) = tokio::join!(
        biased;
        client.execute(&statements.make_runs, &in_runs),
        client.query(&statements.runs, &in_runs),
        client.query(&statements.newest, &in_newest),
    );
    made?;
    let (runs, newest) = (runs?, newest?);
    if runs.len() < workflows.len() {
        return Err(Failed::Deleted);
    }
    Ok(Log::read(&runs, &newest))
}

/// Decides everything; nothing is read or written for it.
fn plan<'j>(
    mut overlay: Overlay<'_>, unreadable: &HashSet<(Kind, String)>, jobs: &'j [Job], (log, turns): (Log, Turns),
) -> Plan<'j> {
    let mut plan = Plan {
        planned: Vec::with_capacity(jobs.len()),
        changes: Vec::new(),
        entries: Vec::new(),
        log,
        turns,
        notes: Vec::new(),
    };
    for job in jobs {
        let planned = match job {
            Job::Change { turn: Some(turn), .. } if !plan.turns.is(*turn) => {
                Planned::Changed(Err(StoreError::NotAlone))
            }
            Job::Change { asked, by, .. } => {
                let (begun, entries) = ((overlay.revision, overlay.changes.len()), plan.entries.len());
                let change = |asked| change(&mut overlay, &mut plan.entries, unreadable, asked, by);
                let changed = asked.iter().map(change).collect::<Result<Vec<_>, _>>();
                if changed.is_err() {
                    overlay.back_to(begun);
                    plan.entries.truncate(entries);
                }
                if changed.is_ok() {
                    taken_up(overlay.table, job).for_each(|of| plan.log.raise(of));
                }
                Planned::Changed(changed)
            }
            Job::Append { epoch, events, .. } => Planned::Appended(plan.log.append(*epoch, events)),
            // Who asked has given up, and does not hold it any more: another one may have begun its turn.
            Job::Turn { reply, .. } if reply.is_closed() => Planned::Turned(0, overlay.revision),
            Job::Turn { what, .. } => {
                let number = plan.turns.begin(*what);
                Planned::Turned(number, overlay.revision)
            }
            Job::Note { note, .. } => {
                plan.notes.push(note);
                Planned::Noted(plan.notes.len() - 1)
            }
        };
        plan.planned.push(planned);
    }
    plan.changes = overlay.changes;
    plan
}

fn change(
    overlay: &mut Overlay<'_>, entries: &mut Vec<Entry>, unreadable: &HashSet<(Kind, String)>, asked: &Asked, by: &By,
) -> Result<Document, StoreError> {
    if let Asked::Create(document) = asked {
        let (kind, name) = (document.kind(), document.metadata().name.clone());
        if unreadable.contains(&(kind, name.clone())) {
            return Err(StoreError::Unreadable { kind, name });
        }
    }
    match overlay.effect(asked.clone(), by.clone())? {
        Ok(effect) => {
            entries.extend(effect.entry.map(|entry| Entry::of(&effect.change.document, &entry)).transpose()?);
            Ok(overlay.push(effect.change))
        }
        Err(same) => Ok(same),
    }
}

/// Of events that were sent again: seldom.
async fn positions_of(session: &Session, known: &[Place]) -> Result<Vec<(Place, u64)>, Failed> {
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let (workflows, actions, attempts, numbers) = columns(known.iter());
    let rows =
        session.client.query(&session.statements.positions, &[&workflows, &actions, &attempts, &numbers]).await?;
    Ok(rows.iter().filter_map(|row| Some((place(row, 3)?, number(row.get(4))))).collect())
}

type Columns = (Vec<uuid::Uuid>, Vec<i64>, Vec<i64>, Vec<i64>);

fn columns<'p>(places: impl Iterator<Item = &'p Place>) -> Columns {
    let mut columns = Columns::default();
    for ((workflow, action, attempt), seq) in places {
        columns.0.push(*workflow);
        columns.1.push(i64::from(*action));
        columns.2.push(i64::from(*attempt));
        columns.3.push(as_stored(*seq));
    }
    columns
}

/// Writes the rows, and commits.
async fn write(session: &Session, plan: &Plan<'_>, hints: bool) -> Result<Positions, Failed> {
    let (client, statements) = (&session.client, &session.statements);
    let schema = DOCUMENT_SCHEMA as i32;
    let (put, gone) = rows::left(&plan.changes)?;
    let (puts, removals): (Params<'_, 4>, Params<'_, 2>) =
        ([&put.kinds, &put.names, &put.json, &schema], [&gone.kinds, &gone.names]);
    let new = rows::changes(&plan.changes)?;
    let newest = new.revisions.last().copied().unwrap_or_default();
    let (revision, turns): (Params<'_, 1>, Params<'_, 1>) = ([&newest], [&plan.turns.numbers]);
    let of = &new.rows;
    let changes: Params<'_, 6> = [&new.revisions, &new.ops, &of.kinds, &of.names, &of.json, &schema];
    let lines = rows::history(&plan.entries);
    let (of, bound) = (&lines.rows, HISTORY_PER_DOCUMENT as i64);
    let (history, bounds): (Params<'_, 5>, Params<'_, 3>) =
        ([&lines.revisions, &of.kinds, &of.names, &lines.times, &of.json], [&of.kinds, &of.names, &bound]);
    let (workflows, actions, attempts, numbers) = columns(plan.log.new.iter().map(|(place, _)| place));
    let json: Vec<_> = plan.log.new.iter().map(|(_, json)| json.as_str()).collect();
    let events: Params<'_, 5> = [&workflows, &actions, &attempts, &numbers, &json];
    let (of, added): (Vec<_>, Vec<_>) = plan.log.added().into_iter().unzip();
    let (runs, refused): (Params<'_, 2>, _) = ([&of, &added], plan.log.without_events());
    let gone_ones = plan.changes.iter().filter(|change| change.op == ChangeOp::Deleted).map(|change| &change.document);
    let ended: Vec<_> =
        gone_ones.filter(|gone| gone.kind() == Kind::Workflow).filter_map(|gone| gone.metadata().uid).collect();
    let no_runs: Params<'_, 2> = [&refused, &ended];
    let (of, to): (Vec<_>, Vec<_>) = plan.log.raised.iter().map(|(of, to)| (*of, as_stored(*to))).unzip();
    let epochs: Params<'_, 2> = [&of, &to];
    let noted = rows::audit(&plan.notes);
    let (intents, audit): (Params<'_, 1>, Params<'_, 3>) =
        ([&noted.intents], [&noted.rings, &noted.are_intents, &noted.json]);

    let (has_changes, has_events, has_entries) = (newest != 0, !json.is_empty(), !lines.revisions.is_empty());
    let results = tokio::join!(
        biased;
        when(!put.kinds.is_empty(), client.execute(&statements.put_documents, &puts)),
        when(!gone.kinds.is_empty(), client.execute(&statements.remove_documents, &removals)),
        when(has_changes, client.execute(&statements.put_changes, &changes)),
        when(has_entries, client.execute(&statements.put_history, &history)),
        when(has_entries, client.execute(&statements.bound_history, &bounds)),
        when(!noted.intents.is_empty(), client.execute(&statements.drop_intents, &intents)),
        when(has_changes, client.execute(&statements.set_revision, &revision)),
        when(plan.turns.has_begun, client.execute(&statements.set_turns, &turns)),
        when(has_changes && hints, client.execute(&statements.notify, &[])),
        when(has_events, client.query(&statements.put_events, &events)),
        when(has_events, client.execute(&statements.put_runs, &runs)),
        when(!of.is_empty(), client.execute(&statements.raise_epochs, &epochs)),
        when(!(refused.is_empty() && ended.is_empty()), client.execute(&statements.drop_runs, &no_runs)),
        when(!noted.rings.is_empty(), client.query(&statements.put_audit, &audit)),
        client.batch_execute("COMMIT"),
    );
    let (
        put,
        gone,
        changes,
        history,
        bounds,
        intents,
        revision,
        turns,
        notified,
        events,
        runs,
        epochs,
        no_runs,
        audit,
        done,
    ) = results;
    // In the order in which they were sent: the first that failed says why, and the others only that one has failed.
    for counted in [put, gone, changes, history, bounds, intents, revision, turns, notified] {
        counted?;
    }
    let events = events?.unwrap_or_default();
    runs?;
    epochs?;
    no_runs?;
    let audit = audit?.unwrap_or_default();
    done?;
    let events = events.iter().filter_map(|row| Some((place(row, 3)?, number(row.get(4))))).collect();
    let mut audit: Vec<_> = audit.iter().map(|row| number(row.get(0))).collect();
    audit.sort_unstable();
    Ok(Positions { events, audit })
}
