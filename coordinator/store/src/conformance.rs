//! What every back end owes, run over each of them.

use std::{future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use landfall_api::{
    API_VERSION, AuditEntry, AuditOutcome, Document, HistoryOperation, IdentitySpec, Kind, MacAddr, Machine,
    MachinePhase, MachineSpec, MachineStatus, Metadata, Shared,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{ChangeOp, ChangeSet, HISTORY_PER_DOCUMENT, LoggedRun, Seen, Store, StoreError, WatchError, actor};
use landfall_api::message::{EventBody, EventRecord};

pub(super) fn machine(name: &str) -> Document {
    Document::from(Machine {
        api_version: API_VERSION.into(),
        kind: Kind::Machine,
        metadata: Metadata { name: name.into(), ..Metadata::default() },
        spec: MachineSpec {
            identity: IdentitySpec { macs: vec![MacAddr([0x52, 0x54, 0, 0, 0, 1])], ..IdentitySpec::default() },
            ..MachineSpec::default()
        },
        status: None,
    })
}

pub(super) fn with_serial(document: &Document, serial: &str) -> Document {
    let Document::Machine(mut machine) = document.clone() else { panic!("a machine") };
    machine.spec.identity.serial = Some(serial.into());
    Document::Machine(machine)
}

pub(super) fn event(workflow_uid: Uuid, attempt: u32, seq: u64) -> EventRecord {
    EventRecord { workflow_uid, action_index: 0, attempt, seq, time: Timestamp::UNIX_EPOCH, body: EventBody::Started }
}

pub(super) fn audit_entry(who: &str) -> AuditEntry {
    AuditEntry {
        position: 0,
        time: Timestamp::UNIX_EPOCH,
        who: who.into(),
        from: String::new(),
        action: "Approve".into(),
        subject: String::new(),
        outcome: AuditOutcome::Done,
        code: String::new(),
        detail: String::new(),
    }
}

async fn on_each<F: Future<Output = ()>>(claim: impl Fn(Store) -> F) {
    claim(Store::memory()).await;
    on_lasting(claim).await;
}

/// Those that outlive their process.
pub(super) async fn on_lasting<F: Future<Output = ()>>(claim: impl Fn(Store) -> F) {
    let dir = tempfile::tempdir().unwrap();
    claim(Store::open(dir.path()).unwrap()).await;
    claim(Store::of_postgres(crate::postgres::PostgresStore::open(crate::postgres::server::database()).await.unwrap()))
        .await;
}

#[tokio::test]
async fn a_write_of_an_older_version_is_refused() {
    on_each(async |store| {
        let first = store.documents().create(machine("m1")).await.unwrap();
        assert_eq!((first.metadata().generation, first.metadata().resource_version), (1, 1));
        let second = store.documents().update(with_serial(&first, "A")).await.unwrap();
        let late = store.documents().update(with_serial(&first, "B")).await.unwrap_err();
        assert!(matches!(late, StoreError::Conflict { stored: 2, given: 1, .. }), "{late}");
        assert_eq!(store.documents().get(Kind::Machine, "m1").await.unwrap().as_ref(), Some(&second));
    })
    .await;
}

#[tokio::test]
async fn a_change_set_is_stored_whole_or_not_at_all() {
    on_each(async |store| {
        let documents = store.documents();
        let [first, read] = ["m1", "m2"].map(machine);
        let (first, read) = (documents.create(first).await.unwrap(), documents.create(read).await.unwrap());
        let seen = |document: &Document| {
            let Metadata { name, resource_version, .. } = document.metadata().clone();
            vec![Seen { kind: document.kind(), name, version: resource_version }]
        };
        let set = |new: &str, changed: &Document, seen| ChangeSet {
            new: vec![machine(new)],
            changed: vec![with_serial(changed, new)],
            seen,
            is_later: false,
        };
        let stored = documents.write(set("m3", &first, seen(&read))).await.unwrap();
        let versions = stored.iter().map(|document| (&*document.metadata().name, document.metadata().resource_version));
        assert_eq!(versions.collect::<Vec<_>>(), [("m3", 3), ("m1", 4)]);
        let newer = documents.update(with_serial(&read, "B")).await.unwrap();
        let gone = Seen { name: "m4".into(), ..seen(&newer)[0].clone() };
        let refused = [
            ("m1", set("m5", &first, seen(&newer)), "what is changed is newer"),
            ("m3", set("m3", &stored[1], seen(&newer)), "what is new is there"),
            ("m2", set("m5", &stored[1], seen(&read)), "what was seen is newer"),
            ("m2", ChangeSet { is_later: true, ..set("m5", &stored[1], seen(&read)) }, "the same, later"),
            ("m4", set("m5", &stored[1], vec![gone]), "what was seen is gone"),
        ];
        for (which, set, why) in refused {
            match documents.write(set).await.unwrap_err() {
                StoreError::Conflict { name, .. }
                | StoreError::NotFound { name, .. }
                | StoreError::AlreadyExists { name, .. } => assert_eq!(name, which, "{why}"),
                other => panic!("{why}: {other}"),
            }
        }
        let [new, changed] = <[Document; 2]>::try_from(stored).unwrap();
        assert_eq!(documents.list(Kind::Machine).await.unwrap(), (vec![changed, newer, new], 5));
        assert_eq!(documents.history(Kind::Machine, "m1", 9).await.unwrap().len(), 2, "of what was not stored");
    })
    .await;
}

#[tokio::test]
async fn the_generation_changes_exactly_with_the_spec() {
    on_each(async |store| {
        let first = store.documents().create(machine("m1")).await.unwrap();
        let same = store.documents().update(first.clone()).await.unwrap();
        assert_eq!(same, first);
        let Document::Machine(mut labelled) = first.clone() else { panic!("a machine") };
        labelled.metadata.labels.insert("rack".into(), "7".into());
        let labelled = store.documents().update(Document::Machine(labelled)).await.unwrap();
        assert_eq!((labelled.metadata().generation, labelled.metadata().resource_version), (1, 2));
        let changed = store.documents().update(with_serial(&labelled, "A")).await.unwrap();
        assert_eq!((changed.metadata().generation, changed.metadata().uid), (2, first.metadata().uid));
    })
    .await;
}

#[tokio::test]
async fn only_the_stated_version_is_deleted() {
    on_each(async |store| {
        let documents = store.documents();
        let mut changed = documents.create(machine("m1")).await.unwrap();
        let first = changed.metadata().resource_version;
        changed.metadata_mut().labels.insert("rack".into(), "r7".into());
        let second = documents.update(changed).await.unwrap();
        let refused = documents.delete_if(Kind::Machine, "m1", Some(first)).await.unwrap_err();
        let stored = second.metadata().resource_version;
        assert!(
            matches!(refused, StoreError::Conflict { stored: is, given, .. } if (is, given) == (stored, first)),
            "{refused}"
        );
        assert_eq!(documents.get(Kind::Machine, "m1").await.unwrap(), Some(second.clone()));
        assert_eq!(documents.delete_if(Kind::Machine, "m1", Some(stored)).await.unwrap(), second);
        let gone = documents.delete_if(Kind::Machine, "m1", Some(stored)).await.unwrap_err();
        assert!(matches!(gone, StoreError::NotFound { .. }), "{gone}");
    })
    .await;
}

#[tokio::test]
async fn names_are_unique_and_new_documents_have_new_uids() {
    on_each(async |store| {
        let first = store.documents().create(machine("m1")).await.unwrap();
        let again = store.documents().create(machine("m1")).await.unwrap_err();
        assert!(matches!(again, StoreError::AlreadyExists { .. }));
        store.documents().delete(Kind::Machine, "m1").await.unwrap();
        assert!(matches!(
            store.documents().delete(Kind::Machine, "m1").await.unwrap_err(),
            StoreError::NotFound { .. }
        ));
        let second = store.documents().create(machine("m1")).await.unwrap();
        assert_ne!(first.metadata().uid, second.metadata().uid);
        assert_eq!(second.metadata().resource_version, 3);
    })
    .await;
}

#[tokio::test]
async fn a_watch_returns_every_change_in_order() {
    on_each(async |store| {
        store.documents().create(machine("m1")).await.unwrap();
        let (listed, revision) = store.documents().list(Kind::Machine).await.unwrap();
        let mut watch = store.documents().watch(Some(Kind::Machine), revision).unwrap();
        store.documents().update(with_serial(&listed[0], "A")).await.unwrap();
        store.documents().delete(Kind::Machine, "m1").await.unwrap();
        for (op, revision) in [(ChangeOp::Modified, 2), (ChangeOp::Deleted, 3)] {
            let change = watch.next().await.unwrap();
            assert_eq!((change.op, change.revision), (op, revision));
        }
        // It waits, and wakes for the next.
        let waiting = tokio::spawn(async move { watch.next().await.map(|change| change.revision) });
        tokio::task::yield_now().await;
        store.documents().create(machine("m2")).await.unwrap();
        assert_eq!(tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap(), Ok(4));
        // A template's watcher sees nothing of it.
        let mut other = store.documents().watch(Some(Kind::Template), 0).unwrap();
        assert!(futures::FutureExt::now_or_never(other.next()).is_none());
    })
    .await;
}

#[tokio::test]
async fn reads_and_changes_share_one_document() {
    on_each(async |store| {
        let Document::Machine(written) = store.documents().create(machine("m1")).await.unwrap() else { panic!() };
        let (listed, got) = (store.machines().await.unwrap(), store.machine("m1").await.unwrap().unwrap());
        assert!(Shared::is_same(&listed[0], &got) && Shared::is_same(&got, &written));
        let change = store.documents().watch(None, 0).unwrap_or_else(|_| panic!("kept")).next().await.unwrap();
        let Document::Machine(changed) = &change.document else { panic!("a machine") };
        assert!(Shared::is_same(changed, &got));
        assert_eq!(change.json().unwrap().get(), serde_json::to_string(&change.document).unwrap());
        let again = store.documents().watch(None, 0).unwrap_or_else(|_| panic!("kept")).next().await.unwrap();
        assert!(Arc::ptr_eq(&change.json().unwrap(), &again.json().unwrap()), "one encoding for every watcher");
    })
    .await;
}

#[tokio::test]
async fn a_page_begins_after_a_name() {
    on_each(async |store| {
        for name in ["m2", "m1", "m10", "m3"] {
            store.documents().create(machine(name)).await.unwrap();
        }
        let page = async |after: &str, limit| {
            let page = store.documents().page(Kind::Machine, after, limit).await.unwrap();
            let names: Vec<_> = page.items.iter().map(|d| d.metadata().name.clone()).collect();
            assert_eq!((page.total, page.revision), (4, 4));
            (names.join(" "), page.more)
        };
        assert_eq!(page("", 2).await, ("m1 m10".into(), true));
        // Whether or not a document has that name.
        assert_eq!(page("m10", 9).await, ("m2 m3".into(), false));
        assert_eq!(page("m11", 1).await, ("m2".into(), true));
        assert_eq!(page("", 0).await, (String::new(), true));
        let none = store.documents().page(Kind::Template, "", 9).await.unwrap();
        assert_eq!((none.items.len(), none.more, none.total, none.revision), (0, false, 0, 4));
    })
    .await;
}

#[tokio::test]
async fn counts_follow_every_change() {
    on_each(async |store| {
        let documents = store.documents();
        let counts = async || {
            let counts = documents.counts().await.unwrap();
            let phases: Vec<_> = counts.phases(Kind::Machine).map(|(phase, n)| format!("{phase}={n}")).collect();
            (counts.of(Kind::Machine), counts.of(Kind::Template), phases.join(" "))
        };
        documents.create(machine("m1")).await.unwrap();
        let Document::Machine(mut second) = documents.create(machine("m2")).await.unwrap() else { panic!() };
        assert_eq!(counts().await, (2, 0, "Unknown=2".into()));
        second.status = Some(MachineStatus::default());
        let Document::Machine(mut second) = documents.update(second.into()).await.unwrap() else { panic!() };
        assert_eq!(counts().await, (2, 0, "Available=1 Unknown=1".into()));
        second.status.as_mut().unwrap().phase = MachinePhase::Held;
        documents.update(second.into()).await.unwrap();
        assert_eq!(counts().await, (2, 0, "Held=1 Unknown=1".into()));
        documents.delete(Kind::Machine, "m1").await.unwrap();
        assert_eq!(counts().await, (1, 0, "Held=1".into()));
    })
    .await;
}

#[tokio::test]
async fn a_slow_watch_expires_instead_of_skipping() {
    on_each(async |store| {
        let mut stored = store.documents().create(machine("m1")).await.unwrap();
        let mut slow = store.documents().watch(None, 0).unwrap();
        for n in 0..4200 {
            stored = store.documents().update(with_serial(&stored, &n.to_string())).await.unwrap();
        }
        assert!(matches!(slow.next().await, Err(WatchError::Expired { asked: 0, .. })));
        assert!(matches!(store.documents().watch(None, 1).err(), Some(WatchError::Expired { .. })));
        assert!(matches!(store.documents().watch(None, 1 << 40).err(), Some(WatchError::Expired { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_repeated_event_counts_once_and_a_gap_is_refused() {
    on_each(async |store| {
        let (run, other) = (Uuid::new_v4(), Uuid::new_v4());
        let log = store.events();
        assert_eq!(log.append(1, vec![event(run, 1, 1), event(run, 1, 2)]).await.unwrap(), [1, 2]);
        assert_eq!(log.append(1, vec![event(run, 1, 2), event(run, 1, 3), event(run, 1, 3)]).await.unwrap(), [2, 3, 3]);
        let gap = log.append(1, vec![event(run, 1, 4), event(run, 2, 2)]).await.unwrap_err();
        assert!(matches!(gap, StoreError::EventGap { expected: 1, got: 2, .. }), "{gap}");
        // All or nothing: seq 4 of the refused batch is not there.
        assert_eq!(log.list(run, 0, 100).await.unwrap().len(), 3);
        log.append(1, vec![event(other, 1, 1)]).await.unwrap();
        let tail: Vec<_> = log.list(run, 1, 100).await.unwrap().into_iter().map(|e| e.record.seq).collect();
        assert_eq!(tail, [2, 3]);
        assert_eq!(log.list(run, 0, 2).await.unwrap().len(), 2);
        assert_eq!(log.forget(run).await.unwrap(), 3);
        assert!(log.list(run, 0, 100).await.unwrap().is_empty());
        assert_eq!(log.list(other, 0, 100).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_secret_ends_with_its_time_and_is_consumed_once() {
    on_each(async |store| {
        let at = |s| Timestamp::from_second(s).unwrap();
        let secrets = store.secrets();
        secrets.put("a", b"1", at(10)).await.unwrap();
        secrets.put("b", b"2", at(20)).await.unwrap();
        assert_eq!(secrets.get("a", at(9)).await.unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(secrets.get("a", at(10)).await.unwrap(), None);
        assert_eq!(secrets.purge(at(10)).await.unwrap(), 1);
        assert_eq!(secrets.get("a", at(9)).await.unwrap(), None);
        assert_eq!(secrets.consume("b", at(10)).await.unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(secrets.consume("b", at(10)).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn of_two_who_swap_one_secret_one_does() {
    on_each(async |store| {
        let at = |s| Timestamp::from_second(s).unwrap();
        let secrets = store.secrets();
        let swap = async |old: Option<&[u8]>, value: &[u8], now| {
            secrets.swap("a", old, value, at(now + 10), at(now)).await.unwrap()
        };
        assert!(!swap(Some(b"1"), b"2", 0).await, "there is none");
        let (one, other) = tokio::join!(swap(None, b"1", 0), swap(None, b"2", 0));
        assert!(one != other);
        let there = secrets.get("a", at(9)).await.unwrap();
        assert_eq!(there.as_deref(), Some(if one { &b"1"[..] } else { b"2" }));
        let (one, other) = tokio::join!(swap(there.as_deref(), b"3", 5), swap(there.as_deref(), b"3", 5));
        assert!(one != other);
        assert!(!swap(there.as_deref(), b"4", 5).await && !swap(None, b"4", 14).await);
        assert_eq!(secrets.get("a", at(14)).await.unwrap().as_deref(), Some(&b"3"[..]), "until then");
        assert!(!swap(Some(b"3"), b"4", 15).await, "it has expired");
        assert!(swap(None, b"5", 15).await);
        assert_eq!(secrets.get("a", at(16)).await.unwrap().as_deref(), Some(&b"5"[..]));
    })
    .await;
}

fn finalized(name: &str, finalizers: &[&str]) -> Document {
    let mut document = machine(name);
    document.metadata_mut().finalizers = finalizers.iter().map(|&name| name.to_owned()).collect();
    document
}

#[tokio::test]
async fn a_document_is_removed_with_its_last_finalizer() {
    on_each(async |store| {
        let documents = store.documents();
        documents.create(finalized("m1", &["disks", "bmc"])).await.unwrap();
        let marked = documents.delete(Kind::Machine, "m1").await.unwrap();
        assert!(marked.metadata().deletion_timestamp.is_some());
        assert_eq!(marked.metadata().resource_version, 2);
        assert_eq!(documents.get(Kind::Machine, "m1").await.unwrap().as_ref(), Some(&marked));
        // Asked for again nothing happens, and it cannot be taken back.
        assert_eq!(documents.delete(Kind::Machine, "m1").await.unwrap(), marked);
        let mut alive = marked.clone();
        alive.metadata_mut().deletion_timestamp = None;
        alive.metadata_mut().finalizers = vec!["bmc".into(), "newcomer".into()];
        let half = documents.update(alive).await.unwrap();
        assert_eq!(half.metadata().deletion_timestamp, marked.metadata().deletion_timestamp);
        assert_eq!(half.metadata().finalizers, ["bmc"], "a finalizer added after the deletion has nothing to end");
        let mut watch = documents.watch(None, half.metadata().resource_version).unwrap();
        let mut last = half;
        last.metadata_mut().finalizers.clear();
        documents.update(last).await.unwrap();
        assert_eq!(documents.get(Kind::Machine, "m1").await.unwrap(), None);
        assert_eq!(watch.next().await.unwrap().op, ChangeOp::Deleted);
        documents.create(machine("m1")).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_document_cannot_be_made_deleted() {
    on_each(async |store| {
        let mut born_dead = finalized("m1", &["disks"]);
        born_dead.metadata_mut().deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
        let created = store.documents().create(born_dead).await.unwrap();
        assert_eq!(created.metadata().deletion_timestamp, None);
    })
    .await;
}

#[tokio::test]
async fn history_tells_who_changed_what_and_outlives_the_document() {
    on_each(async |store| {
        let documents = store.documents();
        let began = Timestamp::now();
        let first = actor::acting("ann", documents.create(machine("m1"))).await.unwrap();
        let second = actor::acting("bob", documents.update(with_serial(&first, "A"))).await.unwrap();
        // A status is the engine's, and changes all the time: not history.
        let Document::Machine(mut heard) = second.clone() else { panic!("a machine") };
        heard.status = Some(MachineStatus::default());
        heard.status.as_mut().unwrap().epoch = 7;
        let heard = documents.update(Document::Machine(heard)).await.unwrap();
        let Document::Machine(mut quiet) = heard else { panic!("a machine") };
        quiet.status.as_mut().unwrap().epoch = 8;
        documents.update(Document::Machine(quiet)).await.unwrap();
        actor::acting("ann", documents.delete(Kind::Machine, "m1")).await.unwrap();

        let history = documents.history(Kind::Machine, "m1", 100).await.unwrap();
        let found: Vec<_> = history.iter().map(|e| (e.who.as_str(), e.operation, e.generation)).collect();
        assert_eq!(
            found,
            [
                ("ann", HistoryOperation::Created, 1),
                ("bob", HistoryOperation::Changed, 2),
                ("coordinator", HistoryOperation::Changed, 2),
                ("ann", HistoryOperation::Deleted, 2),
            ]
        );
        assert_eq!(history[1].change, json!({"spec": {"identity": {"serial": "A"}}}));
        assert!(history[2].change["status"]["phase"].is_string() && history[2].change.get("spec").is_none());
        assert_eq!(history[3].change["spec"]["identity"]["serial"], "A", "what it was, so that it can be made again");
        assert!(history.iter().all(|e| e.time >= began && e.time <= Timestamp::now()));
        let newest = documents.history(Kind::Machine, "m1", 1).await.unwrap();
        assert_eq!(newest, history[3..]);
        assert!(documents.history(Kind::Template, "m1", 100).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn history_is_bounded_by_document_age_and_total() {
    on_each(async |store| {
        let documents = store.documents();
        let mut stored = documents.create(machine("m1")).await.unwrap();
        for n in 0..HISTORY_PER_DOCUMENT + 5 {
            stored = documents.update(with_serial(&stored, &n.to_string())).await.unwrap();
        }
        documents.create(machine("m2")).await.unwrap();
        let history = documents.history(Kind::Machine, "m1", usize::MAX).await.unwrap();
        assert_eq!(history.len(), HISTORY_PER_DOCUMENT);
        assert_eq!(history.last().unwrap().resource_version, stored.metadata().resource_version);

        let large = documents.update(with_serial(&stored, &"x".repeat(100_000))).await.unwrap();
        let newest = documents.history(Kind::Machine, "m1", 1).await.unwrap().remove(0);
        assert_eq!((newest.change, newest.omitted_bytes > 100_000), (Value::Null, true));
        assert_eq!(newest.resource_version, large.metadata().resource_version);

        assert_eq!(documents.trim_history(Timestamp::UNIX_EPOCH, 11).await.unwrap(), 90);
        assert_eq!(documents.history(Kind::Machine, "m2", 9).await.unwrap().len(), 1);
        assert_eq!(documents.history(Kind::Machine, "m1", 99).await.unwrap().len(), 10);
        assert_eq!(documents.trim_history(Timestamp::MAX, 11).await.unwrap(), 11);
        assert!(documents.history(Kind::Machine, "m1", 99).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_refused_write_leaves_no_history() {
    on_each(async |store| {
        let first = store.documents().create(machine("m1")).await.unwrap();
        store.documents().update(with_serial(&first, "A")).await.unwrap();
        store.documents().update(with_serial(&first, "B")).await.unwrap_err();
        let huge = "x".repeat(super::MAX_DOCUMENT_BYTES);
        let now = store.documents().get(Kind::Machine, "m1").await.unwrap().unwrap();
        let refused = store.documents().update(with_serial(&now, &huge)).await.unwrap_err();
        assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused}");
        assert_eq!(store.documents().history(Kind::Machine, "m1", 9).await.unwrap().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn the_log_counts_events_per_workflow_by_age() {
    on_each(async |store| {
        let (stale, fresh) = (Uuid::new_v4(), Uuid::new_v4());
        store.events().append(u64::MAX, vec![event(fresh, 1, 1), event(stale, 1, 1)]).await.unwrap();
        store.events().append(u64::MAX, vec![event(fresh, 1, 2)]).await.unwrap();
        let run = |workflow_uid, events, newest| LoggedRun { workflow_uid, events, newest };
        assert_eq!(store.events().runs().await.unwrap(), [run(stale, 1, 2), run(fresh, 2, 3)]);
    })
    .await;
}
