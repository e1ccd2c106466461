//! What agents say once their session is open, and what their silence says.

use landfall_api::{
    ConditionType as Type, ErrorCode, Problem, Reason,
    message::{ActionResult, EventBody, EventRecord, Vitals, WriteImageResult},
};

use crate::{
    derive,
    effect::{Effect, Refusal, Tell, Which},
    epoch::Epoch,
    run,
    step::Step,
};

impl Step<'_> {
    /// An agent reported something, and the log holds it.
    pub(crate) fn reported(&mut self, epoch: Epoch, of: Which, events: Vec<(u64, EventRecord)>) -> Result<(), Refusal> {
        let now = self.now;
        let session = self.session(epoch)?;
        session.hears(now);
        // The agent of this session still works on its list: whatever it was settled with, it has it. Of the newest workflow
        // alone: what it still has to say of an older one says nothing about this one.
        if session.settling && of == Which::Newest {
            self.connect(true);
        }
        let events = self.judged(of, epoch.get(), events);
        for event in &events {
            if let run::Event::Agent { record, .. } = event {
                self.takes_in_receipt(&record.body);
            }
        }
        self.advance(of, events);
        Ok(())
    }

    /// What the log held beyond the status when the coordinator started. There is no session to inform: the agent
    /// that comes back is.
    pub(crate) fn replayed(&mut self, events: Vec<(u64, EventRecord)>) {
        let epoch = self.state.newest.as_ref().and_then(|w| w.status.as_ref()).map_or(0, |status| status.epoch);
        let events = self.judged(Which::Newest, epoch, events);
        self.advance(Which::Newest, events);
    }

    /// The events as they count. The result of another kind of action proves nothing of this one: a write would count as
    /// done without its receipt.
    fn judged(&self, of: Which, epoch: u64, events: Vec<(u64, EventRecord)>) -> Vec<run::Event> {
        let status = self.state.workflow(of).and_then(|workflow| workflow.status.as_ref());
        let judge = |(position, mut record): (u64, EventRecord)| {
            if let EventBody::Finished { result } = &record.body
                && let Some(action) = status.and_then(|status| status.action(record.action_index as usize))
                && !result.is_of(&action.action.spec)
            {
                let (name, kind) = (&action.action.name, action.action.spec.key());
                let message =
                    format!("the agent reported the result of another kind of action for \"{name}\" ({kind})");
                let problem = Problem::new(ErrorCode::VersionSkew, message)
                    .hint("build the boot image from the coordinator's release, then provision the machine again");
                record.body = EventBody::Failed { problem, retryable: false };
            }
            run::Event::Agent { epoch, position, record: Box::new(record) }
        };
        events.into_iter().map(judge).collect()
    }

    fn takes_in_receipt(&mut self, body: &EventBody) {
        if let EventBody::ReceiptWritten { receipt }
        | EventBody::Finished { result: ActionResult::WriteImage(WriteImageResult { receipt: Some(receipt), .. }) } =
            body
            && let Some(session) = &mut self.state.session
        {
            session.wrote(receipt);
        }
        // `NoReceipt`: the image left no room for one, so from now on only a person starts an install of this machine.
        match body {
            EventBody::Finished { result: ActionResult::WriteImage(WriteImageResult { receipt: Some(_), .. }) } => {
                self.sets(Type::NoReceipt, false, Reason::Written, "the disk carries its receipt");
            }
            EventBody::Finished { result: ActionResult::WriteImage(WriteImageResult { receipt: None, .. }) } => {
                let message = "the image's partition table has no room for a receipt";
                self.sets(Type::NoReceipt, true, Reason::NoRoom, message);
            }
            _ => {}
        }
    }

    pub(crate) fn heartbeat(&mut self, epoch: Epoch, vitals: Vitals) -> Result<(), Refusal> {
        let (limits, now) = (self.limits, self.now);
        let beat = self.session(epoch)?.beats(limits, vitals, now);
        if beat.renewed {
            self.send(Tell::LeaseRenewal { epoch, lease: limits.lease, counts_from: Some(vitals.uptime) });
        }
        if beat.noted {
            let status = self.state.machine.status.get_or_insert_with(derive::new_machine_status);
            status.last_heard = Some(now.wall);
            status.agent_peak_rss_bytes = status.agent_peak_rss_bytes.max(Some(vitals.peak_rss_bytes));
            self.sets(Type::Connected, true, Reason::Heard, "the agent is connected");
        }
        Ok(())
    }

    /// The stream of a session ended. Its lease, if it has one, runs on.
    pub(crate) fn closed(&mut self, epoch: Epoch, why: &str) {
        let now = self.now;
        let Ok(session) = self.session(epoch) else { return };
        session.cut();
        session.silent = true;
        let heard = now.wall_at(session.heard);
        self.effects.push(Effect::LeaveQueue);
        self.state.machine.status.get_or_insert_with(derive::new_machine_status).last_heard = Some(heard);
        self.sets(Type::Connected, false, Reason::Disconnected, why);
    }

    /// A fenced agent has stopped everything destructive; nothing of its lease is left.
    pub(crate) fn fence_acknowledged(&mut self, epoch: Epoch) {
        if self.session(epoch).is_ok() {
            self.release_lease();
        }
    }

    /// The agent has just become silent.
    pub(crate) fn notes_silence(&mut self) {
        let (limits, now) = (self.limits, self.now);
        let Some(session) = &mut self.state.session else { return };
        if !session.falls_silent(limits, now) {
            return;
        }
        let heard = now.wall_at(session.heard);
        self.state.machine.status.get_or_insert_with(derive::new_machine_status).last_heard = Some(heard);
        self.sets(Type::Connected, false, Reason::Silent, format!("the agent has not been heard since {heard}"));
    }
}
