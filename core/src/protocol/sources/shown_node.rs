//! The node that the servers of a view are shown, which may change while the view exists (`views.node: member`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::servers::{Servers, StreamId};
use super::source::Source;
use crate::protocol::upstream::Upstream;

/// The node of one view's servers: see [`super::Sources::shown_node`]. Local sets are shown no node.
pub struct ShownNode<'a>(&'a mut Servers);

impl<'a> ShownNode<'a> {
    pub(super) fn of(servers: &'a mut Servers) -> Self {
        Self(servers)
    }

    /// Sets the node for streams that are opened from now on, and for those that have ended.
    pub fn set(&mut self, node: Bytes) {
        self.0.node = node;
        self.show_to_unopened();
    }

    /// Lets streams that have ended show the node on their next opening.
    pub fn show_to_unopened(&mut self) {
        let node = self.0.node.clone();
        for upstream in self.0.sources.iter_mut().flatten().filter_map(upstream_mut) {
            upstream.show_to_unopened(&node);
        }
    }

    /// Returns the streams that are open.
    pub fn open_streams(&self) -> BTreeSet<StreamId> {
        self.open_where(|_, _| true)
    }

    /// Whether a stream shows the node on its present opening, or showed it on its last one.
    pub fn is_on(&self, id: StreamId) -> bool {
        self.upstream(id.server).is_some_and(|upstream| upstream.shows(id.at, &self.0.node))
    }

    /// Returns the open streams that will not show the present node on their next opening: [`Self::show_on`] was not called since the node changed.
    pub fn left_behind(&self) -> BTreeSet<StreamId> {
        self.open_where(|upstream, at| !upstream.will_show(at, &self.0.node))
    }

    /// Has a stream opened again with the node, without a pause. The request states versions.
    pub fn show_on(&mut self, id: StreamId) {
        let node = self.0.node.clone();
        if let Some(upstream) = self.0.sources.get_mut(id.server).and_then(Option::as_mut).and_then(upstream_mut) {
            upstream.show_on(id.at, &node);
        }
    }

    /// Returns the bytes of all nodes that are kept for streams, each copy once.
    pub fn bytes(&self) -> usize {
        let upstreams = (0..self.0.sources.len()).filter_map(|server| self.upstream(server));
        let nodes = upstreams.flat_map(Upstream::nodes).chain([&self.0.node]);
        let copies: BTreeMap<_, _> = nodes.map(|node| (node.as_ptr(), node.len())).collect();
        copies.values().sum()
    }

    fn upstream(&self, server: usize) -> Option<&Upstream> {
        match self.0.sources.get(server)? {
            Some(Source::Streams(upstream)) => Some(upstream),
            Some(Source::LocalSet(_)) | None => None,
        }
    }

    fn open_where(&self, is: impl Fn(&Upstream, usize) -> bool) -> BTreeSet<StreamId> {
        let upstreams = (0..self.0.sources.len()).filter_map(|server| Some((server, self.upstream(server)?)));
        let streams = upstreams.flat_map(|(server, upstream)| {
            (0..upstream.streams().len()).map(move |at| (upstream, StreamId { server, at }))
        });
        let open = streams.filter(|(upstream, id)| upstream.is_open(id.at) && is(upstream, id.at));
        open.map(|(_, id)| id).collect()
    }
}

fn upstream_mut(source: &mut Source) -> Option<&mut Upstream> {
    match source {
        Source::Streams(upstream) => Some(upstream),
        Source::LocalSet(_) => None,
    }
}
