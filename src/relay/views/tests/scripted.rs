//! A server whose streams a test opens, answers and ends.

use tokio::sync::{Notify, mpsc};
use weir_core::proto::Response;
use weir_core::protocol::upstream::ServerStatus;

use super::*;
use crate::relay::link::{Connector, Link, LinkEvent, LinkReport};

pub(super) const SERVER: &str = "http://server";

/// Hands each link to the test.
struct Scripted(mpsc::UnboundedSender<Link>);

impl Connector for Scripted {
    fn start(&self, link: Link) -> tokio::task::JoinHandle<()> {
        let _ = self.0.send(link); // the test may need it no longer
        tokio::spawn(std::future::pending())
    }

    fn describe(&self) -> String {
        SERVER.into()
    }

    fn variant(&self) -> Option<Variant> {
        Some(Variant::Delta)
    }
}

/// The links that views have opened.
pub(super) struct Server(mpsc::UnboundedReceiver<Link>);

/// One link to the server.
pub(super) struct Upstream(pub Link);

/// Returns views with these options, and their only server. Its requests do not wait for others, and no interest lingers.
pub(super) fn views_at_server(options: ViewsOptions) -> (Views, Server) {
    let (links, receiver) = mpsc::unbounded_channel();
    let (interest_window, linger) = (Duration::ZERO, Duration::ZERO);
    let mut options = options;
    (options.protocol.upstream.interest_window, options.protocol.view.linger) = (interest_window, linger);
    let views = Views::new(options, vec![Arc::new(Scripted(links))]);
    (views, Server(receiver))
}

impl Server {
    /// Returns the next link that a view opens.
    pub(super) async fn link(&mut self) -> Upstream {
        let link = tokio::time::timeout(Duration::from_secs(20), self.0.recv()).await;
        Upstream(link.expect("no link is opened").unwrap())
    }
}

impl Upstream {
    /// Opens the stream with room for so many requests, and returns those.
    pub(super) async fn open(&self, room: usize) -> mpsc::Receiver<Request> {
        self.open_with(room, Arc::default()).await
    }

    /// Opens it. When `life` is notified, the view wants a liveness call.
    pub(super) async fn open_with(&self, room: usize, life: Arc<Notify>) -> mpsc::Receiver<Request> {
        let (requests, receiver) = mpsc::channel(room);
        self.report(LinkEvent::Opened { variant: Variant::Delta, requests, life }).await;
        receiver
    }

    pub(super) async fn end(&self, reason: &str) {
        let (reason, answered, is_lost, status) = (reason.into(), false, true, None);
        self.report(LinkEvent::Ended { reason, answered, is_lost, status }).await;
    }

    /// The server ends the stream, since it does not accept what the view shows it.
    pub(super) async fn refuse(&self) {
        let status = Some(ServerStatus { code: 7, message: "no".into() });
        let (reason, answered, is_lost) = ("no".into(), false, false);
        self.report(LinkEvent::Ended { reason, answered, is_lost, status }).await;
    }

    pub(super) async fn say(&self, response: Response) {
        self.report(LinkEvent::Response(Box::new(response))).await;
    }

    pub(super) async fn report(&self, event: LinkEvent) {
        self.0.reports.send(LinkReport { id: self.0.id, event }).await.unwrap();
    }
}

/// A request for one name of a type.
pub(super) fn wants(kind: &str, name: &str) -> Request {
    Request::Delta(DeltaDiscoveryRequest {
        type_url: format!("type.googleapis.com/{kind}"),
        resource_names_subscribe: vec![name.into()],
        ..Default::default()
    })
}
