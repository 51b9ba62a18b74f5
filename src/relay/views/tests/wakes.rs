//! When the task of a view wakes its sessions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::protocol::session::Step;
use weir_core::protocol::view::{InterestChange, Revision, Selector, SessionId};

use super::*;
use crate::relay::command::PART;
use crate::relay::link::{Connector, Link};
use crate::relay::published::Published;
use crate::relay::report::AnswersSource;
use crate::relay::subscriber::{Notice, Subscriber};
use crate::relay::traces::OpenChange;
use crate::relay::wakes::Wakes;

/// A session that writes down what it hears, and whether the change is published by then.
#[derive(Clone)]
struct Watcher {
    published: Arc<Published>,
    heard: Arc<Mutex<Vec<(&'static str, bool)>>>,
}

impl Watcher {
    const ID: SessionId = SessionId(7);

    fn note(&self, what: &'static str) {
        let is_published = self.published.newest().revision > Revision::ZERO;
        self.heard.lock().unwrap().push((what, is_published));
    }
}

impl Subscriber for Watcher {
    fn id(&self) -> SessionId {
        Self::ID
    }

    fn answers(&self) -> Arc<dyn AnswersSource> {
        unreachable!("it has no answers")
    }

    fn notify(&self, notice: Notice) {
        self.note(match notice {
            Notice::NamesChanged(_) => "changed names",
            Notice::InterestApplied => "interest is counted",
            Notice::NamesRefused(_) => "refused names",
            Notice::ClaimsRefused(_) => "refused claims",
            Notice::ClaimRoom => "room for claims",
            Notice::ReplyLate(_) => "late reply",
            Notice::StatedVersionsRefused => "refused versions",
            Notice::TypeRefused(..) => "refused type",
            Notice::ViewRefused(..) => "refused view",
        });
    }

    fn on_traced_change(&self, _: &Arc<OpenChange>) {}

    fn answers_replies(&self) -> bool {
        false
    }

    fn wake(&self, _: &mut Wakes) {
        self.note("woken");
    }
}

/// Lets the only view do what it has been sent.
pub(super) async fn settle(views: &Views) {
    questions::report(views).await; // the task of the view is on this thread, and publishes before it waits again
}

#[tokio::test]
async fn i4_a_session_gets_its_changes_before_a_snapshot_is_published_and_is_woken_after_it() {
    let (views, first) = (views(), first_request());
    let identity = views.identify(&visit().peer, &Default::default(), first.node()).unwrap();
    let entrance = views.enter_new(identity.key(), &first, &visit()).unwrap();
    let watcher = Watcher { published: entrance.published.clone(), heard: Arc::default() };
    entrance.commands.send(Command::Join(Box::new(watcher.clone()))).await.unwrap();
    // To follow a collection changes the view. No server has this one.
    let (kind, selector) = (views.shared.table.resolve("own.Type"), Selector::Name("xdstp://x/own.Type/f/*".into()));
    let change = InterestChange { kind, selector, on: true };
    entrance.commands.send(Command::Interest(Watcher::ID, vec![change])).await.unwrap();
    settle(&views).await;
    let heard = watcher.heard.lock().unwrap();
    assert_eq!(*heard, [("changed names", false), ("interest is counted", true), ("woken", true)]);
}

#[tokio::test]
async fn a_session_is_woken_once_for_all_parts_of_its_interest_that_are_counted_together() {
    let (views, first) = (views_to("http://server"), first_request());
    let identity = views.identify(&visit().peer, &Default::default(), first.node()).unwrap();
    let entrance = views.enter_new(identity.key(), &first, &visit()).unwrap();
    let watcher = Watcher { published: entrance.published.clone(), heard: Arc::default() };
    entrance.commands.send(Command::Join(Box::new(watcher.clone()))).await.unwrap();
    settle(&views).await;
    let kind = views.shared.table.resolve("own.Type");
    for name in ["a", "b"] {
        let change = InterestChange { kind: kind.clone(), selector: Selector::Name(name.into()), on: true };
        assert!(entrance.commands.try_send(Command::Interest(Watcher::ID, vec![change])).is_ok());
    }
    settle(&views).await;
    let heard: Vec<_> = watcher.heard.lock().unwrap().iter().map(|(what, _)| *what).collect();
    assert_eq!(heard, ["interest is counted", "interest is counted", "woken"]);
}

/// Otherwise one client's wish for a hundred thousand names would keep the worker from all other views.
#[tokio::test]
async fn other_tasks_run_again_and_again_while_a_view_counts_the_many_names_that_a_client_wants() {
    let (views, first) = (views_to("http://server"), first_request());
    let identity = views.identify(&visit().peer, &Default::default(), first.node()).unwrap();
    let entrance = views.enter_new(identity.key(), &first, &visit()).unwrap();
    let watcher = Watcher { published: entrance.published.clone(), heard: Arc::default() };
    entrance.commands.send(Command::Join(Box::new(watcher.clone()))).await.unwrap();
    settle(&views).await;
    let kind = views.shared.table.resolve("own.Type");
    let change = |number: usize| {
        let selector = Selector::Name(number.to_string().as_str().into());
        InterestChange { kind: kind.clone(), selector, on: true }
    };
    let commands = 64;
    for command in 0..commands {
        let changes = (0..PART).map(|number| change(command * PART + number)).collect();
        assert!(entrance.commands.try_send(Command::Interest(Watcher::ID, changes)).is_ok());
    }
    let heard = || watcher.heard.lock().unwrap().iter().filter(|(what, _)| *what == "interest is counted").count();
    let before = heard();
    let mut turns = 0;
    while entrance.commands.capacity() < entrance.commands.max_capacity() {
        tokio::task::yield_now().await;
        turns += 1;
    }
    assert!(heard() > before);
    assert!(turns >= commands / 4, "{turns} turns of this task in {commands} of the view's");
}

/// A server to which no stream is ever open.
pub(super) struct Unreachable(pub &'static str);

impl Connector for Unreachable {
    fn start(&self, link: Link) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { link.reports.closed().await })
    }

    fn describe(&self) -> String {
        self.0.into()
    }

    fn variant(&self) -> Option<Variant> {
        None
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Removals wait until the view has counted what the session requested, and for a long time nothing else may wake the session.
#[tokio::test]
async fn i7_a_session_is_woken_when_what_it_requested_is_counted() {
    let views = views_to("http://server");
    let handle = open_session(&views, &first_request(), visit()).await.unwrap();
    settle(&views).await;
    let request = DeltaDiscoveryRequest {
        type_url: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment".into(),
        resource_names_subscribe: vec!["unknown".into()],
        ..Default::default()
    };
    handle.handle_request(Request::Delta(request)).await;
    let woken = Arc::<Woken>::default();
    assert!(matches!(handle.poll(&Waker::from(woken.clone())), Step::Idle(None)));
    settle(&views).await;
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(matches!(handle.poll(&Waker::from(woken)), Step::Idle(None)));
}
