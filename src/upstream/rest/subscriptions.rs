//! What one stream requests of a REST server: a poll for each type, when it is due, and what it contains. No sockets, no clock.
//!
//! A view sends requests to a source as to a stream. The last request of a type is repeated as polls, for as long as it subscribes to
//! anything.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::proto::discovery::DiscoveryRequest;
use crate::protocol::upstream::Backoff;
use crate::xds::{RestPath, TypeTable, WILDCARD};

/// One poll: where, and what it says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Poll {
    pub(crate) url: String,
    pub(crate) path: String,
    pub(crate) request: DiscoveryRequest,
}

/// How often is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PollSchedule {
    /// Between an answer and the next poll, and up to as much again (REST-10).
    pub(crate) refresh: Duration,
    /// Polls in a row, of whatever types, that fail before the server counts as unreachable.
    pub(crate) failures: u32,
}

#[derive(Debug)]
pub(super) struct Topics {
    by_url: BTreeMap<String, Topic>,
    node: Option<Bytes>,
    pace: PollSchedule,
    failed_in_a_row: u32,
    answers: u64,
}

#[derive(Debug)]
struct Topic {
    path: String,
    names: Vec<String>,
    /// The version that the view has ACKed.
    version: String,
    /// A name was given, so that no names mean nothing any more, where at first they may mean everything (SOTW-38).
    named: bool,
    wanted: bool,
    /// The version may be stated: it is that of the last answer, to this same question, and nothing but content that goes on
    /// for good came with it (REST-8).
    versioned: bool,
    ever_answered: bool,
    /// None while a poll is under way.
    due: Option<Instant>,
    /// The question has changed since the poll that is under way.
    changed: bool,
    backoff: Backoff,
}

/// When a change of what is wanted is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Now,
    /// After the poll that is under way: until then the server's silence says nothing of it.
    Later,
    /// REST has no word for the type.
    NoPath,
}

impl Topics {
    pub(crate) fn new(pace: PollSchedule) -> Self {
        Self { by_url: BTreeMap::new(), node: None, pace, failed_in_a_row: 0, answers: 0 }
    }

    /// Takes over what is wanted of a type, or that an answer was taken.
    pub(crate) fn take(&mut self, request: DiscoveryRequest, table: &TypeTable, now: Instant) -> Taken {
        self.node = request.node.or(self.node.take());
        let url = request.type_url;
        let kind = table.resolve(&url);
        let Some(path) = RestPath::for_type(kind.name()) else { return Taken::NoPath };
        let subscription = self.by_url.entry(url).or_insert_with(|| Topic::new(path));
        subscription.version = request.version_info;
        // Of what was rejected something may have been taken over: the version before would not bring it back.
        subscription.versioned &= request.error_detail.is_none();
        subscription.named |= !request.resource_names.is_empty();
        // Each poll is a first request, and there no names are everything (REST-11).
        let everything = kind.info().empty_first.is_wildcard();
        let wildcard = everything && request.resource_names == [WILDCARD];
        let names = if wildcard { Vec::new() } else { request.resource_names };
        let wanted = wildcard || !names.is_empty() || (everything && !subscription.named);
        if (&names, wanted) != (&subscription.names, subscription.wanted) {
            (subscription.names, subscription.wanted, subscription.versioned) = (names, wanted, false);
            match &mut subscription.due {
                Some(due) => *due = now,
                None => {
                    subscription.changed = true;
                    return Taken::Later;
                }
            }
        }
        Taken::Now
    }

    /// The polls that are due. Each of them is under way from here on, until it is said what came of it.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Poll> {
        let node = &self.node;
        let due = self
            .by_url
            .iter_mut()
            .filter(|(_, subscription)| subscription.wanted && subscription.due.is_some_and(|due| due <= now));
        due.map(|(url, subscription)| subscription.ask(url, node.clone())).collect()
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.by_url
            .values()
            .filter(|subscription| subscription.wanted)
            .filter_map(|subscription| subscription.due)
            .min()
    }

    /// A poll was answered, be it with nothing new. `mortal` says that something in the answer has an end, and is to be given
    /// again. The number of the answer.
    pub(crate) fn answered(&mut self, question: &Poll, mortal: bool, now: Instant, random: f64) -> u64 {
        self.failed_in_a_row = 0;
        self.answers += 1;
        let refresh = self.pace.refresh.mul_f64(1.0 + random.clamp(0.0, 1.0));
        if let Some(subscription) = self.by_url.get_mut(&question.url) {
            subscription.backoff.reset();
            subscription.versioned = !mortal && !subscription.changed;
            subscription.ever_answered = true;
            subscription.next(now, refresh);
        }
        self.answers
    }

    /// A poll has failed. Whether that is one too many: what the server says of one type, be it that it has none of it, is no
    /// reason to leave it for all the others.
    pub(crate) fn failed(&mut self, question: &Poll, silent: bool, now: Instant, random: f64) -> bool {
        self.failed_in_a_row += u32::from(silent);
        if let Some(subscription) = self.by_url.get_mut(&question.url) {
            subscription.versioned = false;
            let pause = subscription.backoff.next(random).min(self.pace.refresh.max(LEAST_PAUSE));
            subscription.next(now, pause);
        }
        silent && self.failed_in_a_row >= self.pace.failures
    }

    /// Something to ask that is asked anyway, to see whether the server is there; what it has answered, if there is such a thing.
    pub(crate) fn probe(&self) -> Option<Poll> {
        let wanted = || self.by_url.iter().filter(|(_, subscription)| subscription.wanted);
        let (url, subscription) =
            wanted().find(|(_, subscription)| subscription.ever_answered).or_else(|| wanted().next())?;
        Some(subscription.question(url, self.node.clone(), false))
    }
}

impl Topic {
    fn new(path: String) -> Self {
        Self {
            path,
            names: Vec::new(),
            version: String::new(),
            named: false,
            wanted: false,
            versioned: false,
            ever_answered: false,
            due: Some(Instant::now()),
            changed: false,
            backoff: Backoff::default(),
        }
    }

    fn ask(&mut self, url: &str, node: Option<Bytes>) -> Poll {
        (self.due, self.changed) = (None, false);
        self.question(url, node, self.versioned)
    }

    fn question(&self, url: &str, node: Option<Bytes>, conditional: bool) -> Poll {
        let request = DiscoveryRequest {
            node,
            type_url: url.to_owned(),
            resource_names: self.names.clone(),
            version_info: if conditional { self.version.clone() } else { String::new() },
            ..DiscoveryRequest::default()
        };
        Poll { url: url.to_owned(), path: self.path.clone(), request }
    }

    fn next(&mut self, now: Instant, pause: Duration) {
        self.due = Some(if std::mem::take(&mut self.changed) { now } else { now + pause });
    }
}

/// However short the delay between polls is, a server in trouble is left alone for so long.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
