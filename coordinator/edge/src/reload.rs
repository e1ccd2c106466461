//! A value that a reload of the configuration replaces while it is read.

use std::{
    ops::Deref,
    sync::{PoisonError, RwLock},
};

/// A value that may be replaced while everybody reads it.
///
/// Readers get a plain reference and hold no lock. The price: a value that was replaced stays in memory, some hundred
/// bytes for each time a person changes the configuration.
#[derive(Debug)]
pub struct Reloadable<T: 'static>(RwLock<&'static T>);

impl<T> Reloadable<T> {
    /// Replaces the value; concurrent readers continue with the previous one.
    pub fn replace(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Box::leak(Box::new(value));
    }
}

impl<T> From<T> for Reloadable<T> {
    fn from(value: T) -> Self {
        Self(RwLock::new(Box::leak(Box::new(value))))
    }
}

impl<T> Deref for Reloadable<T> {
    type Target = T;
    fn deref(&self) -> &T {
        let value: &'static T = *self.0.read().unwrap_or_else(PoisonError::into_inner);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_keeps_what_it_reads_while_it_is_replaced() {
        let value = Reloadable::from(String::from("old"));
        let read: &str = &value;
        value.replace("new".into());
        assert_eq!((read, value.as_str()), ("old", "new"));
    }
}
