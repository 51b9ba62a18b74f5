//! What is known of the type, as updates: for a view that begins to read this stream, or when all of it is lost.

use std::sync::Arc;

use super::TypeSubscription;
use crate::proto::code::UNIMPLEMENTED;
use crate::protocol::upstream::quirks::{InitialSet, ServerQuirks};
use crate::protocol::upstream::requested_names::NameState;
use crate::protocol::view::{Class, Completeness, Evidence, NamedError, Retain, Selector, Update};
use crate::xds::{Name, Type};

impl TypeSubscription {
    /// How much of a set is known after a response; `ends` if it is the last one of the set.
    pub(crate) fn completeness_after(&self, rules: &ServerQuirks, of: &Selector, ends: bool) -> Completeness {
        let wildcard = *of == Selector::Wildcard;
        match rules.initial_set {
            _ if ends && wildcard => Completeness::Complete,
            _ if rules.signals_completion && !wildcard => Completeness::Arriving,
            InitialSet::Pieces => self.progress.completeness(true),
            InitialSet::OneResponse if wildcard => Completeness::Arriving, // the server states that there is more
            InitialSet::Auto | InitialSet::OneResponse => {
                self.progress.completeness(self.habit.cuts || self.in_pieces_for_others)
            }
        }
    }

    /// Whether asking this server for the end of its set may show it: it is not known to send sets in pieces.
    pub(crate) fn can_ask_for_end(&self, rules: &ServerQuirks) -> bool {
        rules.may_answer_for_end() && !self.habit.cuts && !self.in_pieces_for_others
    }

    /// Whether the end of the set of `*` is known on this opening.
    pub(crate) fn is_at_end(&self) -> bool {
        self.progress.complete || self.end_question.has_ended()
    }

    /// Reports an error for each glob that this server cannot serve in its variant, once (COLL-23).
    pub(crate) fn reject_globs(&mut self, kind: &Type) -> Vec<Update> {
        let error = Arc::new(unspeakable());
        let rejected = self.globs.take_unasked().into_iter();
        rejected.map(|key| Update::Error { kind: kind.clone(), key, error: error.clone() }).collect()
    }

    /// What is known of names on this opening: absences, errors, and what could not be read.
    pub(crate) fn findings(&self, kind: &Type, rules: &ServerQuirks) -> Vec<Update> {
        let gone = |(key, question): (&Name, NameState)| match question {
            NameState::Absent => Some(rules.reported_absence(kind, Class::Named, key.clone())),
            NameState::Silent => {
                let (kind, key) = (kind.clone(), key.clone());
                Some(Update::Absent { kind, class: Class::Named, key, evidence: Evidence::Silence })
            }
            NameState::Waiting { .. } => None,
        };
        let error = |key: &Name, error| Update::Error { kind: kind.clone(), key: key.clone(), error };
        let troubles = self.errors.iter().map(|(key, of)| error(key, of.clone()));
        let left_out = self.left_out.errors().map(|(key, of)| error(key, of.clone()));
        let rejected = self.globs.rejected().map(|glob| error(glob, Arc::new(unspeakable())));
        let unread = (!self.rejected.unreadable().is_empty()).then(|| Update::Unreadable {
            kind: kind.clone(),
            of: Selector::Wildcard,
            names: self.rejected.unreadable().clone(),
        });
        let unread = unread.filter(|_| self.class == Class::Wildcard);
        self.requested.iter().filter_map(gone).chain(troubles).chain(rejected).chain(left_out).chain(unread).collect()
    }

    pub(crate) fn drop_everything(&mut self, kind: &Type) -> Vec<Update> {
        let kind = kind.clone();
        match self.class {
            Class::Wildcard => vec![Update::FullSet { kind, resources: Vec::new(), retain: Retain::nothing() }],
            Class::Named => {
                let class = Class::Named;
                let gone = |key: &Name| Update::Absent {
                    kind: kind.clone(),
                    class,
                    key: key.clone(),
                    evidence: Evidence::Reported,
                };
                self.names.iter().map(gone).collect()
            }
        }
    }

    pub(crate) fn forget_names(&mut self) {
        self.names.clear();
    }
}

fn unspeakable() -> NamedError {
    let message = "the control plane does not speak the delta variant, and collections exist in that alone".into();
    NamedError { code: UNIMPLEMENTED, message }
}
