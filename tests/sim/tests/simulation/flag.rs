//! A value that can be waited for, whose waiters wake in the order in which they came.
//!
//! tokio's own `watch` spreads its waiters by a random number that no seed reaches, so one seed would not be the same
//! twice.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Flag<T>(Arc<Inner<T>>);

#[derive(Debug)]
struct Inner<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Clone for Flag<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Clone> Flag<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Inner { value: Mutex::new(value), changed: Notify::new() }))
    }
    pub(crate) fn get(&self) -> T {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    pub(crate) fn set(&self, value: T) {
        *self.0.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
        self.0.changed.notify_waiters();
    }
    /// Waits until the value satisfies the condition; returns it.
    pub(crate) async fn until(&self, such: impl Fn(&T) -> bool) -> T {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let value = self.get();
            if such(&value) {
                return value;
            }
            changed.await;
        }
    }
}
