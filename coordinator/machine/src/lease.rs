//! Leases: for how long an agent may act without being heard.
//!
//! Here one counts from when it is given; the agent counts from what it had said before that. So this side's end is the
//! later one, and the machine is given to another computer only after the agent has stopped.

use std::time::Duration;

use landfall_api::WorkflowStatus;
use uuid::Uuid;

use crate::{stopping::Stopping, time::Steady};

/// What a session was promised.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lease {
    /// It holds an assignment.
    held: bool,
    /// Until then it may act.
    until: Steady,
    /// The workflow it holds an assignment of is over, and it has not yet said that it has stopped. Not renewed any more.
    stopping: Option<Stopping>,
}

impl Lease {
    /// None.
    pub(crate) const fn none(now: Steady) -> Self {
        Self { held: false, until: now, stopping: None }
    }

    /// As a status remembers it.
    pub(crate) const fn remembered(held: bool, until: Steady) -> Self {
        Self { held, until, stopping: None }
    }

    /// Whether its holder holds an assignment.
    pub(crate) const fn is_held(&self) -> bool {
        self.held
    }

    /// The moment from which on its holder acts no more.
    pub(crate) const fn until(&self) -> Steady {
        self.until
    }

    /// Whether its holder may be acting.
    pub(crate) fn may_act(&self, now: Steady) -> bool {
        self.held && self.until > now
    }

    /// Gives one, or a longer one, of a workflow that is under way.
    pub(crate) fn take(&mut self, lease: Duration, now: Steady) {
        (self.held, self.until, self.stopping) = (true, now.plus(lease), None);
    }

    /// Lets its holder act on; one that is to stop is not let.
    pub(crate) fn renew(&mut self, lease: Duration, now: Steady) -> bool {
        let renewed = self.held && self.stopping.is_none();
        if renewed {
            self.until = now.plus(lease);
        }
        renewed
    }

    /// Its holder has stopped.
    pub(crate) fn release(&mut self, now: Steady) {
        *self = Self::none(now);
    }

    /// Its workflow is over; `was`: as it stood when it was under way for the last time. The holder may act until it says
    /// that it has stopped, or until the lease ends.
    pub(crate) fn stop(&mut self, workflow: Uuid, was: &WorkflowStatus) {
        if self.held {
            self.stopping = Some(Stopping::new(workflow, was));
        }
    }

    /// What of that workflow its holder may still be at.
    pub(crate) fn stopping(&mut self, workflow: Uuid) -> Option<&mut Stopping> {
        self.stopping.as_mut().filter(|stopping| stopping.run() == workflow)
    }

    /// For the same agent in a new session, which says that it is at `named`: what it was promised holds, and what it was
    /// asked to stop it may not have heard. `over`: that workflow is over. After a restart of the coordinator nothing says
    /// that the agent was asked to stop, and its lease must not be renewed.
    pub(crate) fn handed_on(self, named: Uuid, over: Option<&WorkflowStatus>) -> Self {
        let known = self.stopping.filter(|stopping| stopping.run() == named);
        let stopping = known.or_else(|| over.filter(|_| self.held).map(|was| Stopping::new(named, was)));
        Self { held: self.held, until: self.until, stopping }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    fn at(second: u64) -> Steady {
        Steady::after_start(Duration::from_secs(second))
    }

    fn taken() -> Lease {
        let mut lease = Lease::none(at(0));
        lease.take(LEASE, at(10));
        lease
    }

    #[test]
    fn a_holder_may_act_until_the_very_end() {
        let mut lease = taken();
        assert!(lease.is_held() && lease.until() == at(70));
        assert!(lease.may_act(at(69)) && !lease.may_act(at(70)));
        lease.release(at(20));
        assert!(!lease.is_held() && !lease.may_act(at(20)) && lease.until() == at(20));
        assert!(!Lease::remembered(false, at(70)).may_act(at(10)), "nothing was promised");
        assert!(Lease::remembered(true, at(70)).may_act(at(10)));
    }

    #[test]
    fn only_a_holder_that_may_go_on_is_renewed() {
        let (run, was) = (Uuid::from_u128(7), WorkflowStatus::default());
        let mut none = Lease::none(at(0));
        assert!(!none.renew(LEASE, at(10)) && none.until() == at(0));
        none.stop(run, &was);
        assert!(none.stopping(run).is_none(), "nothing is held");
        let mut lease = taken();
        assert!(lease.renew(LEASE, at(20)) && lease.until() == at(80));
        lease.stop(run, &was);
        assert!(!lease.renew(LEASE, at(30)) && lease.until() == at(80));
        assert!(lease.stopping(run).is_some() && lease.stopping(Uuid::from_u128(8)).is_none());
        lease.take(LEASE, at(30));
        assert!(lease.renew(LEASE, at(40)), "a new list");
    }

    #[test]
    fn a_lease_is_handed_on_with_its_stop() {
        let (run, other, was) = (Uuid::from_u128(7), Uuid::from_u128(8), WorkflowStatus::default());
        let mut stopped = taken();
        stopped.stop(run, &was);
        let handed = |lease: &Lease, named, over| lease.clone().handed_on(named, over);
        assert!(handed(&stopped, run, None).stopping(run).is_some(), "it may not have heard of it");
        assert_eq!(handed(&stopped, other, None).stopping, None);
        assert!(handed(&taken(), run, Some(&was)).stopping(run).is_some());
        assert_eq!(handed(&taken(), run, None), taken());
        assert_eq!(handed(&Lease::none(at(5)), run, Some(&was)), Lease::none(at(5)));
    }
}
