//! Entries that cannot be read, and errors that a server reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ResponseContext;
use crate::proto::code::NOT_FOUND;
use crate::protocol::limits::Limits;
use crate::protocol::upstream::parsed_response::ParsedResponse;
use crate::protocol::upstream::quirks::ServerQuirks;
use crate::protocol::upstream::rejected::Rejection;
use crate::protocol::upstream::requested_names::NameState;
use crate::protocol::upstream::type_subscription::TypeSubscription;
use crate::protocol::view::{Class, NamedError, Selector, Update};
use crate::xds::{Name, Type};

impl TypeSubscription {
    /// A resource that came and cannot be read exists, whatever was reported of it before.
    pub(super) fn unreadable_updates(
        &self,
        kind: &Type,
        rejected: &BTreeSet<Name>,
        unread: Option<BTreeSet<Name>>,
    ) -> Vec<Update> {
        match self.class {
            Class::Wildcard => {
                let unread =
                    unread.map(|names| Update::Unreadable { kind: kind.clone(), of: Selector::Wildcard, names });
                unread.into_iter().collect()
            }
            Class::Named => {
                let was_absent = |name: &&Name| self.requested.get(name) == Some(NameState::Absent);
                let doubtful = rejected.iter().filter(was_absent).filter(|name| !self.globs.has(name));
                let of = doubtful.cloned().map(Selector::Name);
                of.map(|of| Update::Interrupted { kind: kind.clone(), of }).collect()
            }
        }
    }

    /// A resource that cannot be used exists: no timer makes it absent (UP-38), and no set is complete without it.
    pub(super) fn record_rejected(
        &mut self,
        read: &ParsedResponse,
        said: &BTreeMap<Name, bool>,
        version: &str,
        limits: &Limits,
    ) {
        for name in read.rejected.keys() {
            self.record_one_rejected(name, said, version, read, limits);
        }
        self.rejected.unnamed = None; // without full sets, a missing name is no evidence
        self.record_readable(read, version, limits);
    }

    pub(super) fn record_readable(&mut self, read: &ParsedResponse, version: &str, limits: &Limits) {
        for name in read.good.names() {
            self.rejected.remove(name);
        }
        if let Some(reason) = read.unnamed.clone() {
            self.rejected.insert_unnamed(Rejection { version: version.to_owned(), reason }, limits.rejected_names);
        }
    }

    pub(super) fn record_one_rejected(
        &mut self,
        name: &Name,
        said: &BTreeMap<Name, bool>,
        version: &str,
        read: &ParsedResponse,
        limits: &Limits,
    ) {
        let unreadable = !said.contains_key(name);
        if unreadable && self.names.contains(name) && self.requested.get(name) != Some(NameState::Absent) {
            self.requested.given(name);
        }
        let in_a_set = self.class == Class::Wildcard || self.globs.of(name).is_some();
        let has_none = said.get(name) == Some(&true);
        if in_a_set && !has_none || unreadable && self.names.contains(name) {
            let reason = read.rejected.get(name).cloned().unwrap_or_default();
            self.rejected.insert(name, Rejection { version: version.to_owned(), reason }, limits.rejected_names);
        }
    }

    /// Applies the errors that the server reports of single names (UP-44): the resource does not exist, is not allowed, or has a
    /// transient error. Only the first makes a cached resource absent, unless this server is configured so that the second does
    /// too.
    pub(super) fn error_updates(&mut self, reported: Vec<(Name, NamedError)>, reader: &ResponseContext) -> Vec<Update> {
        let mut updates = Vec::new();
        for (key, error) in reported {
            if self.class == Class::Wildcard {
                if self.means_absent(&error, reader.quirks) {
                    updates.push(self.absence(reader.kind, key, reader.quirks));
                }
                continue;
            }
            let by_name = self.names.contains(&key);
            // Members count only if they are cached: errors of others could be without number.
            let held_member = self.is_member_alone(&key) && self.versions.contains_key(&key);
            if !by_name && !held_member {
                continue;
            }
            let held = self.holds_by_name(&key) || held_member;
            let gives_up = error.code == NOT_FOUND || !held || reader.quirks.fail_on_data_errors;
            if error.is_about_data() && gives_up {
                updates.push(self.absence(reader.kind, key.clone(), reader.quirks));
            } else {
                // A transient error shows that the server is alive, and nothing of whether the resource exists.
                match held {
                    true => self.requested.given(&key),
                    false => self.requested.request(key.clone()),
                }
            }
            let error = Arc::new(error);
            if by_name {
                self.errors.insert(key.clone(), error.clone());
            }
            updates.push(Update::Error { kind: reader.kind.clone(), key, error });
        }
        updates
    }

    /// Returns the names that the server reports errors of, each with whether the error means absence: a set without those names
    /// can be complete.
    pub(super) fn reported_names(&self, reported: &[(Name, NamedError)], rules: &ServerQuirks) -> BTreeMap<Name, bool> {
        reported.iter().map(|(name, error)| (name.clone(), self.means_absent(error, rules))).collect()
    }

    /// Whether an error means absence. For `*` only "not found" does by default: what other servers have of the set, or clients
    /// hold, is not known here. For a requested name "not allowed" does too.
    pub(super) fn means_absent(&self, error: &NamedError, rules: &ServerQuirks) -> bool {
        match self.class {
            Class::Wildcard => error.code == NOT_FOUND || error.is_about_data() && rules.fail_on_data_errors,
            Class::Named => error.is_about_data(),
        }
    }
}
