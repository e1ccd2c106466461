//! Who changes a document: a context that follows a request through the engine to the store.
//!
//! Most writes are the engine's own, without a request; an author in each of them would carry no information. So the
//! code that admits a caller runs the request in that name, and the store reads it. Outside of every such scope the
//! author is [`COORDINATOR`].

use std::sync::Arc;

/// The author of writes without a request.
pub const COORDINATOR: &str = "coordinator";

tokio::task_local! {
    static ACTOR: Arc<str>;
}

/// Runs `work` in the name of `who`. A task that it spawns is outside.
pub async fn acting<F: Future>(who: &str, work: F) -> F::Output {
    ACTOR.scope(who.into(), work).await
}

/// Who acts.
pub(super) fn current() -> String {
    ACTOR.try_with(|who| who.to_string()).unwrap_or_else(|_| COORDINATOR.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_author_holds_within_its_scope_and_nowhere_else() {
        assert_eq!(current(), COORDINATOR);
        acting("admin/ann", async {
            assert_eq!(current(), "admin/ann");
            assert_eq!(tokio::spawn(async { current() }).await.unwrap(), COORDINATOR);
            assert_eq!(acting("viewer/bob", async { current() }).await, "viewer/bob");
        })
        .await;
        assert_eq!(current(), COORDINATOR);
    }
}
