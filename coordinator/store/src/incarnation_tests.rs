//! What a store gives out after it went back.

use jiff::Timestamp;
use uuid::Uuid;

use super::audit::Note;
use super::conformance::{event, machine, on_lasting};
use super::traits::LEFT_OUT;
use super::{INCARNATION, WatchError};

#[tokio::test]
async fn nothing_new_has_a_number_of_what_was_lost() {
    on_lasting(async |store| {
        let documents = store.documents();
        documents.create(machine("m1")).await.unwrap();
        let mut watching = documents.watch(None, 1).unwrap();
        store.secrets().begin_incarnation(b"second first").await.unwrap();
        let kept = store.secrets().get(INCARNATION, Timestamp::MIN).await.unwrap();
        assert_eq!(kept.as_deref(), Some(&b"second first"[..]));
        let new = documents.create(machine("m2")).await.unwrap().metadata().resource_version;
        assert!(new > 1 + LEFT_OUT, "{new}");
        // Who was there before, and who had come further in what was lost.
        let expired = |asked| WatchError::Expired { asked, oldest: new - 1 };
        assert_eq!(watching.next().await.unwrap_err(), expired(1));
        assert_eq!(documents.watch(None, 2).err(), Some(expired(2)));
        assert_eq!(documents.watch(None, new - 1).unwrap().next().await.unwrap().revision, new);
        let event = store.events().append(1, vec![event(Uuid::new_v4(), 1, 1)]).await.unwrap();
        assert!(event[0] > LEFT_OUT, "{event:?}");
        // No entry was made before: what was lost may have had some.
        store.audit().note(Timestamp::UNIX_EPOCH, Note::own("Approve", "machine/m1", "")).await;
        let audit = store.audit().list(LEFT_OUT, 9).await.unwrap();
        assert_eq!(audit.len(), 1);
    })
    .await;
}
