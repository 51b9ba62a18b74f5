//! What `/clients`, `/laggards` and `/diff` show of clients, and a client with what it was sent, for dumps and client status.

use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{CountedNames, Holdings};
use weir_core::protocol::view::Snapshot;
use weir_core::xds::Type;

/// One session in a report.
#[derive(Debug, Serialize)]
pub(crate) struct ClientReport {
    pub(crate) session: u64,
    pub(crate) peer: String,
    /// The identity that the client has proved.
    pub(crate) identity: Option<String>,
    pub(crate) node: String,
    pub(crate) user_agent: String,
    pub(crate) view: String,
    pub(crate) variant: &'static str,
    pub(crate) connected_seconds: u64,
    /// The worst state of its types.
    pub(crate) state: SyncState,
    /// For how long the client has lacked something: the longest of its types.
    pub(crate) behind_seconds: Option<f64>,
    /// For how long the client's connection has not taken the data that is on its way.
    pub(crate) unread_seconds: Option<f64>,
    /// Requests for types that are not served here. They get no reply.
    pub(crate) unsupported_requests: usize,
    pub(crate) types: Vec<ClientTypeReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ClientTypeReport {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) state: SyncState,
    pub(crate) wildcard: bool,
    pub(crate) names: usize,
    pub(crate) pending: usize,
    /// Why the pending ones have not been sent.
    pub(crate) waits_for: Option<&'static str>,
    /// The version of the newest reply, and of the newest one that the client ACKed.
    pub(crate) sent_version: Option<String>,
    pub(crate) sent_seconds: Option<f64>,
    pub(crate) acked_version: Option<String>,
    /// For how long the client has lacked something.
    pub(crate) behind_seconds: Option<f64>,
    /// The text of the latest NACK, and whether nothing was ACKed since.
    pub(crate) last_nack: Option<String>,
    pub(crate) nacked: bool,
}

/// How far a client is with a type. Later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum SyncState {
    /// It has accepted the newest state.
    Synced,
    /// Nothing was sent yet.
    NotSent,
    /// Nothing was sent yet, and an active server was not asked for the type yet: the type is tried apart from others first.
    NotAsked,
    /// The server ends streams that request the type.
    Refused,
    /// A reply is unanswered, or something is still to be sent.
    Stale,
    /// It rejected the newest version that it answered.
    Nacked,
}

impl ClientReport {
    pub(crate) fn is_behind(&self) -> bool {
        matches!(self.state, SyncState::Stale | SyncState::Nacked)
    }

    /// Returns for how long the client has lacked something of the type.
    pub(crate) fn lag(&self) -> f64 {
        self.behind_seconds.into_iter().chain(self.unread_seconds).fold(0.0, f64::max)
    }
}

impl SyncState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Synced => "SYNCED",
            Self::NotSent => "NOT_SENT",
            Self::NotAsked => "NOT_ASKED",
            Self::Refused => "REFUSED",
            Self::Stale => "STALE",
            Self::Nacked => "NACKED",
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("invalid state: expected synced, not_sent, not_asked, refused, stale or nacked")]
pub(crate) struct UnknownState;

impl FromStr for SyncState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let all = [Self::Synced, Self::NotSent, Self::NotAsked, Self::Refused, Self::Stale, Self::Nacked];
        all.into_iter().find(|state| state.name().eq_ignore_ascii_case(text)).ok_or(UnknownState)
    }
}

/// A filter for clients, and the place of a page.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientQuery {
    /// A part of the node's id.
    pub(crate) node: Option<String>,
    /// A part of the identity that the client has proved.
    pub(crate) identity: Option<String>,
    pub(crate) view: Option<String>,
    /// Only this type is shown, and only clients that have requested it.
    pub(crate) kind: Option<Type>,
    /// The client's state, or that of `kind` if it is given.
    pub(crate) state: Option<SyncState>,
    pub(crate) limit: usize,
    /// The last session of the page before.
    pub(crate) after: u64,
}

/// One page of clients, by the numbers of their sessions.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ClientPage {
    pub(crate) clients: Vec<ClientReport>,
    /// How many streams are open, whatever the filter.
    pub(crate) open: usize,
    /// The value of `after` for the next page.
    pub(crate) next: Option<u64>,
}

impl ClientQuery {
    /// Whether the filter accepts a client, as far as that shows without its session.
    pub(crate) fn takes(&self, node: &str, identity: Option<&str>, view: &str) -> bool {
        let has = |part: &Option<String>, text: &str| part.as_ref().is_none_or(|part| text.contains(part.as_str()));
        has(&self.node, node)
            && has(&self.identity, identity.unwrap_or_default())
            && self.view.as_ref().is_none_or(|wanted| wanted == view)
    }

    /// Narrows a report to the requested type. Returns `None` if the filter rejects the client.
    pub(crate) fn narrow(&self, mut client: ClientReport) -> Option<ClientReport> {
        if let Some(kind) = &self.kind {
            client.types.retain(|of| of.kind == kind.name());
            let of = client.types.first()?;
            (client.state, client.behind_seconds) = (of.state, of.behind_seconds);
        }
        self.state.is_none_or(|wanted| wanted == client.state).then_some(client)
    }
}

/// What one client was sent and has accepted, compared with the present state for it.
#[derive(Debug, Serialize)]
pub(crate) struct DifferenceReport {
    pub(crate) session: u64,
    pub(crate) node: String,
    pub(crate) view: String,
    pub(crate) types: Vec<TypeDifference>,
}

/// Names are the first hundred of each list, in order.
#[derive(Debug, Serialize)]
pub(crate) struct TypeDifference {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// They exist, and the client was not sent them.
    pub(crate) missing: NameList,
    /// The client was sent an earlier version.
    pub(crate) outdated: NameList,
    /// They do not exist, and the client was not sent the removal.
    pub(crate) surplus: NameList,
    /// The client subscribes to them, and nothing is known of them.
    pub(crate) unknown: NameList,
    /// The version of a reply that the client has not answered.
    pub(crate) unacked_version: Option<String>,
    /// The version that it rejected, if it has accepted nothing newer, and the resources that its reason quotes.
    pub(crate) nacked_version: Option<String>,
    pub(crate) suspected: Vec<String>,
    /// The version that it accepted last.
    pub(crate) acked_version: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct NameList {
    pub(crate) count: usize,
    pub(crate) names: Vec<String>,
}

impl From<CountedNames> for NameList {
    fn from(CountedNames { first, count }: CountedNames) -> Self {
        Self { count, names: first.iter().map(ToString::to_string).collect() }
    }
}

/// A client, and what it was sent.
pub(crate) struct ClientHoldings {
    pub(crate) session: u64,
    /// The `id` of its node.
    pub(crate) node_id: String,
    pub(crate) peer: String,
    /// The hash of its sharing key.
    pub(crate) view: String,
    pub(crate) holdings: Holdings,
    /// The state of its view, no older than what it was sent.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) now: Moment,
}

/// A session whose client can be shown. This takes the session's lock, and no other.
pub(crate) trait HoldingsSource: Send + Sync {
    fn node_id(&self) -> &str;
    fn holdings(&self) -> ClientHoldings;
}

#[cfg(test)]
mod tests {
    use weir_core::xds::{TypeTable, type_by_word};

    use super::*;

    fn of_type(kind: &Type, state: SyncState, behind_seconds: Option<f64>) -> ClientTypeReport {
        ClientTypeReport {
            kind: kind.name().into(),
            state,
            wildcard: true,
            names: 0,
            pending: 0,
            waits_for: None,
            sent_version: None,
            sent_seconds: None,
            acked_version: None,
            behind_seconds,
            last_nack: None,
            nacked: false,
        }
    }

    #[test]
    fn a_client_is_shown_by_the_type_in_question_and_not_by_its_worst_one() {
        let table = TypeTable::new();
        let [clusters, routes, listeners] =
            ["clusters", "routes", "listeners"].map(|word| type_by_word(&table, word).unwrap());
        let client = || ClientReport {
            session: 1,
            peer: String::new(),
            identity: None,
            node: String::new(),
            user_agent: String::new(),
            view: String::new(),
            variant: "delta",
            connected_seconds: 100,
            state: SyncState::Nacked,
            behind_seconds: Some(70.0),
            unread_seconds: Some(2.0),
            unsupported_requests: 0,
            types: vec![
                of_type(&clusters, SyncState::Nacked, Some(70.0)),
                of_type(&routes, SyncState::Stale, Some(1.0)),
            ],
        };
        let narrowed = |kind: Option<&Type>, state| {
            let client = ClientQuery { kind: kind.cloned(), state, ..ClientQuery::default() }.narrow(client())?;
            Some((client.state, client.lag(), client.types.len()))
        };
        assert_eq!(narrowed(None, None), Some((SyncState::Nacked, 70.0, 2)));
        assert_eq!(narrowed(None, Some(SyncState::Stale)), None);
        for state in [None, Some(SyncState::Stale)] {
            assert_eq!(narrowed(Some(&routes), state), Some((SyncState::Stale, 2.0, 1)), "it reads nothing for longer");
        }
        assert_eq!(narrowed(Some(&routes), Some(SyncState::Nacked)), None);
        assert_eq!(narrowed(Some(&listeners), None), None, "it has not requested that type");
    }

    #[test]
    fn a_filter_takes_a_part_of_a_node_or_an_identity_and_the_whole_name_of_a_view() {
        let text = |text: &str| Some(text.to_owned());
        let query = |node: &str, identity: &str, view: &str| {
            let of = |part: &str| text(part).filter(|part| !part.is_empty());
            ClientQuery { node: of(node), identity: of(identity), view: of(view), ..ClientQuery::default() }
        };
        let takes = |query: ClientQuery| query.takes("envoy-7", Some("spiffe://a/b"), "abc");
        let cases = [(("voy", "", ""), true), (("", "//a", ""), true), (("", "", "abc"), true), (("", "", ""), true)];
        let others =
            [(("b", "", ""), false), (("", "voy", ""), false), (("", "", "ab"), false), (("voy", "c", ""), false)];
        for ((node, identity, view), expected) in cases.into_iter().chain(others) {
            assert_eq!(takes(query(node, identity, view)), expected, "{node} {identity} {view}");
        }
        assert!(!query("", "a", "").takes("a", None, "a"), "who has proved nothing has no identity");
    }
}
