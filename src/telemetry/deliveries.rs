//! Metrics of what clients are sent and how they answer.

use super::metric::{Histogram, Metric};
use super::page::Page;
use super::table::*;
use crate::relay::deliveries::{LagCounts, TypeDeliveries, UNANSWERED_FOR};

pub(super) fn add(page: &mut Page, counts: &[TypeDeliveries]) {
    for of in counts {
        let kind = of.type_name.as_str();
        page.add(CLIENT_REPLIES, [kind], of.replies);
        page.add(CLIENT_REPLY_BYTES, [kind], of.bytes);
        page.add(CLIENT_ACKS, [kind], of.acks);
        for (count, seconds) in of.unanswered.iter().zip(UNANSWERED_FOR) {
            page.count(CLIENT_STREAMS_UNANSWERED, [kind, &seconds.to_string()], *count);
        }
        if of.replies > 0 {
            add_lags(page, CLIENT_REPLY_SENT_LAG_SECONDS, kind, &of.sent);
            add_lags(page, CLIENT_REPLY_ACKED_LAG_SECONDS, kind, &of.acknowledged);
        }
    }
}

fn add_lags(page: &mut Page, metric: Metric<Histogram, 2>, kind: &str, lags: &LagCounts) {
    page.add(metric, [kind, "change"], lags.change.clone());
    page.add(metric, [kind, "first"], lags.request.clone());
}
