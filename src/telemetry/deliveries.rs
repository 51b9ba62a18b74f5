//! Metrics of what clients are sent and how they answer.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::histogram::CountedHistogram;
use super::integer;
use super::labels::Labelled;
use crate::relay::deliveries::{LagCounts, TypeDeliveries, UNANSWERED_FOR};

pub(super) fn register(registry: &mut Registry, counts: &[TypeDeliveries]) {
    let replies = Labelled::<Counter>::register(registry, "client_replies", "Replies that clients were sent");
    let help = "Bytes of the replies that clients were sent";
    let bytes = Labelled::<Counter>::register(registry, "client_reply_bytes", help);
    let acks = Labelled::<Counter>::register(registry, "client_acks", "Replies that clients ACKed");
    let help = "Client streams that have left a reply unanswered for longer than so many seconds";
    let unanswered = Labelled::<Gauge>::register(registry, "client_streams_unanswered", help);
    let help =
        "From the receipt of the oldest change in a reply, or of the request that it answers, until the reply was sent";
    let sent = Labelled::<CountedHistogram>::register(registry, "client_reply_sent_lag_seconds", help);
    let help = "From the receipt of the oldest change in a reply, or of the request that it answers, until the client ACKed it";
    let acknowledged = Labelled::<CountedHistogram>::register(registry, "client_reply_acked_lag_seconds", help);
    for of in counts {
        let labels = [("type", of.type_name.as_str())];
        replies.at(&labels).inc_by(of.replies);
        bytes.at(&labels).inc_by(of.bytes);
        acks.at(&labels).inc_by(of.acks);
        for (count, seconds) in of.unanswered.iter().zip(UNANSWERED_FOR) {
            unanswered.at(&[labels[0], ("seconds", &seconds.to_string())]).set(integer(*count));
        }
        if of.replies > 0 {
            add_lags(&sent, &of.type_name, &of.sent);
            add_lags(&acknowledged, &of.type_name, &of.acknowledged);
        }
    }
}

fn add_lags(family: &Labelled<CountedHistogram>, type_name: &str, lags: &LagCounts) {
    for (reply, counts) in [("change", &lags.change), ("first", &lags.request)] {
        family.at(&[("type", type_name), ("reply", reply)]).set(counts.clone());
    }
}
