//! Resources that a server sent and that cannot be used: they exist with unknown contents (UP-25). Also the errors that it reported for names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::protocol::keys::MORE;
use crate::protocol::server_status::ServerStatus;
use crate::protocol::view::{NamedError, Update};
use crate::protocol::visits::visit;
use crate::xds::{Name, Type};

#[derive(Debug, Default)]
pub(super) struct Rejected {
    names: BTreeMap<Name, Rejection>,
    /// Why an entry of the last response could not be matched to a name. A name that is missing may be that of the entry.
    unnamed: Option<Arc<str>>,
    /// More names are rejected than `names` may hold; the others are not known.
    more: bool,
    /// Rejections from before the last reconnect. The same rejection is not reported again.
    before: BTreeMap<Name, Rejection>,
    unnamed_before: Option<Arc<str>>,
    news: NewRejections,
    /// Rejected names without a cached value, as last reported.
    unreadable: BTreeSet<Name>,
    /// The last error that the server reported for each wanted name on this opening, if it has sent nothing else for the name since.
    errors: BTreeMap<Name, Arc<NamedError>>,
    /// The last status with which the server refuses the type, and the error that its names get for it.
    refusal: Option<(ServerStatus, Arc<NamedError>)>,
}

/// The version of a rejected resource, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub version: String,
    pub reason: Arc<str>,
}

/// Rejections that are not reported yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NewRejections {
    /// Each rejection with its name, if that could be read.
    pub entries: Vec<(Option<Name>, Rejection)>,
    /// How many more rejections there were.
    pub more: usize,
}

impl NewRejections {
    fn push(&mut self, name: Option<Name>, rejection: Rejection, limit: usize) {
        if self.entries.len() < limit {
            self.entries.push((name, rejection));
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.more == 0
    }
}

impl Rejected {
    /// Whether everything that the server has sent could be used.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.unreadable.is_empty() && self.unnamed.is_none() && !self.more
    }

    pub(crate) fn insert(&mut self, name: &Name, rejection: Rejection, limit: usize) {
        if self.names.get(name) == Some(&rejection) {
            return;
        }
        if self.before.remove(name).as_ref() != Some(&rejection) {
            self.news.push(Some(name.clone()), rejection.clone(), limit);
        }
        if self.names.len() < limit || self.names.contains_key(name) {
            self.names.insert(name.clone(), rejection);
        } else {
            self.more = true;
        }
    }

    /// Records an entry that cannot be matched to a name.
    pub(crate) fn insert_unnamed(&mut self, rejection: Rejection, limit: usize) {
        if self.unnamed_before.as_ref() != Some(&rejection.reason) {
            self.unnamed_before = Some(rejection.reason.clone());
            self.news.push(None, rejection.clone(), limit);
        }
        self.unnamed = Some(rejection.reason);
    }

    /// Records that a name was read, is absent, or is not wanted any more. If it is rejected again, that is reported.
    pub(crate) fn remove(&mut self, name: &Name) {
        self.names.remove(name);
        self.before.remove(name);
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&Name) -> bool) {
        self.names.retain(|name, _| keep(name));
    }

    /// Handles the end of the stream, or of a subscription to `*`. A rejection that comes again for the same reason is not reported again.
    pub(crate) fn disconnect(&mut self) {
        let names = std::mem::take(&mut self.names);
        let before = if names.is_empty() { std::mem::take(&mut self.before) } else { names };
        let (news, errors) = (std::mem::take(&mut self.news), std::mem::take(&mut self.errors));
        let (unnamed_before, refusal) = (self.unnamed_before.take(), self.refusal.take());
        *self = Self { news, before, unnamed_before, errors, refusal, ..Self::default() };
    }

    /// Forgets all names but those that `sent` accepts: the server has no others.
    pub(crate) fn keep_only(&mut self, sent: impl Fn(&Name) -> bool) {
        self.retain(sent);
        (self.unnamed, self.more) = (None, false);
    }

    /// Whether the server may have a resource of this name that could not be read.
    pub(crate) fn may_be(&self, name: &Name) -> bool {
        self.more || self.names.contains_key(name)
    }

    /// Returns why an entry of the last response could not be matched to a name.
    pub(crate) fn unnamed(&self) -> Option<&Arc<str>> {
        self.unnamed.as_ref()
    }

    /// Forgets the entry without a name. To be called where a missing name is no evidence, so that it does not matter which name it is.
    pub(crate) fn clear_unnamed(&mut self) {
        self.unnamed = None;
    }

    /// Whether the server has sent something for a name that shows neither what its resource is, nor that there is none.
    pub(crate) fn is_doubtful(&self, name: &Name) -> bool {
        self.may_be(name) || self.errors.contains_key(name)
    }

    /// Records a request for the type. An error from before the first one was the reason why the type was not requested.
    pub(crate) fn on_request(&mut self, is_first: bool) {
        if is_first {
            self.clear_errors();
        }
    }

    /// Whether some names may not have the error of this refusal yet.
    pub(crate) fn is_news(&self, status: &ServerStatus) -> bool {
        self.errors.is_empty() || self.refusal.as_ref().is_none_or(|(known, _)| known != status)
    }

    /// Applies that the server refuses the type. Returns the error for each name that has none, or has that of an earlier status.
    pub(crate) fn report_refusal(&mut self, kind: &Type, names: &BTreeSet<Name>, status: &ServerStatus) -> Vec<Update> {
        let error = Arc::new(NamedError::of_refusal(status));
        let before = self.refusal.replace((status.clone(), error.clone())).map(|(_, error)| error);
        let is_due = |name: &&Name| self.errors.get(*name).is_none_or(|known| before.as_ref() == Some(known));
        let names: Vec<_> = names.iter().filter(is_due).cloned().collect();
        let report = |key: Name| {
            self.errors.insert(key.clone(), error.clone());
            Update::Error { kind: kind.clone(), key, error: error.clone() }
        };
        names.into_iter().map(report).collect()
    }

    pub(crate) fn insert_error(&mut self, name: Name, error: Arc<NamedError>) {
        self.errors.insert(name, error);
    }

    pub(crate) fn remove_error(&mut self, name: &Name) {
        self.errors.remove(name);
    }

    pub(crate) fn clear_errors(&mut self) {
        self.errors.clear();
        self.refusal = None;
    }

    pub(crate) fn errors(&self) -> &BTreeMap<Name, Arc<NamedError>> {
        &self.errors
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (&Name, &Rejection)> {
        self.names.iter().inspect(|_| visit())
    }

    /// Returns how many names are rejected.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the rejected names without a cached value, if they have changed.
    pub(crate) fn take_unreadable(&mut self, is_held: impl Fn(&Name) -> bool) -> Option<BTreeSet<Name>> {
        if self.names.is_empty() && self.unreadable.is_empty() && !self.more {
            return None;
        }
        let mut unread: BTreeSet<_> = self.names.keys().filter(|name| !is_held(name)).cloned().collect();
        unread.extend(self.more.then(|| Name::from(MORE)));
        (unread != self.unreadable).then(|| {
            self.unreadable.clone_from(&unread);
            unread
        })
    }

    /// Returns the rejected names without a cached value, as last reported.
    pub(crate) fn unreadable(&self) -> &BTreeSet<Name> {
        &self.unreadable
    }

    /// Returns what was rejected since the last call, each version of a name once.
    pub(crate) fn take_news(&mut self) -> NewRejections {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 2;

    fn rejection(version: &str) -> Rejection {
        Rejection { version: version.into(), reason: "no body".into() }
    }

    fn names(news: &NewRejections) -> Vec<&str> {
        news.entries.iter().map(|(name, _)| name.as_ref().map_or("-", Name::as_str)).collect()
    }

    #[test]
    fn each_version_of_a_name_is_news_once_over_reconnects_and_repeated_sets() {
        let mut rejected = Rejected::default();
        let name = Name::from("a");
        rejected.insert(&name, rejection("1"), LIMIT);
        rejected.insert_unnamed(rejection(""), LIMIT);
        assert_eq!(names(&rejected.take_news()), ["a", "-"]);
        for _ in 0..2 {
            rejected.disconnect(); // the stream ended, so the server sends its complete set again
            rejected.disconnect();
            rejected.insert(&name, rejection("1"), LIMIT);
            rejected.insert_unnamed(rejection(""), LIMIT);
            assert!(rejected.take_news().is_empty());
        }
        rejected.insert(&name, rejection("2"), LIMIT);
        assert_eq!(names(&rejected.take_news()), ["a"], "another version");
        rejected.remove(&name);
        rejected.insert(&name, rejection("2"), LIMIT);
        assert_eq!(names(&rejected.take_news()), ["a"], "it was good in between");
    }

    #[test]
    fn the_newest_status_of_a_refusal_takes_the_place_of_the_one_before_it_and_of_no_other_error() {
        let (kind, mut rejected) = (crate::xds::TypeTable::new().clusters(), Rejected::default());
        let names = ["a", "b"].map(Name::from);
        rejected.insert_error(names[1].clone(), Arc::new(NamedError::not_found()));
        let mut reported = |message: &str| {
            let status = ServerStatus { code: 2, message: message.into() };
            let is_news = rejected.is_news(&status);
            let updates = rejected.report_refusal(&kind, &BTreeSet::from(names.clone()), &status);
            rejected.disconnect();
            let of = |update: Update| match update {
                Update::Error { key, error, .. } => format!("{key}: {}", error.message),
                update => format!("{update:?}"),
            };
            (is_news, updates.into_iter().map(of).collect::<Vec<_>>())
        };
        let (is_news, first) = reported("one");
        assert!(is_news && first.len() == 1 && first[0].starts_with("a: ") && first[0].contains("one"), "{first:?}");
        assert!(!reported("one").0);
        let (is_news, second) = reported("two");
        assert!(
            is_news && second.len() == 1 && second[0].starts_with("a: ") && second[0].contains("two"),
            "{second:?}"
        );
    }

    #[test]
    fn what_is_rejected_beyond_the_limit_is_counted() {
        let mut rejected = Rejected::default();
        ["a", "b", "c", "d"].iter().for_each(|name| rejected.insert(&Name::from(*name), rejection("1"), LIMIT));
        let news = rejected.take_news();
        assert_eq!((names(&news), news.more), (vec!["a", "b"], 2));
        assert!(rejected.may_be(&Name::from("z")), "nobody remembers which");
    }
}
