//! The xDS client of one view towards one server, over as few streams as keep its responses distinguishable.
//!
//! Owns subscriptions, the server's own versions, resource timers, ACKs. Leaves connecting to the edge, and what the updates mean
//! to [`view`](super::view). Invariants: each response is answered once; `*` and names of one type never share a stream
//! (XLAT-13); versions of one server are never sent to another.

mod apart;
mod attempts;
mod audited;
mod end_question;
mod first_requests;
mod forgotten_types;
mod given;
mod nack_pace;
mod name_states;
mod opening;
mod options;
mod parsed_response;
mod parser;
mod parts;
mod quirks;
mod recent_sets;
mod recovery;
mod rejected;
mod report;
mod request;
mod request_context;
mod request_room;
mod requestable;
mod response;
mod routing_answers;
mod running_trial;
mod second_request;
mod set_progress;
mod silence;
mod stream;
mod stream_node;
mod stream_trials;
mod subscriptions;
mod taken_types;
mod terms;
mod trial_pace;
mod turns;
mod type_subscription;
mod type_trials;
mod wanted;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use attempts::{Backoff, BackoffTimes, Conclusion, Ending, VariantChoice};
pub(crate) use audited::AuditedStream;
pub use first_requests::PROOF;
pub use opening::{Epoch, PollFailure};
pub use options::UpstreamOptions;
pub use parser::{ReceivedResponse, ResponseMessage, ResponseParser, ResponseSummary, Room, UnreadableResponse};
pub use quirks::{InitialSet, OnResourceTimeout, ServerQuirks};
pub use recent_sets::RecentSets;
pub use recovery::Recovery;
pub use report::{NameRequest, RequestState, TypePlace, TypeSummary};
pub use running_trial::TrialEnd;
pub use set_progress::{Delivery, DeliveryHabits};
pub use stream::Stream;
pub use stream_trials::{StreamTrials, Trial};

pub use super::server_status::ServerStatus;
use super::session::Variant;
use super::view::{Class, InterestChange, Origin, Selector, View};
use crate::xds::{Name, Type, TypeTable};

/// What a stream needs of its view to judge the server's silence.
pub struct ViewContext<'a> {
    pub(crate) view: &'a View,
    /// The origin under which the server's updates for a selector count; `None` if they do not count.
    pub(crate) authority_of: &'a dyn Fn(&Selector) -> Option<Origin>,
}

impl<'a> ViewContext<'a> {
    /// Returns the context for a single server, which is active for everything.
    pub fn single_server(view: &'a View) -> Self {
        Self { view, authority_of: &|_| Some(Origin::default()) }
    }

    fn origin_for(&self, selector: &Selector) -> Option<Origin> {
        (self.authority_of)(selector)
    }
}

/// Everything that one view requests from one server: one stream, and a second one if both `*` and names of a type are wanted.
#[derive(Debug)]
pub struct Upstream {
    streams: Vec<Stream>,
    placed: BTreeMap<(Type, Class), usize>,
    /// When `placed` has this many entries, unused ones are removed.
    sweep_at: usize,
    variant: Variant,
    node: bytes::Bytes,
    quirks: Arc<ServerQuirks>,
    table: Arc<TypeTable>,
    options: Arc<UpstreamOptions>,
}

impl Upstream {
    /// Starts with a single stream, which is not open yet.
    pub fn new(
        variant: Variant,
        node: bytes::Bytes,
        quirks: Arc<ServerQuirks>,
        table: Arc<TypeTable>,
        options: Arc<UpstreamOptions>,
    ) -> Self {
        let (streams, placed, sweep_at) = (Vec::new(), BTreeMap::new(), PLACES);
        Self { streams, placed, sweep_at, variant, node, quirks, table, options }
    }

    /// Applies a change of interest. A name that is cached from another server (`held`) is requested as well, but this server's silence about it
    /// is no evidence.
    pub fn want(&mut self, change: InterestChange, held: bool) {
        let class = match change.selector {
            Selector::Wildcard => Class::Wildcard,
            Selector::Name(_) => Class::Named,
        };
        let at = self.place(&change.kind, class);
        self.streams[at].want(change, held);
    }

    /// Records that the server gave a resource to an earlier process.
    pub(crate) fn note_given_earlier(&mut self, kind: &Type, class: Class, name: &Name) {
        let at = self.place(kind, class);
        self.streams[at].note_given_earlier(kind, name);
    }

    /// Sets the node for new streams, and for the next opening of those that are not open.
    pub(crate) fn show_to_unopened(&mut self, node: &bytes::Bytes) {
        let unopened = self.streams.iter_mut().filter(|stream| !stream.opening.is_open());
        unopened.for_each(|stream| stream.node.show(node));
        self.node = node.clone();
    }

    /// Sets the node for the next opening of one stream. If the stream is open, it is opened again at once.
    pub(crate) fn show_on(&mut self, at: usize, node: &bytes::Bytes) {
        if let Some(stream) = self.streams.get_mut(at) {
            stream.node.show(node);
        }
    }

    /// Returns the nodes that are kept for the streams.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &bytes::Bytes> {
        std::iter::once(&self.node).chain(self.streams.iter().flat_map(|stream| stream.node.kept()))
    }

    /// Whether a stream is open.
    pub(crate) fn is_open(&self, at: usize) -> bool {
        self.streams.get(at).is_some_and(|stream| stream.opening.is_open())
    }

    /// Whether a stream shows this node on its present opening, or did on its last one.
    pub(crate) fn shows(&self, at: usize, node: &bytes::Bytes) -> bool {
        self.streams.get(at).is_some_and(|stream| stream.node.is_shown(node))
    }

    /// Whether a stream would show this node if it were opened now.
    pub(crate) fn will_show(&self, at: usize, node: &bytes::Bytes) -> bool {
        self.streams.get(at).is_some_and(|stream| stream.node.is_set(node))
    }

    /// Returns the streams to this server.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Returns the streams to this server, so that the caller can change them.
    pub fn streams_mut(&mut self) -> &mut [Stream] {
        &mut self.streams
    }

    /// Returns the types of which names are requested on a stream.
    pub(crate) fn named_types(&self, at: usize) -> impl Iterator<Item = &Type> {
        let named = self.placed.iter().filter(move |((_, class), stream)| *class == Class::Named && **stream == at);
        named.map(|((kind, _), _)| kind)
    }

    /// Returns the index of the stream for a type and class. The two classes of a type have different streams. The index is kept for as long as
    /// responses may come, so that a late response to one class is never read as one to the other.
    fn place(&mut self, kind: &Type, class: Class) -> usize {
        if self.placed.len() >= self.sweep_at {
            let (streams, table) = (&self.streams, &self.table);
            self.placed.retain(|(kind, _), at| table.knows(kind.name()) || streams[*at].has(kind));
            self.sweep_at = (2 * self.placed.len()).max(PLACES); // amortized constant cost of an insertion
        }
        let other = match class {
            Class::Wildcard => Class::Named,
            Class::Named => Class::Wildcard,
        };
        let taken = self.placed.get(&(kind.clone(), other)).copied();
        let apart = taken == Some(0);
        let at = *self.placed.entry((kind.clone(), class)).or_insert(usize::from(apart));
        while self.streams.len() <= at {
            let (quirks, table, options) = (self.quirks.clone(), self.table.clone(), self.options.clone());
            self.streams.push(Stream::new(self.variant, self.node.clone(), quirks, table, options));
        }
        at
    }
}

/// More entries than the types of the table need.
const PLACES: usize = 256;
