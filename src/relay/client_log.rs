//! Log lines about client streams: one for each that opens or ends; beyond ten a second, one line a second with the counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_core::xds::Peer;

use super::admission::AdmissionError;
use super::clients::ClientFacts;
use super::traces::SpanIds;
use crate::log_pace::LogPace;
use crate::shared_runtime;

#[derive(Debug)]
pub(crate) struct ClientLog {
    second: Mutex<Second>,
    nacks: LogPace,
    rejections: LogPace,
    rejected_requests: LogPace,
}

impl Default for ClientLog {
    fn default() -> Self {
        let [nacks, rejections, rejected_requests] = std::array::from_fn(|_| LogPace::of_process());
        Self { second: Mutex::default(), nacks, rejections, rejected_requests }
    }
}

/// The events of one second.
#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    lines: u32,
    opened: u64,
    ended: u64,
}

/// A NACK of a client.
#[derive(Debug)]
pub(super) struct NackLine {
    pub(super) type_url: String,
    pub(super) nonce: u64,
    pub(super) stale: bool,
    pub(super) error: Option<Arc<str>>,
    /// The span of the change that the NACK is about.
    pub(super) span: Option<SpanIds>,
}

impl ClientLog {
    /// Logs that a stream has opened. `span` is that of the stream's start, while it is open.
    pub(super) fn stream_opened(self: &Arc<Self>, client: &ClientFacts, span: Option<SpanIds>) {
        if self.is_worth_a_line(|second| second.opened += 1) {
            let ClientFacts { id, node_id: node, peer, key: view, variant, .. } = client;
            let (trace_id, span_id) = span.map(SpanIds::texts).unzip();
            let (session, variant) = (id.0, variant.name());
            tracing::info!(session, node, %peer, view, variant, trace_id, span_id, "client stream opened");
        }
    }

    pub(super) fn stream_ended(self: &Arc<Self>, client: &ClientFacts) {
        if self.is_worth_a_line(|second| second.ended += 1) {
            let ClientFacts { id, node_id: node, peer, key: view, .. } = client;
            tracing::info!(session = id.0, node, %peer, view, "client stream ended");
        }
    }

    /// Logs a NACK, unless this client, whose pace is given, or all clients together have sent many.
    pub(super) fn nacked(&self, client: &ClientFacts, nack: &NackLine, pace: &LogPace) {
        let now = Instant::now();
        let Some(unlogged) = pace.line(now) else { return };
        let Some(of_others) = self.nacks.line(now) else { return };
        let NackLine { type_url, nonce, stale, error, span } = nack;
        let (session, node, view, error) = (client.id.0, &*client.node_id, &*client.key, error.as_deref());
        let (trace_id, span_id) = span.map(SpanIds::texts).unzip();
        tracing::warn!(
            session,
            node,
            view,
            type_url,
            nonce,
            stale,
            error,
            unlogged,
            of_others,
            trace_id,
            span_id,
            "client NACKed a response"
        );
    }

    /// Logs why a client was not accepted, unless there were many.
    pub(super) fn rejected(&self, peer: &Peer, error: &AdmissionError) {
        if let Some(unlogged) = self.rejections.line(Instant::now()) {
            tracing::warn!(%peer, %error, unlogged, "client stream rejected");
        }
    }

    /// Logs why a request ended its stream, unless there were many.
    pub(crate) fn request_rejected(&self, peer: &Peer, error: &str) {
        if let Some(unlogged) = self.rejected_requests.line(Instant::now()) {
            tracing::warn!(%peer, error, unlogged, "request rejected");
        }
    }

    /// Returns whether an event has a line of its own, or else counts it. The first that is counted schedules a line with the counts for the
    /// end of the second.
    fn is_worth_a_line(self: &Arc<Self>, count: impl FnOnce(&mut Second)) -> bool {
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        if second.began.is_none_or(|began| began.elapsed() >= SECOND) && second.opened + second.ended == 0 {
            *second = Second { began: Some(Instant::now()), ..Second::default() };
        }
        if second.lines < MOST_LINES {
            second.lines += 1;
            return true;
        }
        let first = second.opened + second.ended == 0;
        count(&mut second);
        if first {
            let log = self.clone();
            let rest = SECOND.saturating_sub(second.began.map(|began| began.elapsed()).unwrap_or_default());
            shared_runtime::spawn(async move {
                tokio::time::sleep(rest).await;
                let Second { opened, ended, .. } =
                    std::mem::take(&mut *log.second.lock().unwrap_or_else(PoisonError::into_inner));
                tracing::info!(opened, ended, "client streams opened and ended");
            });
        }
        false
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MOST_LINES: u32 = 10;

#[cfg(test)]
mod tests {
    use weir_core::protocol::moment::Moment;
    use weir_core::protocol::session::Variant;
    use weir_core::protocol::view::SessionId;

    use super::*;

    #[tokio::test]
    async fn ten_streams_a_second_have_lines_and_the_rest_are_counted_once() {
        let log = Arc::new(ClientLog::default());
        let lines = (0..1000).filter(|_| log.is_worth_a_line(|second| second.opened += 1)).count();
        assert_eq!(lines, 10);
        assert_eq!(log.second.lock().unwrap().opened, 990);
        let counted = async {
            while log.second.lock().unwrap().began.is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), counted).await.expect("the counts were logged");
        assert!(log.is_worth_a_line(|second| second.opened += 1), "and a new second has lines again");
    }

    #[tokio::test]
    async fn streams_that_open_and_streams_that_end_are_counted_apart() {
        let log = Arc::new(ClientLog::default());
        let client = ClientFacts {
            id: SessionId(1),
            variant: Variant::Delta,
            node_id: String::new(),
            user_agent: Box::default(),
            key: String::new(),
            peer: Arc::new(Peer::at((std::net::Ipv4Addr::LOCALHOST, 1).into())),
            is_stream: true,
            connected: Moment::START,
        };
        (0..7).for_each(|_| log.stream_opened(&client, None));
        (0..7).for_each(|_| log.stream_ended(&client));
        log.stream_opened(&client, None);
        let second = log.second.lock().unwrap();
        assert_eq!((second.lines, second.opened, second.ended), (10, 1, 4));
    }
}
