//! One gRPC call of load reporting: passes messages between a client and the handler of its reports.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
use tokio::sync::mpsc;
use weir_core::xds::Peer;

use super::drain::Drain;
use super::frames::Frames;
use super::pace::Pace;
use super::report_limits;
use super::request_limits::RequestLimits;
use super::slot::Status;
use crate::limit::{Limit, LimitCounters};
use crate::relay::{KeyHeaders, LoadEnd, LoadLink, Loads, ViewQuota};

/// The context of a call.
pub(super) struct LoadsCall {
    pub(crate) loads: Arc<Loads>,
    pub(crate) limits: RequestLimits,
    pub(crate) counters: Arc<LimitCounters>,
    pub(crate) drain: Drain,
    pub(crate) peer: Arc<Peer>,
    pub(crate) headers: KeyHeaders,
    /// Counts the pools that the client's reports create.
    pub(crate) quota: Arc<ViewQuota>,
    /// The rate of reports, if it is limited.
    pub(crate) pace: Option<Pace>,
}

impl LoadsCall {
    /// Checks a report that Weir will decode: the first one, and every one that it sums.
    fn check(&self, report: &[u8]) -> Result<(), Status> {
        report_limits::check(report, self.limits, &self.counters)
    }

    /// Waits if reports exceed the rate of requests.
    async fn keep_pace(&self, frames: &Frames<impl Body<Data = Bytes> + Unpin>) {
        frames.keep_pace(self.pace.as_ref(), 1, Limit::RequestsPerSecond).await;
    }
}

/// Serves a stream until one side ends it, and returns the status.
pub(super) async fn serve(frames: &mut Frames, call: LoadsCall, answers: mpsc::Sender<Bytes>) -> Status {
    let (client_disconnected, mut drain) = (answers.clone(), call.drain.clone());
    let status = tokio::select! {
        status = converse(frames, &call, answers) => status,
        () = client_disconnected.closed() => Status::ok(),
        () = drain_turn(&mut drain) => Status::unavailable(drain.reason().message()),
    };
    tracing::debug!(peer = %call.peer, code = status.code, error = status.message, "load report stream ended");
    status
}

async fn converse(frames: &mut Frames, call: &LoadsCall, answers: mpsc::Sender<Bytes>) -> Status {
    let first = match frames.next().await {
        Ok(Some(first)) => first,
        Ok(None) => return Status::ok(),
        Err(status) => return status,
    };
    if let Err(status) = call.check(&first) {
        return status;
    }
    call.keep_pace(frames).await;
    let (reports, taken) = mpsc::channel(1);
    tokio::select! {
        end = call.loads.serve(&call.peer, &call.quota, LoadLink { tenant: None, headers: call.headers.clone(), first, reports: taken, answers }) => end.into(),
        status = read(frames, call, reports) => status,
    }
}

/// Reads reports, each after the previous one was accepted. Returns only on an error; after the last report the upstream side ends the call.
async fn read(
    frames: &mut Frames<impl Body<Data = Bytes> + Unpin>,
    call: &LoadsCall,
    reports: mpsc::Sender<Bytes>,
) -> Status {
    while let Ok(room) = frames.paused(reports.reserve()).await {
        match frames.next().await {
            Ok(Some(report)) => {
                if call.loads.are_summed()
                    && let Err(status) = call.check(&report)
                {
                    return status;
                }
                call.keep_pace(frames).await;
                if let Err(denied) = call.loads.judge(&call.peer, &call.headers, &report) {
                    return denied.into();
                }
                room.send(report);
            }
            Ok(None) => break,
            Err(status) => return status,
        }
    }
    drop(reports);
    std::future::pending().await
}

/// Waits for this stream's turn to end. Another relay or configuration serves its client equally well.
async fn drain_turn(drain: &mut Drain) {
    drain.begins().await;
    drain.turn_comes(0).await;
}

impl From<LoadEnd> for Status {
    fn from(end: LoadEnd) -> Self {
        match end {
            LoadEnd::Refused(rejected) => rejected.into(),
            LoadEnd::Unreadable => Self::invalid("a report that cannot be read"),
            LoadEnd::Unreachable(reason) => Self::unavailable(format!("control plane unreachable: {reason}")),
            LoadEnd::Moved(reason) => Self::unavailable(reason),
            LoadEnd::Exhausted(reason) => Self::exhausted(reason),
            LoadEnd::Said { code, message } => Self { code, message },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::{Pin, pin};
    use std::time::Duration;

    use futures_util::future::poll_immediate;
    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use weir_core::protocol::upstream::BackoffTimes;

    use super::*;
    use crate::downstream::frames::framed;
    use crate::downstream::incomplete::IncompleteRequests;
    use crate::downstream::sent_ahead::SentAhead;
    use crate::memory::{Budget, GroupMembership, Memory};
    use crate::relay::{LoadConnector, LoadStreamLimits, LoadsMode, views_to};

    /// A server that no stream reaches.
    struct Unreached;

    impl LoadConnector for Unreached {
        fn carry(&self, _: usize, _: LoadLink) -> Pin<Box<dyn Future<Output = LoadEnd> + Send>> {
            Box::pin(std::future::pending())
        }

        fn backoff(&self, _: usize) -> BackoffTimes {
            BackoffTimes::default()
        }
    }

    fn call() -> LoadsCall {
        let mode = LoadsMode::PassThrough(LoadStreamLimits { streams: 1, per_connection: 1 });
        LoadsCall {
            loads: Arc::new(Loads::new(mode, Arc::new(views_to("http://server")), Arc::new(Unreached))),
            limits: RequestLimits::new(1, 1, 1),
            counters: Arc::default(),
            drain: Drain::new().1,
            peer: Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 1).into())),
            headers: KeyHeaders::default(),
            quota: Arc::default(),
            pace: None,
        }
    }

    #[tokio::test]
    async fn what_comes_while_a_server_takes_no_reports_is_charged_to_the_client() {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let (account, ahead) = (memory.connect(GroupMembership::default()), Arc::new(SentAhead::default()));
        ahead.charge_to(account.charge(0));
        let before = memory.used();
        let charged = || {
            account.tell();
            memory.used() - before
        };
        let inbound = IncompleteRequests::new(1 << 10, 0, Arc::default()).connection_with(ahead.clone());
        let two = [(); 2].map(|()| Ok::<_, &str>(Frame::data(framed(b"report"))));
        let body = StreamBody::new(stream::iter(two).chain(stream::pending()));
        let (mut frames, call) = (Frames::new(body, 1 << 10, inbound), call());
        let (reports, mut untaken) = mpsc::channel(1);
        let mut reading = pin!(read(&mut frames, &call, reports));
        assert!(poll_immediate(reading.as_mut()).await.is_none(), "the first report waits for the server");
        ahead.note_came(60 << 10);
        assert_eq!(charged(), 60 << 10);
        untaken.recv().await.unwrap();
        assert!(poll_immediate(reading.as_mut()).await.is_none(), "now the second one does");
        assert_eq!(charged(), 0, "the stream was read in between");
        ahead.note_came(1 << 10);
        assert_eq!(charged(), 1 << 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_ends_although_reports_of_its_connection_wait_for_the_server() {
        const PATIENCE: Duration = Duration::from_secs(30);
        let inbound = IncompleteRequests::new(1 << 10, 0, Arc::default()).connection();
        let report = Ok::<_, &str>(Frame::data(framed(b"report")));
        let body = StreamBody::new(stream::iter([report]).chain(stream::pending()));
        let (mut frames, call) = (Frames::new(body, 1 << 10, inbound.clone()), call());
        let (reports, _untaken) = mpsc::channel(1);
        let mut reading = pin!(read(&mut frames, &call, reports));
        assert!(poll_immediate(reading.as_mut()).await.is_none(), "the report waits for the server");
        let silent = StreamBody::new(stream::pending::<Result<Frame<Bytes>, &str>>());
        let mut silent = Frames::new(silent, 1 << 10, inbound).begun_within(PATIENCE);
        let ended = tokio::time::timeout(2 * PATIENCE, silent.next()).await;
        assert!(ended.is_ok_and(|ended| ended.is_err()));
    }
}
