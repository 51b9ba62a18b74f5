//! The trials of one stream's types, as the owner of the stream makes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::opening::{Epoch, Opening};
use super::request::RequestProgress;
use super::request_context::RequestContext;
use super::running_trial::TrialEnd;
use super::subscriptions::Subscriptions;
use super::terms::Terms;
use super::type_subscription::TypeSubscription;
use crate::proto::Request;
use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;
use crate::protocol::session::Variant;
use crate::protocol::view::{Class, Selector};
use crate::xds::{Name, Type};

/// The types of one stream that are tried apart. See [`super::Stream::trials`].
pub struct StreamTrials<'a> {
    subscriptions: &'a mut Subscriptions,
    terms: &'a Terms,
    node: &'a Bytes,
    opening: &'a Opening,
}

/// Requests on a stream of their own, which show whether the server takes their types.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The opening of the view's stream for which the trial is made.
    pub epoch: Epoch,
    /// The number of the trial on that opening.
    pub serial: u64,
    /// The variant of the view's stream.
    pub variant: Variant,
    /// One request for each type. The node is where the server gets it on every stream: in the first request, or in each.
    pub requests: Vec<Request>,
    /// A request for a type that the server takes on the view's stream. It shows whether the server ends a second stream whatever is requested.
    pub compared: Request,
}

impl<'a> StreamTrials<'a> {
    pub(super) fn new(
        subscriptions: &'a mut Subscriptions,
        terms: &'a Terms,
        node: &'a Bytes,
        opening: &'a Opening,
    ) -> Self {
        Self { subscriptions, terms, node, opening }
    }

    /// Returns the types for which the server ends streams, wanted or not.
    pub(crate) fn refused(&self) -> Vec<Type> {
        self.subscriptions.trials().refused().cloned().collect()
    }

    /// Whether the server was found to take a type in this view.
    pub(crate) fn has_taken(&self, kind: &Type) -> bool {
        self.subscriptions.trials().taken.has_here(kind)
    }

    /// Returns the trial that is due, and begins it.
    pub fn take_due(&mut self, now: Moment) -> Option<Trial> {
        if !self.opening.is_open() {
            return None;
        }
        let trials = self.subscriptions.trials();
        let due = trials.due(now)?;
        let compared = trials.compared().and_then(|kind| self.request(kind, true, now));
        let (mut kinds, mut requests, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        for kind in due {
            match self.request(&kind, false, now).filter(|_| compared.is_some()) {
                Some(request) => {
                    kinds.push(kind);
                    requests.push(request);
                }
                None => skipped.push(kind),
            }
        }
        let trials = self.subscriptions.trials_mut();
        trials.skip(&skipped, now);
        let mut compared = compared.filter(|_| !requests.is_empty())?;
        let serial = trials.begin(kinds, now);
        let with_node = if self.terms.quirks.node_in_every_request { requests.len() } else { 1 };
        requests.iter_mut().take(with_node).chain([&mut compared]).for_each(|of| of.set_node(self.node.clone()));
        Some(Trial { epoch: self.opening.epoch(), serial, variant: self.terms.variant, requests, compared })
    }

    /// Returns a first request of a type for some of what is wanted of it, if anything is. With `is_compared` it is for a name, even a made-up one.
    fn request(&self, kind: &Type, is_compared: bool, now: Moment) -> Option<Request> {
        let wanted = self.subscriptions.get(kind)?.wanted();
        let Terms { variant, quirks, options } = self.terms;
        let may = |name: &&Name| *variant == Variant::Delta || !name.is_glob();
        let mut names = wanted.names().iter().filter(may).cloned();
        let class = if is_compared { Class::Named } else { wanted.class() };
        let mut sample = TypeSubscription::new(class, RequestProgress::default());
        if is_compared {
            let name = names.next().unwrap_or(Name::from(NO_RESOURCE));
            sample.want(Selector::Name(name), true, false);
        } else if wanted.has_wildcard() {
            sample.want(Selector::Wildcard, true, false);
        } else {
            names.take(SOME).for_each(|name| sample.want(Selector::Name(name), true, false));
        }
        let (node, epoch, has_node) = (&**self.node, self.opening.epoch(), true);
        sample.next_request(&RequestContext { kind, variant: *variant, node, epoch, has_node, quirks, options, now })
    }

    /// Whether the server takes some of what is requested on this opening: it has answered it, or has left the stream open for long enough.
    /// Always `false` for streams whose types are not tried apart.
    pub fn is_taken(&self) -> bool {
        self.terms.quirks.tries_types_apart && self.subscriptions.trials().first_requests.is_live()
    }

    /// Whether a trial was begun and has not ended.
    pub fn is_trying(&self) -> bool {
        self.subscriptions.trials().is_trying()
    }

    /// Records that the stream of a trial for this opening is open.
    pub fn on_begun(&mut self, epoch: Epoch, serial: u64, now: Moment) {
        if self.opening.is_current(epoch) {
            self.subscriptions.trials_mut().on_begun(serial, now);
        }
    }

    /// Applies the end of a trial for this opening.
    pub fn on_end(&mut self, epoch: Epoch, serial: u64, end: TrialEnd, now: Moment) {
        if self.opening.is_current(epoch) {
            self.subscriptions.trials_mut().on_trial_end(serial, end, now);
        }
    }

    /// Handles the end of the view's stream. Not to be called if the stream only moves to another connection. `status` is set if the server
    /// ended it. Returns whether one of the types may be the reason, so that the end shows nothing of the view.
    pub fn on_stream_ended(&mut self, epoch: Epoch, status: Option<&ServerStatus>, now: Moment) -> bool {
        !self.opening.is_current(epoch) || self.subscriptions.trials_mut().on_ended(status, now)
    }

    /// Returns the types that the server was found to answer since the last call.
    pub fn take_answered(&mut self) -> Vec<Type> {
        self.subscriptions.trials_mut().take_unshared()
    }

    /// Sets the types that any view has found the server to answer.
    pub fn on_answered_in_others(&mut self, types: &Arc<BTreeSet<Type>>) {
        self.subscriptions.trials_mut().on_answered_in_others(types);
    }
}

/// How many names of a type are requested in a trial at most.
const SOME: usize = 8;
/// The name that is requested to see whether the server takes a second stream.
const NO_RESOURCE: &str = "weir-second-stream";
