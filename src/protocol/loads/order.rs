//! What a control plane wants reported.

use std::time::Duration;

use bytes::Bytes;
use prost::{DecodeError, Message};

use crate::proto::loads::LoadStatsResponse;

/// An order as it came, and what it says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Order {
    encoded: Bytes,
    response: LoadStatsResponse,
}

impl Order {
    pub(crate) fn read(encoded: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { response: LoadStatsResponse::decode(encoded.clone())?, encoded })
    }

    /// For clients that can do whatever an order may ask.
    pub(crate) fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// Every cluster is wanted, whatever the list says. Only clients with a feature for it may be told so (LRS-2).
    pub(crate) fn is_for_all_clusters(&self) -> bool {
        self.response.send_all_clusters
    }

    /// The same for a client that must be told each cluster by name (LRS-17).
    pub(crate) fn listing(&self, clusters: Vec<String>) -> Bytes {
        LoadStatsResponse { clusters, send_all_clusters: false, ..self.response.clone() }.encode_to_vec().into()
    }

    /// Loads are wanted of each endpoint too (LRS-19).
    pub(crate) fn endpoints(&self) -> bool {
        self.response.report_endpoint_granularity
    }

    pub(crate) fn interval(&self) -> Duration {
        let requested = self.response.load_reporting_interval.unwrap_or_default();
        Duration::try_from(requested).unwrap_or_default().max(SHORTEST)
    }
}

/// As gRPC has it (LRS-5).
const SHORTEST: Duration = Duration::from_secs(1);
