//! A place in the view task's queue for the claims of one session, if it is full when they are made.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{OwnedPermit, Sender};

use crate::relay::command::Command;

type Place = OwnedPermit<Command>;
type Waiting = Pin<Box<dyn Future<Output = Result<Place, SendError<()>>> + Send>>;

/// Waits for a place, one at a time. What waits is woken by the place, and not before.
#[derive(Default)]
pub(super) struct ClaimRoom(Mutex<Option<Waiting>>);

impl ClaimRoom {
    /// Returns a place once there is one. The last waker that was given is woken then.
    pub(super) fn take(&self, queue: &Sender<Command>, waker: &Waker) -> Option<Place> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = waiting.get_or_insert_with(|| Box::pin(queue.clone().reserve_owned()));
        match place.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Pending => None,
            Poll::Ready(place) => {
                *waiting = None;
                place.ok() // without a view task there is nothing to claim
            }
        }
    }

    /// Gives a place up that nobody will take.
    pub(super) fn give_up(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
