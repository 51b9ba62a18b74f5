//! One view of the relay with its upstream streams, and the log by which it is checked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use weir_core::proto::Request;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{Epoch, ServerQuirks, Upstream};
use weir_core::protocol::view::{Class, Leases, Snapshot, View};

use crate::content::{Kind, table};
use crate::origin::{Sent, Server};
use crate::view::{Entry, ModelView};

/// One view of the relay with its upstream streams, and the log by which it is checked.
pub struct UnitRig {
    pub view: View,
    pub upstream: Upstream,
    pub max_request_bytes: usize,
    pub links: Vec<Link>,
    pub leases: Leases,
    pub log: Vec<Entry>,
    /// The length of the log when each snapshot was published.
    pub published: BTreeMap<u64, usize>,
    pub views: BTreeMap<u64, ModelView>,
    /// Upstream never lets a route refer to a missing cluster.
    pub orderly: bool,
    pub forgotten: Vec<(Kind, Option<String>)>,
    pub responses_since_publication: usize,
    /// A client holds a name that the view does not know, and the streams have not judged their silence since.
    pub sought: bool,
}

/// One upstream stream.
#[derive(Default)]
pub struct Link {
    pub open: Option<Epoch>,
    pub requests: VecDeque<Request>,
    pub server: Server,
    pub asked_at: BTreeMap<(Kind, String), Moment>,
    /// SotW: the names of the last request, and since when other names are no longer in it.
    pub listed: BTreeMap<Kind, BTreeSet<String>>,
    pub left_at: BTreeMap<(Kind, String), Moment>,
    /// What was in flight when the stream ended.
    pub late: Vec<(Epoch, Sent)>,
    pub wanted_stars: Vec<Kind>,
    /// Those of `wanted_stars` that are wanted again. The relay requests them on the next opening, and reads nothing of them on this one.
    pub unread_stars: Vec<Kind>,
    pub asked_kinds: Vec<Kind>,
}

impl UnitRig {
    /// With `small_requests` the server takes requests with the node, the type, and little more.
    pub fn new(variant: Variant, small_requests: bool, node: bytes::Bytes, options: &Arc<ProtocolOptions>) -> Self {
        let mut quirks = ServerQuirks { node_in_every_request: small_requests, ..ServerQuirks::default() };
        if small_requests {
            quirks.max_request_bytes = (node.len() + 80) * 8 / 7;
        }
        let max_request_bytes = quirks.max_request_bytes;
        Self {
            view: View::new(table(), options.view.clone().into()),
            upstream: Upstream::new(variant, node, Arc::new(quirks), table(), options.upstream.clone().into()),
            links: Vec::new(),
            max_request_bytes,
            leases: Leases::new(options.view.clone().into()),
            log: Vec::new(),
            published: BTreeMap::from([(0, 0)]),
            views: BTreeMap::new(),
            orderly: true,
            forgotten: Vec::new(),
            responses_since_publication: 0,
            sought: false,
        }
    }

    /// Returns the model view of the part of the log from which a snapshot was made.
    pub fn view(&mut self, state: &Snapshot) -> &ModelView {
        self.view_and_log(state).0
    }

    /// Returns that part of the log as well.
    pub fn view_and_log(&mut self, state: &Snapshot) -> (&ModelView, &[Entry]) {
        self.view_and_log_at(number(state.revision))
    }

    pub fn view_and_log_at(&mut self, mark: u64) -> (&ModelView, &[Entry]) {
        let log = &self.log[..self.published[&mark]];
        (self.views.entry(mark).or_insert_with(|| ModelView::replay(log)), log)
    }

    pub fn note_publication(&mut self, state: &Snapshot, _changed: bool) {
        let mark = number(state.revision);
        if self.published.get(&mark) != Some(&self.log.len()) {
            self.published.insert(mark, self.log.len());
            self.views.remove(&mark);
        }
        let dangling = self.view(state).has_dangling_route();
        self.orderly &= !dangling;
    }

    pub fn is_known(&self, kind: Kind) -> bool {
        self.view.snapshot().resources(&table().resolve(kind.url()), Class::Wildcard).is_some()
    }
}

pub fn number(mark: weir_core::protocol::view::Revision) -> u64 {
    let text = format!("{mark:?}");
    text.trim_start_matches("Revision(").trim_end_matches(')').parse().unwrap()
}

pub fn mark_of(reply: &weir_core::protocol::session::Reply) -> u64 {
    number(reply.revision)
}

pub fn note_asked(link: &mut Link, request: &Request, now: Moment) {
    let (url, names) = match request {
        Request::Sotw(request) => (&request.type_url, &request.resource_names),
        Request::Delta(request) => (&request.type_url, &request.resource_names_subscribe),
    };
    let kind = Kind::ALL.into_iter().find(|kind| kind.url() == *url).unwrap();
    let first = !link.asked_kinds.contains(&kind);
    link.asked_kinds.extend(first.then_some(kind));
    let wildcard = names.iter().any(|name| name == "*") || (names.is_empty() && kind.full_state() && first);
    if wildcard && !link.wanted_stars.contains(&kind) {
        link.wanted_stars.push(kind);
    }
    if let Request::Sotw(_) = request {
        let now_listed: BTreeSet<_> = names.iter().cloned().collect();
        let before = link.listed.insert(kind, now_listed).unwrap_or_default();
        let left = before.into_iter().filter(|name| !names.contains(name));
        link.left_at.extend(left.map(|name| ((kind, name), now)));
    }
    for name in names.iter().filter(|name| *name != "*") {
        link.asked_at.entry((kind, name.clone())).or_insert(now);
    }
}
