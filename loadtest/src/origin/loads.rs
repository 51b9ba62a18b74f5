//! Streams of load reports: the origin requests reports of everything, reads them, and drops them.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use prost::Message;
use tokio::sync::mpsc::Sender;
use weir_core::proto::loads::LoadStatsResponse;

pub const LOADS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

/// Answers the first report, and reads until the client ends the stream.
pub async fn run(mut reports: Incoming, out: Sender<Frame<Bytes>>) {
    let mut is_answered = false;
    while let Some(Ok(frame)) = reports.frame().await {
        if is_answered || !frame.is_data() {
            continue;
        }
        is_answered = true;
        if out.send(Frame::data(order())).await.is_err() {
            return;
        }
    }
}

fn order() -> Bytes {
    let order = LoadStatsResponse { send_all_clusters: true, ..LoadStatsResponse::default() }.encode_to_vec();
    let mut message = BytesMut::with_capacity(5 + order.len());
    message.put_u8(0);
    message.put_u32(order.len() as u32);
    message.put_slice(&order);
    message.freeze()
}
