//! The trials of the types of one stream, as its owner makes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::opening::{Epoch, Opening};
use super::request::RequestContext;
use super::subscriptions::{Subscriptions, Terms};
use super::type_subscription::TypeSubscription;
use super::type_trials::{DueTrial, TrialEnd};
use crate::proto::Request;
use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;
use crate::protocol::session::Variant;
use crate::protocol::view::{Class, Selector};
use crate::xds::{Name, Type};

/// The types of one stream that are tried apart: see [`super::Stream::trials`].
pub struct StreamTrials<'a> {
    subscriptions: &'a mut Subscriptions,
    terms: &'a Terms,
    node: &'a Bytes,
    opening: &'a Opening,
}

/// Requests to be made on a stream of their own, to see whether the server takes their types.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The opening of the view's stream that it is for.
    pub epoch: Epoch,
    /// The variant of that.
    pub variant: Variant,
    /// One for each type. The first has the node.
    pub requests: Vec<Request>,
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

    /// Takes the trial that is due.
    pub fn take_due(&mut self, now: Moment) -> Option<Trial> {
        if !self.opening.is_open() {
            return None;
        }
        let due = self.subscriptions.trials_mut().take_due(now)?;
        let mut requests: Vec<_> = due.kinds.iter().filter_map(|kind| self.request(kind, &due, now)).collect();
        let Some(first) = requests.first_mut() else {
            self.subscriptions.trials_mut().drop_trial();
            return None;
        };
        first.set_node(self.node.clone());
        Some(Trial { epoch: self.opening.epoch(), variant: self.terms.variant, requests })
    }

    /// Returns a first request of a type with some of what is wanted of it, if that is anything.
    fn request(&self, kind: &Type, due: &DueTrial, now: Moment) -> Option<Request> {
        let wanted = self.subscriptions.get(kind)?.wanted();
        let mut sample = TypeSubscription::new(wanted.class());
        if due.is_of_second_stream {
            sample = TypeSubscription::new(Class::Named);
            sample.want(
                Selector::Name(wanted.names().first().cloned().unwrap_or(Name::from(NO_RESOURCE))),
                true,
                false,
            );
        } else if wanted.has_wildcard() {
            sample.want(Selector::Wildcard, true, false);
        } else {
            let some = wanted.names().iter().filter(|name| !name.is_glob()).take(SOME);
            some.for_each(|name| sample.want(Selector::Name(name.clone()), true, false));
        }
        let Terms { variant, quirks, options } = self.terms;
        let (node, epoch, has_node) = (&**self.node, self.opening.epoch(), true);
        sample.next_request(&RequestContext { kind, variant: *variant, node, epoch, has_node, quirks, options, now })
    }

    /// A trial for this opening has ended.
    pub fn on_end(&mut self, epoch: Epoch, end: TrialEnd, now: Moment) {
        if self.opening.is_current(epoch) {
            self.subscriptions.trials_mut().on_trial_end(end, now);
        }
    }

    /// The server itself ends the view's stream, by this status.
    pub fn on_stream_ended(&mut self, epoch: Epoch, status: &ServerStatus, now: Moment) {
        if self.opening.is_current(epoch) {
            self.subscriptions.trials_mut().on_ended(Some(status), now);
        }
    }

    /// Returns the types that the server was found to take since the last call.
    pub fn take_taken(&mut self) -> Vec<Type> {
        self.subscriptions.trials_mut().take_unshared()
    }

    /// Sets the types that any view has found the server to take.
    pub fn on_taken_in_others(&mut self, types: &Arc<BTreeSet<Type>>) {
        self.subscriptions.trials_mut().on_taken_in_others(types);
    }
}

/// How many names of a type are requested in a trial.
const SOME: usize = 8;
/// What is requested to see whether the server takes a second stream.
const NO_RESOURCE: &str = "weir-second-stream";
