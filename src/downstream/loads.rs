//! One gRPC call of load reporting: passes messages between a client and the handler of its reports.

use std::sync::Arc;

use bytes::Bytes;
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
    async fn keep_pace(&self, frames: &Frames) {
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
async fn read(frames: &mut Frames, call: &LoadsCall, reports: mpsc::Sender<Bytes>) -> Status {
    while let Ok(room) = reports.reserve().await {
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
