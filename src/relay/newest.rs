//! A value that is replaced as a whole while others use it. Users of an earlier value keep that one.

use std::sync::{Arc, PoisonError, RwLock};

pub(crate) struct Newest<T>(RwLock<Arc<T>>);

impl<T> Newest<T> {
    pub(crate) fn new(first: Arc<T>) -> Self {
        Self(RwLock::new(first))
    }

    pub(crate) fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace(&self, next: Arc<T>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}
