//! Work that may block for ever, on a thread of its own.
//!
//! The runtime's pool of blocking threads is bounded: a few devices that hang would fill it, and then nothing that uses the
//! pool would run again, the machine's restart included. So whatever touches a device has a named thread.

use std::{io, panic, thread};

use tokio::sync::oneshot;

/// Bytes of stack of such a thread: as much as the runtime's own have.
const STACK: usize = 2 << 20;

/// Runs `work` on a thread with this name (the kernel shows 15 characters of it) and waits for its result. A panic in it
/// is passed on.
///
/// # Errors
/// The thread could not be started.
pub(crate) async fn on_thread<T: Send + 'static>(
    name: &str, work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    thread::Builder::new().name(name.into()).stack_size(STACK).spawn(move || {
        let result = panic::catch_unwind(panic::AssertUnwindSafe(work));
        // The caller may have stopped waiting.
        drop(done.send(result));
    })?;
    match result.await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(panic)) => panic::resume_unwind(panic),
        // The sender is dropped only after it was used.
        Err(_) => Err(io::Error::other(format!("thread {name} ended without a result"))),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn hanging_work_keeps_no_other_work_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = std::sync::Arc::new(std::sync::Mutex::new(hangs));
        runtime.block_on(async {
            let hanging: Vec<_> = (0..20)
                .map(|n| {
                    let hangs = hangs.clone();
                    tokio::spawn(async move {
                        on_thread(&format!("hangs-{n}"), move || hangs.lock().unwrap().recv().unwrap_or_default()).await
                    })
                })
                .collect();
            assert_eq!(on_thread("works", || 7).await.unwrap(), 7);
            drop(release);
            for one in hanging {
                one.await.unwrap().unwrap();
            }
        });
    }

    #[tokio::test]
    async fn a_panic_reaches_the_one_that_waits() {
        let task = tokio::spawn(on_thread("panics", || panic!("as expected")));
        let panic = task.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as expected"));
        assert!(tokio::time::timeout(Duration::from_secs(60), on_thread("works", || ())).await.is_ok());
    }
}
