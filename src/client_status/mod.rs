//! Client status (CSDS): the state of each resource, for `grpcdebug` and similar tools.
//!
//! Without matchers, it is the relay's own status as a client of its servers. With matchers, it is that of the clients that match, as known to the
//! relay. One response never has both (CSDS-3). `admin` and `downstream` serve it, and decide who may ask.

mod clients;
mod matchers;
mod own;
mod rows;

use std::sync::Arc;

use prost::Message;
use tokio::sync::Semaphore;

use self::matchers::Matchers;
use self::rows::Rows;
use crate::proto::status::{ClientStatusRequest, ClientStatusResponse};
use crate::relay::Views;
use crate::transcode::Descriptors;

/// Makes client statuses, one at a time for all that serve it: they may be large.
pub(crate) struct ClientStatus {
    views: Arc<Views>,
    descriptors: Descriptors,
    place: Semaphore,
}

/// Why there is no status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    TooLong(String),
    #[error("the response could not be made")]
    Stopped,
}

impl ClientStatus {
    pub(crate) fn new(views: Arc<Views>, descriptors: Descriptors) -> Self {
        Self { views, descriptors, place: Semaphore::new(1) }
    }

    /// Answers an encoded request.
    pub(crate) async fn answer(&self, request: &[u8]) -> Result<Vec<u8>, Failure> {
        if request.len() > LONGEST_REQUEST {
            let length = request.len();
            return Err(Failure::TooLong(format!(
                "the request has {length} bytes: expected at most {LONGEST_REQUEST}"
            )));
        }
        let request = ClientStatusRequest::decode(request).map_err(|error| Failure::Invalid(error.to_string()))?;
        let _place = self.place.acquire().await.map_err(|_| Failure::Stopped)?;
        let rows = Rows::new((!request.exclude_resource_contents).then(|| self.descriptors.clone()));
        let config = match request.node_matchers.is_empty() {
            true => own::configs(&self.views, rows).await,
            false => {
                let matchers = Matchers::of(&request.node_matchers)?;
                clients::configs(&self.views, Arc::new(matchers), rows).await
            }
        };
        config.ok_or(Failure::Stopped)?.map(|config| ClientStatusResponse { config }.encode_to_vec())
    }
}

/// The service, with which the paths of its methods begin.
pub(crate) const SERVICE: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/";
/// The longest request, in bytes.
pub(crate) const LONGEST_REQUEST: usize = 64 << 10;
