//! An agent asks for a session: whether it may have one, and what is said to it first.

use landfall_api::message::{DiskReport, Hello};
use landfall_api::{
    ConditionStatus, ConditionType as Type, DurationSpec, ErrorCode, Problem, Reason, SessionHolder, Shared, Workflow,
    WorkflowStatus,
};
use uuid::Uuid;

use crate::advance::is_running;
use crate::connect::connect;
use crate::context::Step;
use crate::effect::{Effect, Refusal, Tell};
use crate::epoch::Epoch;
use crate::lease::Lease;
use crate::receipts::Found;
use crate::session::Session;
use crate::{derive, disks, elsewhere, fencing, life, reboot, restore, unknown};

pub(crate) fn hello(step: &mut Step<'_>, hello: &Hello, address: &str, known: &[bool]) -> Result<(), Refusal> {
    speaks(step, hello)?;
    if step.state.machine.metadata.deletion_timestamp.is_some() {
        return Err(refuse_deleted(step, hello));
    }
    elsewhere::refuse_second(step, hello)?;
    if let Some(older) = &step.state.session
        && let Some(from) = fencing::may_follow_from(older, hello, step.state.newest.as_deref(), step.limits)
        && step.now.steady < from
    {
        let problem = fencing::two_computers(&step.state.machine.metadata.name, older, hello, address);
        let wait = Session::wait_until(from, step.now);
        step.effects.push(Effect::Alarm { reason: Reason::TwoComputers, message: problem.message.clone() });
        return Err(Refusal { problem, retry_after: Some(wait) });
    }
    let newest = step.state.machine.status.as_ref().map_or(0, |status| status.epoch);
    let epoch = Epoch::following(Epoch::new(newest), Epoch::new(hello.last_epoch))?;
    let held = note_hello(step, epoch, hello, address, known);
    let older = step.state.session.take();
    reboot::note(step, older.as_ref(), hello);
    // It held a session that this store has never given, or its disk was written while this store was not.
    let behind = hello.last_epoch > newest
        || older.as_ref().is_some_and(|older| older.behind)
        || life::is_held(&step.state.machine).is_some_and(|hold| hold.reason == Reason::NewerThanStore);
    if let Some(older) = older.as_ref().filter(|older| older.connected) {
        let reason = format!("a newer session of this machine (epoch {epoch}) was accepted");
        step.effects.push(Effect::Fence { epoch: older.epoch, reason });
    }
    step.effects.push(Effect::Open(epoch));
    let named = hello.running.map(|running| running.workflow_uid).or(hello.holds);
    let outlived = hello.last_epoch != 0 && older.as_ref().is_some_and(|older| older.boot_id == hello.boot_id);
    let at_work = older.filter(|older| older.boot_id == hello.boot_id).zip(named);
    let lease = at_work.map_or_else(
        || Lease::none(step.now.steady),
        |(older, named)| older.lease.handed_on(named, is_over(step, named).as_ref()),
    );
    step.state.session = Some(Session { behind, ..Session::opened(epoch, hello, address, lease, held, step.now) });
    stops_foreign_work(step, named);
    let newest = step.state.newest.as_ref().and_then(|workflow| workflow.metadata.uid);
    let at_newest = named.is_some() && named == newest;
    let settles =
        outlived && unknown::unknown_lease_end(step).is_none() && step.newest_status().is_some_and(is_running);
    if !at_newest && settles {
        // The same process came back and says that nothing runs: what it has not had acknowledged comes first, and shows
        // whether it still works on its list. A second start must not be ordered before that is known.
        if let Some(session) = &mut step.state.session {
            session.settling = true;
        }
        step.effects.push(Effect::Settle(epoch));
    } else {
        connect(step, at_newest);
    }
    Ok(())
}

/// A newer agent speaks what is not known here: that is answered with a problem, and it knows what it is sent.
fn speaks(step: &Step<'_>, hello: &Hello) -> Result<(), Refusal> {
    let oldest = step.limits.oldest_protocol;
    if hello.protocol >= oldest {
        return Ok(());
    }
    let message = format!(
        "this machine's agent (version {}) speaks protocol {}, and this coordinator needs at least {oldest}",
        hello.software, hello.protocol
    );
    let problem = Problem::new(ErrorCode::VersionSkew, message)
        .hint("build a new boot image with landfall-image, and let the machine netboot it");
    Err(Refusal { problem, retry_after: None })
}

/// Its certificate is useless from now on. An agent that says itself that nothing runs any more lets the document go.
fn refuse_deleted(step: &mut Step<'_>, hello: &Hello) -> Refusal {
    let now = step.now.steady;
    if let Some(older) = step.state.session.as_mut().filter(|s| s.boot_id == hello.boot_id)
        && hello.running.is_none()
    {
        older.lease.release(now);
    }
    let name = &step.state.machine.metadata.name;
    let problem = Problem::new(ErrorCode::Revoked, format!("machine \"{name}\" was deleted"))
        .hint("apply it again, then restart the machine so that it enrols again");
    Refusal { problem, retry_after: None }
}

/// Takes the new epoch and what the hello says into the machine's document; whether the machine is held.
fn note_hello(step: &mut Step<'_>, epoch: Epoch, hello: &Hello, address: &str, known: &[bool]) -> bool {
    let (now, horizon) = (step.now.wall, step.limits.horizon);
    // It is renewed by this coordinator's length from now on.
    let lease = DurationSpec::from_secs(step.limits.lease.as_secs().max(1));
    let (machine, workflow) = (&mut step.state.machine, step.state.newest.as_deref());
    let at = (now, machine.metadata.generation);
    machine.status.get_or_insert_default();
    restore::judge_epoch(machine, hello, workflow, at);
    let holder = machine.status.as_ref().and_then(|status| status.session.as_ref());
    let same_boot = holder.is_some_and(|holder| holder.boot_id == hello.boot_id && !holder.scanning);
    if hello.scanning {
        disks::note_scanning(machine, at);
    } else {
        let (disks, receipts) = (hello.disks.clone(), hello.receipts.clone());
        let report = DiskReport { generation: 0, disks, receipts, unreadable: hello.unreadable.clone() };
        disks::take_in(machine, &Found { report: &report, known, same_boot }, workflow, &horizon, at);
    }
    let status = machine.status.get_or_insert_default();
    let conditions = &mut status.conditions;
    derive::set(conditions, Type::Connected, true, Reason::Hello, "the agent is connected", at);
    // Of two computers one holds the session now, and that settles it. A token or an identity that some other computer
    // used is evidence, and only a person clears that.
    let ambiguous = derive::find(conditions, &Type::IdentityAmbiguous);
    if ambiguous.is_none_or(|known| known.status != ConditionStatus::True || known.reason == Reason::TwoComputers) {
        derive::set(
            conditions,
            Type::IdentityAmbiguous,
            false,
            Reason::OneComputer,
            "one computer holds the session",
            at,
        );
    }
    status.epoch = epoch.get();
    status.last_heard = Some(now);
    status.agent = Some(format!("{address} {}", hello.software));
    if status.session.as_ref().is_none_or(|holder| holder.boot_id != hello.boot_id) {
        status.agent_peak_rss_bytes = None;
    }
    status.enrolled_boottime_ms = Some(hello.enrolled_boottime_ms).filter(|ms| *ms > 0);
    status.session = Some(SessionHolder {
        boot_id: hello.boot_id.clone(),
        disks: hello.disks.clone(),
        address: address.to_owned(),
        leased: status.session.as_ref().is_some_and(|holder| holder.leased),
        lease: status.session.as_ref().and_then(|holder| holder.lease).map(|promised| promised.max(lease)),
        scanning: hello.scanning && !same_boot,
        coordinator: step.state.coordinator.as_deref().map(str::to_owned),
    });
    derive::conditions(machine, workflow, now);
    step.stores_machine();
    step.state.machine.status.as_ref().is_some_and(|status| derive::held(&status.conditions).is_some())
}

/// The status of a workflow that an agent must not be working on; `None` if it may.
fn is_over(step: &Step<'_>, named: Uuid) -> Option<WorkflowStatus> {
    let is_named = |workflow: &&Shared<Workflow>| workflow.metadata.uid == Some(named);
    let found = step.state.newest.iter().chain(&step.state.older).find(is_named);
    let status = found.and_then(|workflow| workflow.status.clone()).unwrap_or_default();
    Some(status).filter(|status| !is_running(status))
}

/// An agent that still works on a workflow which is over, or not this machine's newest, is ordered to stop it.
fn stops_foreign_work(step: &mut Step<'_>, named: Option<Uuid>) {
    let Some(named) = named else { return };
    let newest = step.state.newest.as_ref().filter(|w| w.metadata.uid == Some(named));
    if newest.and_then(|w| w.status.as_ref()).is_some_and(is_running) {
        return;
    }
    let reason = "this workflow has ended or is unknown".to_owned();
    step.send(Tell::Cancel { workflow_uid: named, reason });
}
