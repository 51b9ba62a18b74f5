//! The node that the servers of a view are shown, where that changes while the view exists (`views.node: member`).

use std::collections::BTreeSet;

use bytes::Bytes;

use super::servers::{Servers, StreamId};
use super::source::Source;
use crate::protocol::upstream::Upstream;

/// The node of one view's servers: see [`super::Sources::shown_node`]. Local sets are shown none.
pub struct ShownNode<'a>(&'a mut Servers);

impl<'a> ShownNode<'a> {
    pub(super) fn of(servers: &'a mut Servers) -> Self {
        Self(servers)
    }

    /// Sets the node for servers that are opened from now on, and for those without an open stream.
    pub fn set(&mut self, node: Bytes) {
        self.0.node = node;
        self.show_to_unopened();
    }

    /// Lets servers whose streams have ended see the node on their next opening.
    pub fn show_to_unopened(&mut self) {
        let node = self.0.node.clone();
        let unopened = self.upstreams_mut().filter(|upstream| !upstream.is_open() && upstream.will_show_another(&node));
        unopened.for_each(|upstream| upstream.show(&node));
    }

    /// Returns the servers with an open stream.
    pub fn open_servers(&self) -> BTreeSet<usize> {
        self.servers_where(|upstream, _| upstream.is_open())
    }

    /// Whether a stream shows the node on its present opening, or did on its last one.
    pub fn is_on(&self, id: StreamId) -> bool {
        match self.0.sources.get(id.server) {
            Some(Some(Source::Streams(upstream))) => upstream.shows(id.at, &self.0.node),
            _ => false,
        }
    }

    /// Returns the servers with an open stream that shows another node.
    pub fn outdated(&self) -> BTreeSet<usize> {
        self.servers_where(Upstream::shows_another)
    }

    /// Returns the servers with an open stream for which [`Self::show_to`] was not called since the node is another one.
    pub fn left_behind(&self) -> BTreeSet<usize> {
        self.servers_where(|upstream, node| upstream.is_open() && upstream.will_show_another(node))
    }

    /// Has the streams to a server opened again with the node, at once and with versions stated.
    pub fn show_to(&mut self, server: usize) {
        let node = self.0.node.clone();
        if let Some(Some(Source::Streams(upstream))) = self.0.sources.get_mut(server) {
            upstream.show(&node);
        }
    }

    fn upstreams_mut(&mut self) -> impl Iterator<Item = &mut Upstream> {
        self.0.sources.iter_mut().flatten().filter_map(|source| match source {
            Source::Streams(upstream) => Some(upstream),
            Source::LocalSet(_) => None,
        })
    }

    fn servers_where(&self, is: impl Fn(&Upstream, &Bytes) -> bool) -> BTreeSet<usize> {
        let found = self.0.sources.iter().enumerate().filter(|(_, source)| match source {
            Some(Source::Streams(upstream)) => is(upstream, &self.0.node),
            Some(Source::LocalSet(_)) | None => false,
        });
        found.map(|(server, _)| server).collect()
    }
}
