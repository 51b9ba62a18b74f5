//! Applies what a request subscribes to, for one type, and records the changes of interest for the view. Requests of both variants become the
//! same kind of subscription.

use std::collections::VecDeque;

use super::client::{Client, Variant};
use super::client_snapshot::Books;
use super::requested_names::RequestedNames;
use super::stated::InitialVersions;
use super::wildcard::Wildcard;
use crate::protocol::view::{InterestChange, Selector};
use crate::xds::{EmptyFirst, HeldVersions, Name, Type};

pub(super) struct InterestChanges<'r> {
    kind: &'r Type,
    client: &'r Client,
    books: &'r mut Books,
    interest: &'r mut VecDeque<InterestChange>,
}

impl<'r> InterestChanges<'r> {
    pub(super) fn new(
        kind: &'r Type,
        client: &'r Client,
        books: &'r mut Books,
        interest: &'r mut VecDeque<InterestChange>,
    ) -> Self {
        Self { kind, client, books, interest }
    }

    /// Takes the spellings and errors of a SotW list. Returns how many more names that cannot be requested it has than the last list.
    pub(super) fn take_wording(&mut self, list: &mut RequestedNames) -> usize {
        self.books.wording.take_list(list, self.client.errors)
    }

    /// Applies the list of a SotW request with this version. `first` is set for the first request of the type.
    pub(super) fn take_list(&mut self, mut list: RequestedNames, version: String, first: bool) {
        let full_state = self.kind.info().full_state;
        let has_version = !version.is_empty();
        if first {
            self.books.stated.on_first_request(has_version);
        }
        self.books.wording.note_named(!list.is_empty());
        list.wildcard |= list.is_empty() && self.has_legacy_wildcard() && !self.books.wording.has_named();
        if !list.names.is_empty() {
            self.books.stated.forget_version();
        }
        if first && list.wildcard {
            // A relay's clients may hold more than the relay, and it takes its first response for the complete set.
            if self.client.relay {
                self.books.stated.doubt();
            }
            // The version means something for a wildcard without names only. With names, it does not show which of them the client has (SOTW-4).
            if list.names.is_empty() && has_version {
                self.books.stated.set_version(version);
            }
        }
        self.set_wildcard(list.wildcard, None);
        let dropped: Vec<_> = self.books.names.keys().filter(|name| !list.names.contains(*name)).cloned().collect();
        for name in dropped {
            self.unsubscribe(&name);
            self.books.due.set_complete(full_state);
            if !full_state && self.books.wildcard.is_some() {
                self.books.names.request_anew(name, self.books.due.asked()); // for `*` the view may have another version of the name
            }
        }
        for name in list.names {
            if self.books.names.retry(&name) {
                self.books.wording.note_retry();
                self.note(Selector::Name(name), true);
            } else if !self.books.names.contains(&name) {
                self.subscribe(name, first && has_version || self.books.stated.may_hold_of_left_wildcard());
            }
        }
        if self.books.wildcard.is_none() && self.books.names.is_empty() {
            self.books.due.set_complete(false); // no subscription, no reply (SOTW-43)
        }
    }

    /// Applies the changes of a delta request; `stated` is what the client states that it holds. Returns whether the request is empty and means
    /// the wildcard.
    pub(super) fn take_changes(
        &mut self,
        mut on: RequestedNames,
        off: RequestedNames,
        stated: Option<HeldVersions>,
        first: bool,
    ) -> bool {
        if stated.is_some() {
            self.books.stated.on_first_request(true);
        }
        self.books.wording.take_changes(&mut on, &off, self.client.errors);
        let empty = first && !self.books.wording.has_named();
        if empty && self.kind.info().empty_first == EmptyFirst::EmptyAnswer {
            self.books.due.add_empty();
        }
        let asked = self.books.due.asked();
        let legacy = empty && self.has_legacy_wildcard();
        let wildcard = (on.wildcard || legacy || self.books.wildcard.is_some()) && !off.wildcard;
        if on.wildcard && wildcard {
            self.books.wildcard.iter_mut().for_each(|wildcard| wildcard.request_again(asked));
        }
        for name in on.names.difference(&off.names) {
            self.books.wording.forget_error(name); // if the view still has no room for the name, the client gets the error again
            let held_before = stated.as_ref().is_some_and(|stated| stated.place(name.as_str()).is_some());
            self.subscribe(name.clone(), held_before);
        }
        if let Some(stated) = &stated {
            self.books.names.hold_members(stated);
        }
        self.set_wildcard(wildcard, stated.filter(|_| wildcard).map(InitialVersions::new));
        for name in &off.names {
            let own = self.books.names.targets().get(name).cloned();
            if self.unsubscribe(name) && self.books.wildcard.is_some() && !name.is_glob() {
                // The name is still part of `*` or is removed. The client is sent which of the two (DELTA-24).
                self.books.names.request(name.clone(), asked);
                let is_of_wildcard = |own: &Name| self.books.wildcard.as_ref().is_some_and(|of| of.covers(own));
                if let Some(own) = own.filter(is_of_wildcard) {
                    self.books.names.request(own, asked); // `*` may have lost the resource while the alias led to it
                }
            }
        }
        legacy
    }

    /// Whether an empty list means the wildcard. For gRPC clients it does not: they request resources by name (SOTW-40).
    fn has_legacy_wildcard(&self) -> bool {
        self.kind.info().empty_first.is_wildcard() && !self.client.grpc
    }

    fn set_wildcard(&mut self, on: bool, initial_versions: Option<InitialVersions>) {
        if on == self.books.wildcard.is_some() {
            return;
        }
        self.note(Selector::Wildcard, on);
        // When the client leaves `*`, its full set shrinks (SOTW-41). When it subscribes to `*`, it requests everything.
        let has_sets = self.client.variant == Variant::Sotw && self.kind.info().full_state;
        let Books { wildcard, names, stated, due, .. } = &mut *self.books;
        due.set_complete(has_sets);
        let new = on.then(|| Wildcard::new(initial_versions, due.asked()));
        let left = std::mem::replace(wildcard, new);
        names.recheck_awaiting_data(); // `*` may know them, or the client no longer gets them by `*`
        if let Some(left) = left {
            if has_sets {
                stated.on_wildcard_left(left.removals_sent().is_some());
            }
            names.on_wildcard_left(stated.may_hold_of_left_wildcard());
        }
    }

    fn subscribe(&mut self, name: Name, held_before: bool) {
        if self.books.names.subscribe(&name, held_before, self.books.due.asked()) {
            self.note(Selector::Name(name), true);
        }
    }

    /// Ends the subscription of a name. Returns whether it was subscribed (DELTA-25).
    fn unsubscribe(&mut self, name: &Name) -> bool {
        let Books { names, wildcard, due, .. } = &mut *self.books;
        let ended = names.unsubscribe(name, wildcard.is_some(), due.asked());
        if ended {
            self.note(Selector::Name(name.clone()), false);
        }
        ended
    }

    /// Records a change for the view, unless the client may not have the name: the view does not request it then.
    fn note(&mut self, wanted: Selector, on: bool) {
        if matches!(&wanted, Selector::Name(name) if !self.client.clearance.allows(self.kind, name)) {
            return;
        }
        self.interest.push_back(InterestChange { kind: self.kind.clone(), selector: wanted, on });
    }
}
