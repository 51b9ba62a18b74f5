//! A control plane that judges every call by its header: streams and their later openings, liveness calls, trials of types, and all of these at the
//! next server of the list.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::key_headers::{call_as, channel};
use super::plane::{Calls, SeenCall};
use super::refused_types::{MADE_UP, UNKNOWN};
use super::*;

const HEADER: &str = "x-consul-token";
/// The node clusters of the views. Each view has a token of its own.
const CLUSTERS: [&str; 2] = ["one", "other"];

fn token_of(cluster: &str) -> String {
    format!("token-of-{cluster}")
}

fn shown(headers: &HeaderMap) -> Vec<&str> {
    headers.get_all(HEADER).iter().map(|value| value.to_str().unwrap()).collect()
}

fn is_taken(headers: &HeaderMap) -> bool {
    let shown = shown(headers);
    CLUSTERS.iter().any(|cluster| shown == [token_of(cluster)])
}

/// A control plane that serves clusters, and ends streams that request another type.
struct Judging {
    plane: Plane,
    /// Ends all streams.
    cut: Arc<Notify>,
    _serving: JoinSet<()>,
}

impl Judging {
    async fn start() -> Self {
        let mut plane = Plane::judging(&BOTH, is_taken).await;
        let (_, none) = mpsc::unbounded_channel();
        let mut streams = std::mem::replace(&mut plane.streams, none);
        let cut = Arc::<Notify>::default();
        let (mut serving, cuts) = (JoinSet::new(), cut.clone());
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Some(stream) = streams.recv().await {
                open.spawn(serve(stream, cuts.clone()));
            }
        });
        Self { plane, cut, _serving: serving }
    }

    fn calls(&self) -> Vec<SeenCall> {
        self.plane.calls.lock().unwrap().clone()
    }

    /// Waits until each view has made this many more calls that satisfy a condition.
    async fn has(&self, what: &str, count: usize, is: impl Fn(&SeenCall) -> bool) {
        self.until(what, |calls| {
            let of = |call: &SeenCall, cluster: &str| shown(&call.headers) == [token_of(cluster)] && is(call);
            CLUSTERS.iter().all(|cluster| calls.iter().filter(|call| of(call, cluster)).count() >= count)
        })
        .await;
    }

    /// Waits for this many more liveness calls. The stream of one view makes them for all views.
    async fn is_looked_at(&self, count: usize) {
        let is = |call: &&SeenCall| call.path.ends_with("/WeirIsAnyoneThere") && is_taken(&call.headers);
        self.until("liveness calls", |calls| calls.iter().filter(is).count() >= count).await;
    }

    /// Waits until the calls from now on satisfy a condition.
    async fn until(&self, what: &str, holds: impl Fn(&[SeenCall]) -> bool) {
        let from = self.calls().len();
        until(what, async || holds(&self.calls()[from..])).await;
    }
}

async fn serve(mut stream: Stream, cut: Arc<Notify>) {
    let mut has_clusters = false;
    loop {
        tokio::select! {
            () = cut.notified() => return,
            request = stream.requests.recv() => match request {
                None => return,
                Some(request) if request.type_url() == MADE_UP => {
                    stream.end_with(UNKNOWN);
                    return;
                }
                Some(request) if request.type_url() == CDS && !has_clusters => {
                    has_clusters = true;
                    say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
                }
                Some(_) => {}
            },
        }
    }
}

fn is_stream(call: &SeenCall) -> bool {
    call.cluster.is_some()
}

/// Checks that each call shows only the token of its view. Before the first client, the relay asks without a token.
fn judge(calls: &Calls) {
    for call in calls.lock().unwrap().iter() {
        match (&shown(&call.headers)[..], &call.cluster) {
            ([], None) => {}
            ([token], Some(cluster)) => assert_eq!(*token, token_of(cluster), "{}", call.path),
            ([token], None) => assert!(CLUSTERS.iter().any(|of| token_of(of) == *token), "{}: {token}", call.path),
            (tokens, cluster) => panic!("{} of {cluster:?} shows {tokens:?}", call.path),
        }
    }
}

#[tokio::test]
async fn every_call_of_a_view_carries_its_header_and_no_call_another_s() {
    for up in BOTH {
        let (first, second) = (Judging::start().await, Judging::start().await);
        let server = |at: SocketAddr| {
            let times = "liveness: {interval: 100ms, timeout: 5s}, backoff: {initial: 10ms, max: 50ms}";
            format!("{{uri: 'http://{at}'{}, {times}}}", protocol_of(up))
        };
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
             upstream: {{servers: [{}, {}]}}\nviews: {{key: [cluster, header.{HEADER}]}}\n",
            server(first.plane.address),
            server(second.plane.address)
        );
        let relay = run(
            crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap(),
            std::future::pending(),
        );
        let channel = channel(&relay).await;
        let mut callers: Vec<Client> = Vec::new();
        for cluster in CLUSTERS {
            let mut caller = call_as(&channel, cluster, &[&token_of(cluster)]).await.unwrap();
            assert_eq!(caller.names().await.unwrap(), ["a"], "{up:?}: {cluster}");
            callers.push(caller);
        }
        first.is_looked_at(2).await;
        // A trial has one stream for the tried type, and one for a type that the server accepts.
        callers.iter().for_each(|caller| caller.ask(MADE_UP, &["x"], None));
        first.has("trials of both views", 2, is_stream).await;
        until("the type is refused in both", async || {
            get(relay.admin, "/upstreams").await.matches("\"REFUSED\"").count() >= CLUSTERS.len()
        })
        .await;
        // Counts the calls from before the streams end.
        tokio::join!(first.has("next openings of both views", 1, is_stream), async { first.cut.notify_waiters() });
        first.is_looked_at(2).await;
        // The clients then request names that are not cached, so that the relay needs the next server.
        let calls = first.plane.calls.clone();
        first.plane.kill().await;
        callers.iter().for_each(|caller| caller.ask(EDS, &["hosts"], None));
        second.has("streams to the next server", 1, is_stream).await;
        second.is_looked_at(2).await;
        judge(&calls);
        judge(&second.plane.calls);
    }
}
