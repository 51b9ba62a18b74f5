//! What a tap reports of one client: a glance at each request and reply. A glance has a few names and numbers, whatever the size of the message. On
//! demand it also has a handle of the whole message, which is formatted elsewhere.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use weir_core::proto::Request;
use weir_core::proto::discovery::Status;
use weir_core::protocol::session::{Reply, Variant};
use weir_core::xds::{Name, Type, truncate};

#[derive(Debug, Clone)]
pub(crate) struct TapEvent {
    pub(crate) at: SystemTime,
    pub(crate) session: u64,
    pub(crate) what: TapWhat,
}

#[derive(Debug, Clone)]
pub(crate) enum TapWhat {
    Opened(OpenedStream),
    Request(Box<RequestGlance>),
    Reply(Box<ReplyGlance>),
    /// A poll whose client is up to date.
    Unchanged,
    /// The end of the stream or poll, with the relay's text to the client.
    Ended {
        /// The status of gRPC, or of HTTP for a poll.
        status: Option<i32>,
        reason: String,
    },
}

/// A client stream from its start.
#[derive(Debug, Clone)]
pub(crate) struct OpenedStream {
    pub(crate) session: u64,
    pub(crate) node: String,
    pub(crate) peer: String,
    pub(crate) view: String,
    pub(crate) variant: &'static str,
}

/// The first of a list of names, and how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NameList {
    pub(crate) count: usize,
    pub(crate) first: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct RequestGlance {
    pub(crate) variant: Variant,
    pub(crate) type_url: String,
    /// The nonce of the reply that it answers.
    pub(crate) nonce: String,
    pub(crate) version: String,
    /// In SotW all names, in delta the new ones.
    pub(crate) names: NameList,
    pub(crate) unsubscribed: NameList,
    /// The number of resources whose versions it states.
    pub(crate) stated: usize,
    /// Why it rejects a reply, in the client's text.
    pub(crate) error: Option<(i32, String)>,
    /// The whole request as it came.
    pub(crate) body: Option<Bytes>,
}

#[derive(Debug, Clone)]
pub(crate) struct ReplyGlance {
    pub(crate) kind: Type,
    pub(crate) variant: Variant,
    pub(crate) nonce: u64,
    /// `None` in delta, where each resource has a version of its own.
    pub(crate) version: Option<String>,
    pub(crate) resources: NameList,
    /// Removed names, including those with constraints.
    pub(crate) removed: NameList,
    /// Aliases that lead to nothing.
    pub(crate) unresolved: NameList,
    pub(crate) errors: NameList,
    /// Resources whose TTL is extended.
    pub(crate) heartbeats: NameList,
    /// Its bytes as they are sent.
    pub(crate) bytes: usize,
    /// The whole reply.
    pub(crate) body: Option<Arc<Reply>>,
}

impl TapEvent {
    pub(super) fn now(session: u64, what: TapWhat) -> Self {
        Self { at: SystemTime::now(), session, what }
    }

    /// Returns the memory of its whole message.
    pub(super) fn body_bytes(&self) -> usize {
        match &self.what {
            TapWhat::Request(request) => request.body.as_ref().map_or(0, Bytes::len),
            TapWhat::Reply(reply) => reply.body.as_ref().map_or(0, |_| reply.bytes),
            TapWhat::Opened(_) | TapWhat::Unchanged | TapWhat::Ended { .. } => 0,
        }
    }

    /// Drops its whole message.
    pub(super) fn drop_body(&mut self) {
        match &mut self.what {
            TapWhat::Request(request) => request.body = None,
            TapWhat::Reply(reply) => reply.body = None,
            TapWhat::Opened(_) | TapWhat::Unchanged | TapWhat::Ended { .. } => {}
        }
    }
}

impl NameList {
    fn of<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        Self::default().with(names)
    }

    fn of_names(names: &[Name]) -> Self {
        Self::of(names.iter().map(Name::as_str))
    }

    fn with<'a>(mut self, names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        self.count += names.len();
        let room = NAMES.saturating_sub(self.first.len());
        self.first.extend(names.take(room).map(|name| truncate(name, TEXT_BYTES)));
        self
    }
}

impl RequestGlance {
    /// `stated` is the number of resources whose versions the request states, if these were taken out of it.
    pub(in crate::relay) fn of(request: &Request, stated: usize) -> Self {
        let text = |text: &str| truncate(text, TEXT_BYTES);
        let error = |status: &Option<Status>| status.as_ref().map(|of| (of.code, truncate(&of.message, REASON_BYTES)));
        let names = |names: &[String]| NameList::of(names.iter().map(String::as_str));
        match request {
            Request::Sotw(of) => Self {
                variant: Variant::Sotw,
                type_url: text(&of.type_url),
                nonce: text(&of.response_nonce),
                version: text(&of.version_info),
                names: names(&of.resource_names),
                unsubscribed: NameList::default(),
                stated: 0,
                error: error(&of.error_detail),
                body: None,
            },
            Request::Delta(of) => Self {
                variant: Variant::Delta,
                type_url: text(&of.type_url),
                nonce: text(&of.response_nonce),
                version: String::new(),
                names: names(&of.resource_names_subscribe),
                unsubscribed: names(&of.resource_names_unsubscribe),
                stated: stated + of.initial_resource_versions.len(),
                error: error(&of.error_detail),
                body: None,
            },
        }
    }
}

impl ReplyGlance {
    /// `whole`: keeps a handle of the complete reply.
    pub(in crate::relay) fn of(reply: &Reply, variant: Variant, whole: bool) -> Self {
        let Reply { resources, removed, constrained, unresolved, errors, heartbeats, .. } = reply;
        let body = whole.then(|| Arc::new(Reply { progress: None, ..reply.clone() })); // it keeps no snapshot
        Self {
            kind: reply.kind.clone(),
            variant,
            nonce: reply.nonce,
            version: (variant == Variant::Sotw).then(|| reply.version.to_string()),
            resources: NameList::of(resources.iter().map(|resource| resource.name.as_str())),
            removed: NameList::of_names(removed).with(constrained.iter().map(|(name, _)| name.as_str())),
            unresolved: NameList::of_names(unresolved),
            errors: NameList::of(errors.iter().map(|(name, _)| name.as_str())),
            heartbeats: NameList::of(heartbeats.iter().map(|beat| beat.name.as_str())),
            bytes: 0,
            body,
        }
    }
}

/// How many names of a message are shown.
const NAMES: usize = 20;
/// How many bytes of a name, a nonce or a version are shown.
const TEXT_BYTES: usize = 512;
/// How much of a reason is kept until it is shown.
const REASON_BYTES: usize = 4096 + 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_core::protocol::session::Heartbeat;
    use weir_core::xds::{ContentHash, TypeTable};

    use super::*;

    #[test]
    fn every_name_of_a_reply_is_counted() {
        let beat = Heartbeat { name: "beat".into(), version: ContentHash::from_bytes([1; 16]), ttl: Duration::ZERO };
        let reply = Reply {
            removed: vec!["gone".into(); NAMES],
            constrained: vec![("constrained".into(), Bytes::new())],
            unresolved: vec!["alias".into()],
            heartbeats: vec![beat],
            ..Reply::sample(TypeTable::new().clusters(), Vec::new())
        };
        let glance = ReplyGlance::of(&reply, Variant::Delta, false);
        assert_eq!((glance.removed.count, glance.removed.first.len()), (NAMES + 1, NAMES));
        let list = |name: &str| NameList { count: 1, first: vec![name.to_owned()] };
        assert_eq!((glance.unresolved, glance.heartbeats), (list("alias"), list("beat")));
        let few = Reply { removed: vec!["gone".into()], ..reply };
        assert_eq!(ReplyGlance::of(&few, Variant::Delta, false).removed.first, ["gone", "constrained"]);
    }
}
