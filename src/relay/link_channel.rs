//! The channel by which links report to a view. It knows since when each report waits, even one for which the channel has no room yet: the
//! server has sent its content, although the view has not read it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::time::Instant;

/// Sends reports.
#[derive(Debug)]
pub struct ReportSender<T> {
    to: mpsc::Sender<Queued<T>>,
    unread: Arc<Unread>,
}

/// Reads the reports of all senders.
#[derive(Debug)]
pub struct ReportReceiver<T> {
    from: mpsc::Receiver<Queued<T>>,
    unread: Arc<Unread>,
}

/// There is no receiver any more, so no report will be read.
#[derive(Debug, thiserror::Error)]
#[error("the receiver of reports is gone")]
pub struct ReceiverGone;

/// A report that was read.
#[derive(Debug)]
pub(super) struct Read<T> {
    pub(super) report: T,
    /// When it was made.
    pub(super) at: Instant,
}

/// When each report was made that waits to be read.
#[derive(Debug, Default)]
struct Unread(Mutex<Times>);

#[derive(Debug, Default)]
struct Times {
    last: u64,
    by_number: BTreeMap<u64, Instant>,
}

/// The time of one report, which waits until this is dropped.
#[derive(Debug)]
struct UnreadTime {
    unread: Arc<Unread>,
    number: u64,
    at: Instant,
}

#[derive(Debug)]
struct Queued<T> {
    report: T,
    time: UnreadTime,
}

/// Returns the ends of a channel with room for so many reports.
pub fn report_channel<T>(room: usize) -> (ReportSender<T>, ReportReceiver<T>) {
    let ((to, from), unread) = (mpsc::channel(room), Arc::<Unread>::default());
    (ReportSender { to, unread: unread.clone() }, ReportReceiver { from, unread })
}

impl<T> Clone for ReportSender<T> {
    fn clone(&self) -> Self {
        Self { to: self.to.clone(), unread: self.unread.clone() }
    }
}

impl<T> ReportSender<T> {
    /// Waits for room, and sends a report. It counts as unread from the beginning of the wait. If this is cancelled, it was not sent.
    pub async fn send(&self, report: T) -> Result<(), ReceiverGone> {
        let queued = Queued { report, time: UnreadTime::new(&self.unread) };
        self.to.send(queued).await.map_err(|_| ReceiverGone)
    }

    /// Waits until the receiver is gone.
    pub async fn closed(&self) {
        self.to.closed().await;
    }
}

impl<T> ReportReceiver<T> {
    /// Waits for a report; `None` if no sender is left. Cancelling it loses nothing.
    pub async fn recv(&mut self) -> Option<T> {
        Some(self.next().await?.report)
    }

    /// Like [`Self::recv`], with the time of the report.
    pub(super) async fn next(&mut self) -> Option<Read<T>> {
        self.from.recv().await.map(Queued::read)
    }

    /// Returns a report that has arrived.
    pub(super) fn try_next(&mut self) -> Option<Read<T>> {
        self.from.try_recv().ok().map(Queued::read)
    }

    /// Returns until when all that was reported has been read: until now, or until the oldest unread report was made. It never goes back.
    ///
    /// What has arrived behind a report that waits for room is not known here, until its link takes it from the stream. No silence is evidence before
    /// the answer to a call, which a link reports after all that arrived before it.
    pub(super) fn read_until(&self) -> Instant {
        let times = self.unread.lock();
        times.by_number.first_key_value().map_or_else(Instant::now, |(_, at)| *at)
    }
}

impl<T> Queued<T> {
    fn read(self) -> Read<T> {
        Read { report: self.report, at: self.time.at }
    }
}

impl Unread {
    fn lock(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnreadTime {
    fn new(unread: &Arc<Unread>) -> Self {
        let mut times = unread.lock();
        let at = Instant::now(); // under the lock, so that times have the order of numbers
        times.last += 1;
        let number = times.last;
        times.by_number.insert(number, at);
        drop(times);
        Self { unread: unread.clone(), number, at }
    }
}

impl Drop for UnreadTime {
    fn drop(&mut self) {
        self.unread.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Otherwise the silence of a server would be judged although its report stands before the channel.
    #[tokio::test(start_paused = true)]
    async fn all_is_read_until_the_oldest_report_was_made_that_waits_in_the_channel_or_for_its_room() {
        let (sender, mut receiver) = report_channel(1);
        let start = Instant::now();
        let times = [1u32, 2, 3].map(|seconds| start + seconds * SECOND);
        let mut waiting = Vec::new();
        for number in [1, 2, 3] {
            tokio::time::advance(SECOND).await;
            let mut sent = Box::pin(sender.send(number));
            let is_sent = sent.as_mut().now_or_never().is_some();
            assert_eq!(is_sent, number == 1, "there is room for one");
            waiting.extend((!is_sent).then_some(sent));
        }
        tokio::time::advance(SECOND).await;
        assert_eq!(receiver.read_until(), times[0]);
        assert_eq!(receiver.try_next().map(|read| (read.report, read.at)), Some((1, times[0])));
        assert!(receiver.try_next().is_none(), "the next one has room now, and was not sent yet");
        assert_eq!(receiver.read_until(), times[1]);
        drop(waiting.remove(0));
        assert_eq!(receiver.read_until(), times[2], "the other one was given up");
        assert!(waiting.remove(0).await.is_ok());
        assert_eq!(receiver.read_until(), times[2], "it was not read");
        assert_eq!(receiver.recv().await, Some(3));
        assert_eq!(receiver.read_until(), Instant::now());
    }

    #[tokio::test]
    async fn a_report_that_nobody_will_read_does_not_wait() {
        let (sender, receiver) = report_channel(1);
        let unread = sender.unread.clone();
        assert!(sender.send(1).await.is_ok());
        let waits = tokio::spawn(async move { sender.send(2).await.is_err() });
        tokio::task::yield_now().await;
        drop(receiver);
        assert!(waits.await.unwrap());
        assert!(unread.lock().by_number.is_empty());
    }
}
