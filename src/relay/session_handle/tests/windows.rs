//! What happens between a look at a session and taking its lock.

use super::*;

/// A session that another thread has locked.
pub(super) struct Locked {
    end: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<bool>,
}

impl Locked {
    pub(super) async fn by_another_thread(bench: &Bench) -> Self {
        let ((begun, begins), (end, ended)) = (tokio::sync::oneshot::channel(), std::sync::mpsc::channel());
        let handle = bench.handle.clone();
        let thread = std::thread::spawn(move || {
            let _session = handle.session.lock();
            let _ = begun.send(());
            ended.recv_timeout(Duration::from_secs(20)).is_ok()
        });
        begins.await.unwrap();
        Self { end, thread }
    }

    /// Unlocks it. Returns whether no thread has waited for that until now.
    pub(super) fn end(self) -> bool {
        let _ = self.end.send(());
        self.thread.join().unwrap()
    }
}

/// The work may begin after a task has seen that there is none. A task that waited for the lock then would block its thread.
#[tokio::test]
async fn work_that_has_just_begun_with_a_session_keeps_no_thread_waiting_for_it() {
    let bench = with_names(1);
    let locked = Locked::by_another_thread(&bench).await;
    let waker = Waker::from(bench.woken.clone());
    assert!(matches!(bench.handle.poll_below(usize::MAX, &waker), Err(Unmade::Busy)));
    assert!(bench.handle.interest().send().now_or_never().is_none());
    assert!(bench.handle.leave().now_or_never().is_none());
    assert!(locked.end(), "the lock was waited for");
    assert!(bench.handle.poll_below(usize::MAX, &waker).is_ok());
    bench.handle.leave().now_or_never().unwrap();
}

#[tokio::test]
async fn work_whose_session_is_busy_when_its_turn_has_come_is_not_overtaken() {
    let [bench, other] = [Bench::new(9), Bench::new(9)];
    let mut threads = heavy::all_threads(HeavyKind::Request, 0).await;
    let mut work = Box::pin(SessionThread::free(&bench.handle, HeavyKind::Request, 0));
    assert!(work.as_mut().now_or_never().is_none());
    let mut behind = Box::pin(SessionThread::free(&other.handle, HeavyKind::Request, 0));
    assert!(behind.as_mut().now_or_never().is_none());
    let reply = SessionThread::free(&bench.handle, HeavyKind::Reply, 0).await;
    drop(threads.split(1));
    assert!(work.as_mut().now_or_never().is_none(), "a reply is being made");
    assert!(behind.as_mut().now_or_never().is_none(), "it is behind");
    drop(reply);
    drop(work.await);
    drop((behind.await, threads));
}

/// The body of a client that takes nothing is not polled.
#[tokio::test]
async fn a_step_that_waits_for_a_thread_is_made_though_nobody_polls_it_and_not_at_all_if_it_is_given_up() {
    for is_given_up in [false, true] {
        let bench = with_names(HEAVY);
        let threads = heavy::all_threads(HeavyKind::Reply, HEAVY).await;
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (handle, waker) = (bench.handle.clone(), Waker::noop().clone());
        let begins_step = || _ = begun.send(());
        let mut step = Box::pin(step_apart(handle, HEAVY, usize::MAX, waker, begins_step, |_, step| step.is_ok()));
        assert!(step.as_mut().now_or_never().is_none());
        let kept = (!is_given_up).then_some(step);
        tokio::task::yield_now().await;
        drop(threads);
        let is_made = tokio::time::timeout(Duration::from_secs(20), begins).await.expect("an end").is_ok();
        assert_eq!(is_made, !is_given_up);
        drop(kept);
    }
}
