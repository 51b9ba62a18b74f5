//! A number of places, which can be changed while some are taken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places, each of which one connection has at a time.
#[derive(Clone)]
pub(in crate::downstream) struct Places(Arc<Inner>);

struct Inner {
    free: Arc<Semaphore>,
    size: Mutex<Size>,
}

struct Size {
    wanted: usize,
    /// How many exist: more than `wanted` while too many are taken.
    there: usize,
}

/// A place that is taken, until this is dropped.
pub(in crate::downstream) struct TakenPlace {
    permit: Option<OwnedSemaphorePermit>,
    places: Places,
}

impl Places {
    pub(in crate::downstream) fn new(count: usize) -> Self {
        let count = count.min(Semaphore::MAX_PERMITS);
        let size = Mutex::new(Size { wanted: count, there: count });
        Self(Arc::new(Inner { free: Arc::new(Semaphore::new(count)), size }))
    }

    /// Changes how many there are. Nobody loses one that is taken.
    pub(in crate::downstream) fn resize(&self, count: usize) {
        let mut size = self.size();
        size.wanted = count.min(Semaphore::MAX_PERMITS);
        if size.there < size.wanted {
            self.0.free.add_permits(size.wanted - size.there);
            size.there = size.wanted;
        }
        while size.there > size.wanted
            && let Ok(free) = self.0.free.try_acquire()
        {
            free.forget();
            size.there -= 1;
        }
    }

    /// Waits for a place.
    pub(in crate::downstream) async fn take(&self) -> TakenPlace {
        let permit = self.0.free.clone().acquire_owned().await.ok(); // it is never closed
        TakenPlace { permit, places: self.clone() }
    }

    /// Returns a place if one is free.
    pub(in crate::downstream) fn try_take(&self) -> Option<TakenPlace> {
        let permit = self.0.free.clone().try_acquire_owned().ok()?;
        Some(TakenPlace { permit: Some(permit), places: self.clone() })
    }

    #[cfg(test)]
    pub(in crate::downstream) fn free(&self) -> usize {
        self.0.free.available_permits()
    }

    fn size(&self) -> MutexGuard<'_, Size> {
        self.0.size.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        let mut size = self.places.size();
        if let Some(permit) = self.permit.take_if(|_| size.there > size.wanted) {
            permit.forget();
            size.there -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_places_take_none_away_and_more_are_free_at_once() {
        let places = Places::new(3);
        let mut taken: Vec<_> = (0..3).map(|_| places.try_take().unwrap()).collect();
        places.resize(1);
        assert!(places.try_take().is_none());
        taken.truncate(1);
        assert!(places.try_take().is_none(), "those that were given back are one too many each");
        taken.clear();
        assert_eq!(places.free(), 1);
        places.resize(4);
        assert_eq!(places.free(), 4);
        places.resize(2);
        assert_eq!(places.free(), 2);
        let one = places.try_take().unwrap();
        places.resize(1);
        assert_eq!(places.free(), 0);
        places.resize(2);
        drop(one);
        assert_eq!(places.free(), 2);
    }

    #[tokio::test]
    async fn who_waits_gets_the_place_that_comes_with_more() {
        let places = Places::new(1);
        let first = places.take().await;
        let waits = tokio::spawn({
            let places = places.clone();
            async move { drop(places.take().await) }
        });
        tokio::task::yield_now().await;
        places.resize(2);
        waits.await.unwrap();
        drop(first);
        assert_eq!(places.free(), 2);
    }
}
