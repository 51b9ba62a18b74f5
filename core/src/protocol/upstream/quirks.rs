//! How one server differs from others. By default it follows the protocol.

use std::time::Duration;

use crate::protocol::upstream::options::UpstreamOptions;
use crate::protocol::view::{Class, Evidence, Update};
use crate::xds::{Name, Type};

/// The differences of one server, from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerQuirks {
    /// The server is sent the node in every request, as Envoy does by default, and not in the first one only (UP-1). Some servers group clients
    /// by the node of each request.
    pub node_in_every_request: bool,
    /// The server honors `initial_resource_versions`. Otherwise it is sent none, and what it does not send again for some time after a reconnect
    /// is removed (UP-16).
    pub supports_initial_resource_versions: bool,
    /// The server reads an empty SotW list of names as no names. Otherwise it is sent a name that no resource has (UP-9).
    pub supports_empty_subscription: bool,
    /// Clients keep resources that the server deletes (XLAT-20). The deletion is an answer all the same, which confirms the cached resource.
    pub ignore_deletions: bool,
    /// What it means if the server does not mention a requested name in time.
    pub on_resource_timeout: OnResourceTimeout,
    /// A resource that the server reports as not allowed is removed, even if it is cached (A88, `fail_on_data_errors`).
    pub fail_on_data_errors: bool,
    /// Whether the first response to `*` is the complete set.
    pub initial_set: InitialSet,
    /// Weir polls each type separately, so that a response for one type is no evidence about another (REST).
    pub per_type_liveness: bool,
    /// Brakes do not hold what the server removes, because it is a view that has brakes itself.
    pub skips_brakes: bool,
    /// The server may end the stream because of one type, so unknown types are tried apart.
    pub tries_types_apart: bool,
    /// The length of the longest request that the server is sent, in bytes.
    pub max_request_bytes: usize,
}

/// How a delta server sends a `*` set to a client without state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InitialSet {
    /// Unknown. The first response is served to clients without state, unless this server was seen to send sets in pieces.
    #[default]
    Auto,
    /// In one response (FS-4): what is not in it does not exist.
    OneResponse,
    /// In any number of responses.
    Pieces,
}

/// What a server's silence about a name means after the resource timer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnResourceTimeout {
    /// The resource does not exist (XLAT-15).
    #[default]
    Absent,
    /// A transient error (A88, `resource_timer_is_transient_error`).
    TransientError,
    /// Nothing. The server is the hub, which reports a name that does not exist; until then the name is unknown (XLAT-16).
    Unknown,
}

impl ServerQuirks {
    /// Whether the server may answer a question for the end of a set. The hub and polled servers mark the end themselves.
    pub(super) fn may_answer_for_end(&self) -> bool {
        let marks_end = self.is_hub() || self.per_type_liveness;
        self.supports_initial_resource_versions && self.initial_set == InitialSet::Auto && !marks_end
    }

    /// Returns the update for this server's report that a name has no resource. No other function decides that.
    pub(super) fn reported_absence(&self, kind: &Type, class: Class, key: Name) -> Update {
        let kind = kind.clone();
        match self.ignore_deletions {
            true => Update::Kept { kind, class, key },
            false => Update::Absent { kind, class, key, evidence: Evidence::Reported },
        }
    }

    /// Returns for how long the server may be silent about a name. `None` if its silence never counts.
    pub(super) fn resource_timer(&self, options: &UpstreamOptions) -> Option<Duration> {
        match self.on_resource_timeout {
            OnResourceTimeout::Absent => Some(options.resource_timer),
            OnResourceTimeout::TransientError => Some(options.resource_timer * 2),
            OnResourceTimeout::Unknown => None,
        }
    }

    /// Whether the server is the hub: it is alive as long as its stream is open, and reports itself what is absent, and the ends of collections.
    pub(super) fn is_hub(&self) -> bool {
        self.on_resource_timeout == OnResourceTimeout::Unknown
    }
}

impl Default for ServerQuirks {
    fn default() -> Self {
        Self {
            node_in_every_request: true,
            supports_initial_resource_versions: true,
            supports_empty_subscription: true,
            ignore_deletions: false,
            on_resource_timeout: OnResourceTimeout::Absent,
            fail_on_data_errors: false,
            initial_set: InitialSet::Auto,
            per_type_liveness: false,
            skips_brakes: false,
            tries_types_apart: false,
            max_request_bytes: MAX_REQUEST_BYTES,
        }
    }
}

/// Less than the 4 MiB that gRPC servers accept by default.
const MAX_REQUEST_BYTES: usize = 3 << 20;
