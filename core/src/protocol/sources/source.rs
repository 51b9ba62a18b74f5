//! One server of the plan while a ladder uses it: streams to it, or a local set. It takes changes of interest and the time, and yields updates.

use std::sync::Arc;

use bytes::Bytes;

use super::plan::ServerPlan;
use crate::protocol::local_set::LocalSet;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::upstream::{Epoch, Stream, Upstream, UpstreamOptions, ViewContext};
use crate::protocol::view::{Class, Completeness, InterestChange, Selector, Update, View};
use crate::xds::{Name, Type, TypeTable};

#[derive(Debug)]
pub(super) enum Source {
    Streams(Upstream),
    LocalSet(LocalSet),
}

impl Source {
    pub(super) fn new(plan: &ServerPlan, node: Bytes, table: Arc<TypeTable>, options: Arc<UpstreamOptions>) -> Self {
        match plan {
            ServerPlan::Streams { variant, quirks } => {
                Self::Streams(Upstream::new(*variant, node, quirks.clone(), table, options))
            }
            ServerPlan::LocalSet { authoritative } => Self::LocalSet(LocalSet::new(*authoritative, options)),
        }
    }

    /// Applies a change of interest. `held` is set if the name is cached from another server; it is requested all the same.
    pub(super) fn want(&mut self, change: InterestChange, held: bool) {
        match self {
            Self::Streams(upstream) => upstream.want(change, held),
            Self::LocalSet(set) => set.want(change),
        }
    }

    /// Records that the server gave a resource to an earlier process. Nothing is recorded for a local set, which reports by itself what it lacks.
    pub(super) fn note_given_earlier(&mut self, kind: &Type, class: Class, name: &Name) {
        if let Self::Streams(upstream) = self {
            upstream.note_given_earlier(kind, class, name);
        }
    }

    pub(super) fn streams(&self) -> &[Stream] {
        match self {
            Self::Streams(upstream) => upstream.streams(),
            Self::LocalSet(_) => &[],
        }
    }

    pub(super) fn streams_mut(&mut self) -> &mut [Stream] {
        match self {
            Self::Streams(upstream) => upstream.streams_mut(),
            Self::LocalSet(_) => &mut [],
        }
    }

    pub(super) fn local_set(&self) -> Option<&LocalSet> {
        match self {
            Self::Streams(_) => None,
            Self::LocalSet(set) => Some(set),
        }
    }

    pub(super) fn local_set_mut(&mut self) -> Option<&mut LocalSet> {
        match self {
            Self::Streams(_) => None,
            Self::LocalSet(set) => Some(set),
        }
    }

    /// Records that a stream is open, or that the local set is reachable.
    pub(super) fn opened(&mut self, at: usize) -> Option<Epoch> {
        match self {
            Self::Streams(upstream) => upstream.streams_mut().get_mut(at).map(Stream::opened),
            Self::LocalSet(set) => Some(set.opened()),
        }
    }

    /// Records that a stream has ended, or that the local set is unreachable. Incomplete sets are requested again from the beginning.
    pub(super) fn ended(&mut self, server: usize, at: usize, epoch: Epoch, view: &View) -> Vec<Update> {
        match self {
            Self::Streams(upstream) => {
                let held = interruptions_of_held(upstream, at, server, view);
                let stream = upstream.streams_mut().get_mut(at).filter(|stream| stream.is_current(epoch));
                stream.map_or_else(Vec::new, |stream| interrupt(stream, server, epoch, held, view))
            }
            Self::LocalSet(set) => set.ended(epoch, view),
        }
    }

    /// Returns the updates that follow from the time, and whether the server has answered for the end of a set.
    pub(super) fn on_time(&mut self, at: &ViewContext, now: Moment) -> (Vec<Update>, bool) {
        match self {
            Self::Streams(upstream) => {
                let streams = upstream.streams_mut();
                let updates = streams.iter_mut().flat_map(|stream| stream.on_time(at, now)).collect();
                // The answers of all streams are taken: one that was left would count later, when the server may be unreachable.
                let ended = streams.iter_mut().map(Stream::take_answered_end).filter(|ended| *ended).count();
                (updates, ended > 0)
            }
            Self::LocalSet(set) => (set.on_time(now), false),
        }
    }

    /// Returns what the server has reported so far, since its updates count now. What a local set has reported has counted.
    pub(super) fn recheck(&mut self) -> Vec<Update> {
        self.streams_mut().iter_mut().flat_map(Stream::recheck).collect()
    }

    /// Whether the server has sent its routing.
    pub(super) fn has_answered_routing(&self) -> bool {
        match self {
            Self::Streams(upstream) => upstream.streams().iter().all(Stream::has_answered_routing),
            Self::LocalSet(set) => set.has_reported_routing(),
        }
    }

    /// Whether the server sends a name again when the name is requested again.
    pub(super) fn repeats(&self) -> bool {
        self.streams().iter().all(|stream| stream.variant() == Variant::Delta)
    }
}

/// Returns the interruptions of names that the server has sent, in a form that is held. The stream itself interrupts only names that it waits for.
fn interruptions_of_held(upstream: &Upstream, at: usize, server: usize, view: &View) -> Vec<Update> {
    let (mut updates, holds) = (Vec::new(), view.holds());
    for kind in upstream.named_types(at) {
        let names = holds.sent_by(server, kind).cloned().map(Selector::Name);
        updates.extend(names.map(|of| Update::Interrupted { kind: kind.clone(), of }));
    }
    updates
}

fn interrupt(stream: &mut Stream, server: usize, epoch: Epoch, held: Vec<Update>, view: &View) -> Vec<Update> {
    let mut updates = stream.ended(epoch);
    updates.extend(held);
    for update in &updates {
        let Update::Interrupted { kind, of } = update else { continue };
        let is_set = !matches!(of, Selector::Name(name) if !name.is_glob());
        if is_set && view.tables().completeness_of(kind, of) < Completeness::Settled {
            stream.clear_set_versions(kind, of);
        }
        // The end of the stream cancels what its server has said and is still held back, so the server has to say it again.
        view.holds().said_by(server, kind, of).for_each(|name| stream.request_again(kind, name));
    }
    updates
}
