//! Makes the requests of one type in either variant: keeps what the server was sent on this opening, and what is still to be sent.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use prost::Message;

use super::given::{Statement, UNKNOWN};
use super::nack_pace::NackPace;
use super::name_states::NameStates;
use super::quirks::ServerQuirks;
use super::request_context::RequestContext;
use super::request_room::{RequestRoom, field_bytes, name_bytes};
use super::wanted::Wanted;
use crate::proto::code::INVALID_ARGUMENT;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::upstream::options::UpstreamOptions;
use crate::protocol::view::Class;
use crate::xds::{Name, Type, WILDCARD};

#[derive(Debug, Default)]
pub(super) struct RequestProgress {
    nonce: String,
    pending_acks: VecDeque<PendingAck>,
    nacks: NackPace,
    /// The first request of the type was made on this opening.
    opened: bool,
    /// When the first request was written.
    written: Option<Moment>,
    /// The server was sent a name on this stream, be it `*`, so an empty list means no names (SOTW-38).
    named: bool,
    wildcard_sent: bool,
    /// The first request of this opening stated the versions of cached resources.
    stated: bool,
    /// Changes that are still to be sent. A name in both sets was unsubscribed and is wanted again: each change gets a request of its own.
    subscribe: BTreeSet<Name>,
    unsubscribe: BTreeSet<Name>,
    /// Those of `subscribe` that are subscribed already, and that the server has to send once more.
    again: BTreeSet<Name>,
    wildcard_dropped: bool,
    /// The type is requested again on the next opening. Until then `*` is not requested: this opening has requested it before, so a response may
    /// belong to that request, and the server may leave out what it has sent since then.
    waits: bool,
    /// The server is polled: each response answers one request, in full.
    polled: bool,
    /// A change is still to be sent.
    changed: bool,
    /// No change is sent before this: changes until then are merged (UP-5).
    next_at: Moment,
    /// In SotW, the bytes of the names in the last list.
    listed: usize,
}

/// An ACK, or a NACK with its text.
#[derive(Debug)]
struct PendingAck {
    nonce: String,
    /// SotW: the version that was accepted last, after that response.
    version: String,
    error: Option<String>,
}

impl RequestProgress {
    /// Starts for a type of which it is not known what this opening has requested.
    pub(crate) fn unknown(class: Class) -> Self {
        Self { opened: class == Class::Wildcard, waits: true, ..Self::default() }
    }

    /// Returns what the next request of the type needs to know if nothing of the type is wanted for a while. `None` if that is nothing.
    pub(crate) fn remembered(&self) -> Option<Self> {
        let Self { opened, written, named, waits, next_at, .. } = *self;
        (opened && !self.polled).then(|| {
            let nonce = self.nonce.clone();
            Self { nonce, opened, written, named, waits, next_at, ..Self::default() }
        })
    }

    /// Records a response that came while nothing of the type was wanted.
    pub(crate) fn note_nonce(&mut self, nonce: &str) {
        nonce.clone_into(&mut self.nonce);
    }

    /// Decides when the answer to a SotW response is sent. See [`NackPace`].
    pub(crate) fn pace_nack(&mut self, version: &str, is_nack: bool, now: Moment) {
        self.nacks.on_answer(version, is_nack && !self.polled, now);
    }

    /// Queues the ACK or NACK of a response. If the queue is full, because the server reads none of them, the oldest is dropped.
    pub(crate) fn queue_ack(&mut self, nonce: String, version: &str, error: Option<String>, options: &UpstreamOptions) {
        if self.pending_acks.len() >= options.pending_answers {
            self.pending_acks.pop_front();
        }
        self.pending_acks.push_back(PendingAck { nonce, version: version.to_owned(), error });
    }

    pub(crate) fn is_opened(&self) -> bool {
        self.opened
    }

    /// Whether the first request of this opening stated the versions of cached resources.
    pub(crate) fn has_stated(&self) -> bool {
        self.stated
    }

    /// Returns when the first request of this opening was written.
    pub(crate) fn written(&self) -> Option<Moment> {
        self.written
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    pub(crate) fn is_acked(&self) -> bool {
        !self.changed && self.pending_acks.is_empty()
    }

    /// Whether the type is to be requested on a new opening.
    pub(crate) fn waits_for_opening(&self) -> bool {
        self.waits
    }

    /// Whether a change or an ACK is to be sent now.
    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.changed && now >= self.next_at || !self.pending_acks.is_empty() && self.nacks.is_due(now)
    }

    /// Whether an ACK is to be sent in a request without changes.
    pub(crate) fn has_ack(&self) -> bool {
        !self.pending_acks.is_empty()
    }

    /// Returns when a pending change may be sent, or a NACK that is held back. In SotW a change goes at once with an ACK.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        let change = self.changed.then_some(self.next_at);
        let next = match self.pending_acks.is_empty() {
            true => change,
            false => self.nacks.held_until().and_then(|held| earliest(Some(held), change)),
        };
        next.filter(|_| self.opened)
    }

    pub(crate) fn last_sent_at(&self) -> Moment {
        self.next_at
    }

    /// Records that what is wanted has changed.
    pub(crate) fn on_change(&mut self) {
        self.changed = true;
    }

    /// Records that no change is left to send.
    pub(crate) fn drop_change(&mut self) {
        self.changed = false;
    }

    /// Drops the pending changes, because the first request will have everything. Returns the names that were to be subscribed.
    pub(crate) fn take_unsent(&mut self) -> BTreeSet<Name> {
        self.changed = false;
        std::mem::take(&mut self.subscribe)
    }

    pub(crate) fn subscribe(&mut self, name: Name) {
        self.subscribe.insert(name);
    }

    /// Requests a name once more that is subscribed already.
    pub(crate) fn subscribe_again(&mut self, name: Name) {
        if self.opened && self.subscribe.insert(name.clone()) {
            self.again.insert(name);
        }
    }

    pub(crate) fn unsubscribe(&mut self, name: Name) {
        if self.again.remove(&name) || !self.subscribe.contains(&name) {
            self.unsubscribe.insert(name.clone());
        }
        self.subscribe.remove(&name);
    }

    /// Records whether `*` is wanted.
    pub(crate) fn want_wildcard(&mut self, on: bool) {
        if !on {
            self.wildcard_dropped = self.wildcard_sent;
        }
        self.waits = on && self.opened && !self.polled;
        self.changed = self.wildcard_dropped || on && !self.waits;
    }

    pub(crate) fn on_written(&mut self, now: Moment) {
        self.written.get_or_insert(now);
    }

    /// Records that a request was made. If it `had_change`, the next change has to wait. Names that had no room follow at once.
    pub(crate) fn on_made(&mut self, had_change: bool, context: &RequestContext) {
        self.polled = context.quirks.per_type_liveness;
        if self.changed {
            self.next_at = self.next_at.min(context.now);
        } else if had_change {
            self.next_at = context.now + context.options.interest_window.max(self.pause());
        }
    }

    /// Returns how long the next list waits. While the view counts the many names of a client, each list would be as long as all names so far.
    fn pause(&self) -> Duration {
        let bytes = if self.listed < SHORT_LIST { 0 } else { self.listed };
        Duration::from_micros((bytes / LISTED_IN_A_MICROSECOND) as u64)
    }

    /// Handles the end of the stream: nothing counts as sent, and its ACKs are dropped.
    pub(crate) fn disconnect(&mut self) {
        *self = Self { next_at: self.next_at, ..Self::default() };
    }

    pub(crate) fn sotw_request(
        &mut self,
        context: &RequestContext,
        is_first: bool,
        accepted: &str,
        wanted: &Wanted,
        names: &mut NameStates,
    ) -> DiscoveryRequest {
        self.again.clear(); // a list cannot request a name once more
        if self.changed {
            self.nacks.release(); // a change needs the newest nonce
        }
        let pending = self.pending_acks.pop_front();
        if let Some(pending) = &pending {
            self.nonce.clone_from(&pending.nonce);
        }
        let is_set = wanted.class() == Class::Wildcard;
        // If a response need not be complete, a server could conclude from the version that Weir has everything (UP-13).
        let unsafe_to_state = is_first && !(is_set && context.kind.info().full_state);
        let version = pending.as_ref().map_or(accepted, |pending| &pending.version);
        let mut request = DiscoveryRequest {
            version_info: if unsafe_to_state { String::new() } else { version.to_owned() },
            type_url: context.type_url(),
            response_nonce: self.nonce.clone(),
            error_detail: pending.and_then(|pending| pending.error).map(nack_status),
            ..DiscoveryRequest::default()
        };
        request.resource_names = match is_set {
            true => self.wildcard_list(context.kind, is_first, wanted.has_wildcard() && !self.waits),
            false => self.name_list(is_first, context.quirks, wanted, names),
        };
        self.listed = request.resource_names.iter().map(String::len).sum();
        self.opened = true;
        request
    }

    /// Returns the list of a request for `*`. `*` alone is requested in the form that every server knows (UP-7). It is unsubscribed by way of
    /// its explicit name: to a server that was never sent a name, an empty list still means everything (UP-8).
    fn wildcard_list(&mut self, kind: &Type, is_first: bool, is_wanted: bool) -> Vec<String> {
        let legacy_form = kind.info().empty_first.is_wildcard() && !self.named;
        if self.wildcard_dropped && !self.named {
            self.named = true;
            return vec![WILDCARD.into()];
        }
        if std::mem::take(&mut self.wildcard_dropped) {
            self.wildcard_sent = false;
            if !is_wanted {
                self.changed = false;
            }
            return Vec::new();
        }
        self.changed = false;
        if !is_wanted {
            return Vec::new();
        }
        self.wildcard_sent = true;
        if legacy_form && (is_first || !self.named) {
            return Vec::new();
        }
        self.named = true;
        vec![WILDCARD.into()]
    }

    fn name_list(
        &mut self,
        is_first: bool,
        quirks: &ServerQuirks,
        wanted: &Wanted,
        names: &mut NameStates,
    ) -> Vec<String> {
        if is_first {
            self.subscribe = wanted.names().clone();
        }
        let twice = !is_first && have_any_in_common(&self.subscribe, &self.unsubscribe);
        let left = std::mem::take(&mut self.unsubscribe);
        if !is_first {
            names.leave(left);
        }
        let subscribed = |name: &&Name| !wanted.globs().has(name) && (!twice || !self.subscribe.contains(*name));
        let mut list: Vec<_> = wanted.names().iter().filter(subscribed).map(|name| name.as_str().to_owned()).collect();
        if list.is_empty() && !quirks.supports_empty_subscription {
            list.push(NOTHING.into());
        }
        if !twice {
            names.hand_out(std::mem::take(&mut self.subscribe), is_first);
            self.changed = false;
        }
        list
    }

    /// Returns the next ACK or NACK, without changes. Servers treat a change of subscription that comes with a nonce as an error, and Istiod
    /// ignores one that comes with a NACK, or with a nonce that is not the last.
    pub(crate) fn delta_ack(&mut self, context: &RequestContext) -> Option<DeltaDiscoveryRequest> {
        let PendingAck { nonce, error, version: _ } = self.pending_acks.pop_front()?;
        Some(DeltaDiscoveryRequest {
            type_url: context.type_url(),
            response_nonce: nonce,
            error_detail: error.map(nack_status),
            ..DeltaDiscoveryRequest::default()
        })
    }

    /// Returns a request with changes of subscription, or `None` if the server knows everything. The first request states as many versions as
    /// there is room for.
    pub(crate) fn delta_request(
        &mut self,
        context: &RequestContext,
        is_first: bool,
        wanted: &Wanted,
        names: &mut NameStates,
        state: impl FnOnce(&mut RequestRoom) -> Statement,
    ) -> Option<DeltaDiscoveryRequest> {
        let mut request = DeltaDiscoveryRequest { type_url: context.type_url(), ..DeltaDiscoveryRequest::default() };
        let node_bytes = if context.has_node { field_bytes(context.node.len()) } else { 0 };
        let used = request.encoded_len() + node_bytes;
        let mut room = RequestRoom::new(context.quirks.max_request_bytes, used).with_a_name();
        let is_set = wanted.has_wildcard() && !self.waits;
        let wildcards = usize::from(is_set) + usize::from(self.wildcard_dropped);
        room.take(wildcards * name_bytes(WILDCARD));
        let mut subscribed = BTreeSet::new();
        let again = std::mem::take(&mut self.again);
        if is_first {
            let statement = state(&mut room);
            (subscribed, request.initial_resource_versions) = (statement.subscribed, statement.versions);
            self.stated = !request.initial_resource_versions.is_empty();
            let question = statement.question.map(|name| (name.to_string(), UNKNOWN.to_owned()));
            request.initial_resource_versions.extend(question);
            self.subscribe = wanted.names().clone();
            self.subscribe.retain(|name| !subscribed.contains(name));
            self.unsubscribe.clear();
        } else {
            self.unsubscribe.extend(again); // some servers ignore a subscription to a name that is subscribed
        }
        let text = |name: Name| name.as_str().to_owned();
        let twice = have_any_in_common(&self.subscribe, &self.unsubscribe) || (self.wildcard_dropped && is_set);
        if std::mem::take(&mut self.wildcard_dropped) {
            self.wildcard_sent = false;
            request.resource_names_unsubscribe.push(WILDCARD.into());
        }
        request.resource_names_unsubscribe.extend(room.take_names(&mut self.unsubscribe).into_iter().map(text));
        if !twice && self.unsubscribe.is_empty() {
            if is_set && !std::mem::replace(&mut self.wildcard_sent, true) {
                let legacy_form = context.kind.info().empty_first.is_wildcard() && is_first;
                request.resource_names_subscribe.extend((!legacy_form).then(|| WILDCARD.to_owned()));
            }
            let is_without_names = request.resource_names_unsubscribe.is_empty();
            let mut room = if is_first { room } else { room.at_most(NAMES_AT_ONCE, is_without_names) };
            subscribed.append(&mut room.take_names(&mut self.subscribe));
            request.resource_names_subscribe.extend(subscribed.iter().cloned().map(text));
            names.hand_out(subscribed, is_first);
            self.changed = !self.subscribe.is_empty();
        }
        self.opened = true;
        let has_change = !request.resource_names_subscribe.is_empty() || !request.resource_names_unsubscribe.is_empty();
        (is_first || has_change).then_some(request)
    }
}

/// Looks at the names of the smaller set: each part of a long list is judged.
fn have_any_in_common(some: &BTreeSet<Name>, others: &BTreeSet<Name>) -> bool {
    let (few, many) = if some.len() < others.len() { (some, others) } else { (others, some) };
    few.iter().any(|name| many.contains(name))
}

fn nack_status(message: String) -> Status {
    Status { code: INVALID_ARGUMENT, message }
}

/// How many bytes of names a delta request adds, if it is not the first. A server that responds to each request then sends what the view can apply
/// in some milliseconds: other clients wait for that, and they should not wait for what one of them has requested.
const NAMES_AT_ONCE: usize = 256 << 10;
/// A name that no resource has, for servers that read an empty list as everything (UP-9).
const NOTHING: &str = "weir.nothing";
/// If the names of the last request have fewer bytes than this, the next change waits no longer than other changes do.
const SHORT_LIST: usize = 64 << 10;
/// Longer lists take at most 10 MB of each second: after one of 3 MiB the next change waits for 0.3 s.
const LISTED_IN_A_MICROSECOND: usize = 10;
