//! The reports that a control plane orders.

use std::time::Duration;

use bytes::Bytes;
use prost::{DecodeError, Message};

use crate::proto::loads::LoadStatsResponse;

/// An order, encoded and decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    encoded: Bytes,
    response: LoadStatsResponse,
}

impl Order {
    /// Decodes what a server sent.
    pub fn read(encoded: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { response: LoadStatsResponse::decode(encoded.clone())?, encoded })
    }

    /// The order for clients that support all of it.
    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// Whether every cluster is ordered, whatever the list contains. Only clients with the feature for it may be sent this (LRS-2).
    pub fn is_for_all_clusters(&self) -> bool {
        self.response.send_all_clusters
    }

    /// The same order with the clusters listed, for clients without that feature (LRS-17).
    pub fn listing(&self, clusters: Vec<String>) -> Bytes {
        LoadStatsResponse { clusters, send_all_clusters: false, ..self.response.clone() }.encode_to_vec().into()
    }

    /// Whether loads of each endpoint are ordered too (LRS-19).
    pub fn endpoints(&self) -> bool {
        self.response.report_endpoint_granularity
    }

    /// How often the server wants a report.
    pub fn interval(&self) -> Duration {
        let requested = self.response.load_reporting_interval.unwrap_or_default();
        Duration::try_from(requested).unwrap_or_default().max(SHORTEST)
    }
}

/// The minimum of gRPC (LRS-5).
const SHORTEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lrs_2_an_order_is_for_all_clusters_only_if_it_says_so_and_one_that_is_listed_says_so_no_more() {
        let read = |of: LoadStatsResponse| Order::read(of.encode_to_vec().into()).unwrap();
        let some = LoadStatsResponse { clusters: vec!["a".into()], ..Default::default() };
        assert!(!read(some.clone()).is_for_all_clusters());
        let all = read(LoadStatsResponse { send_all_clusters: true, ..Default::default() });
        assert!(all.is_for_all_clusters());
        assert_eq!(LoadStatsResponse::decode(all.listing(vec!["a".into()])).unwrap(), some);
    }
}
