//! The entries of a client status, as far as they fit into one response.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;
use weir_core::proto::Any;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::view::TableEntry;
use weir_core::xds::{Name, Type};

use super::Failure;
use crate::proto::status::{ClientConfig, GenericXdsConfig, StatusNode, StatusTime, UpdateFailureState};
use crate::transcode::Descriptors;

/// Entries with a limit on their size.
pub(super) struct Rows {
    /// `None` if contents are not requested.
    descriptors: Option<Descriptors>,
    configs: Vec<ClientConfig>,
    bytes: usize,
}

impl Rows {
    pub(super) fn new(descriptors: Option<Descriptors>) -> Self {
        Self { descriptors, configs: Vec::new(), bytes: 0 }
    }

    /// Begins the entries of one client.
    pub(super) fn begin(&mut self, node: StatusNode, client_scope: String) -> Result<(), Failure> {
        let config = ClientConfig { node: Some(node), generic_xds_configs: Vec::new(), client_scope };
        self.count(config.encoded_len())?;
        self.configs.push(config);
        Ok(())
    }

    /// Adds an entry to the client that was begun last.
    pub(super) fn add(&mut self, row: GenericXdsConfig) -> Result<(), Failure> {
        self.count(row.encoded_len())?;
        if let Some(last) = self.configs.last_mut() {
            last.generic_xds_configs.push(row);
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bytes += bytes + OF_FRAME;
        if self.bytes <= MOST_BYTES {
            return Ok(());
        }
        let reason = format!(
            "the status is longer than {MOST_BYTES} bytes: use node_matchers for fewer clients, or exclude_resource_contents"
        );
        Err(Failure::TooLong(reason))
    }

    pub(super) fn done(self) -> Vec<ClientConfig> {
        self.configs
    }

    /// Returns an entry with the view's resource under a name. A secret's content is not shown (CSDS-8).
    pub(super) fn row(&self, kind: &Type, name: &Name, entry: Option<&TableEntry>, now: Moment) -> GenericXdsConfig {
        let type_url = kind.url().into_owned();
        let mut row = GenericXdsConfig { type_url, name: name.to_string(), ..GenericXdsConfig::default() };
        let Some((entry, resource)) = entry.and_then(|entry| Some((entry, entry.resource()?))) else { return row };
        row.version_info = resource.full.to_string();
        row.last_updated = Some(time(now - entry.since));
        row.xds_config = self.descriptors.as_ref().filter(|_| !kind.is_secret()).and_then(|descriptors| {
            // Without a descriptor, secrets in the content cannot be found.
            let value = descriptors().redacted(kind.name(), resource.body.bytes()).ok()?;
            Some(Any { type_url: row.type_url.clone(), value })
        });
        row
    }
}

/// Returns the entry for a failed update.
pub(super) fn failure(details: &str, version_info: &str, ago: Option<Duration>) -> UpdateFailureState {
    let (details, version_info) = (details.to_owned(), version_info.to_owned());
    UpdateFailureState { last_update_attempt: ago.map(time), details, version_info }
}

fn time(ago: Duration) -> StatusTime {
    let at = SystemTime::now().checked_sub(ago).unwrap_or(UNIX_EPOCH).duration_since(UNIX_EPOCH).unwrap_or_default();
    StatusTime { seconds: i64::try_from(at.as_secs()).unwrap_or(i64::MAX), nanos: at.subsec_nanos() as i32 }
}

/// The size that gRPC clients accept by default, with room for the frame.
const MOST_BYTES: usize = (4 << 20) - 1024;
/// The length and the tag of an entry.
const OF_FRAME: usize = 8;
