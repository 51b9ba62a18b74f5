//! The requests of one stream to a REST server: a poll for each type, when it is due, and its contents. No sockets, no clock.
//!
//! A view sends requests to this source as to a stream. The last request of a type is repeated as polls, as long as the view subscribes to anything
//! of the type.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use weir_core::proto::discovery::DiscoveryRequest;
use weir_core::protocol::upstream::Backoff;
use weir_core::xds::{RestPath, TypeTable, WILDCARD};

/// One poll: its path and its request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Poll {
    pub(crate) url: String,
    pub(crate) path: String,
    pub(crate) request: DiscoveryRequest,
}

/// How often polls are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PollSchedule {
    /// The delay between an answer and the next poll, plus up to the same again (REST-10).
    pub(crate) refresh: Duration,
    /// How many polls in a row, of any types, fail before the server counts as unreachable, if every type has failed.
    pub(crate) failures: u32,
}

#[derive(Debug)]
pub(super) struct Polls {
    by_url: BTreeMap<String, PolledType>,
    node: Option<Bytes>,
    pace: PollSchedule,
    failed_in_a_row: u32,
    answers: u64,
}

#[derive(Debug)]
struct PolledType {
    path: String,
    names: Vec<String>,
    /// The version that the view has ACKed.
    version: String,
    /// The subscription has had names, so that an empty list no longer means the wildcard (SOTW-38).
    named: bool,
    wanted: bool,
    /// Whether the version may be stated: the last answer had it, was to the same request, and had no resource with a TTL (REST-8).
    versioned: bool,
    /// The number of the last answer; 0: there was none.
    last_answer: u64,
    /// The last poll failed.
    has_failed: bool,
    /// The last poll was refused because of the poller, not because of its type.
    is_refused: bool,
    /// None while a poll is under way.
    due: Option<Instant>,
    /// The request has changed since the poll under way was sent.
    changed: bool,
    backoff: Backoff,
}

/// When a changed request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepted {
    Now,
    /// After the poll under way. Until then, the server's silence about the request is no evidence.
    Later,
    /// REST has no path for the type.
    NoPath,
}

impl Polls {
    pub(crate) fn new(pace: PollSchedule) -> Self {
        Self { by_url: BTreeMap::new(), node: None, pace, failed_in_a_row: 0, answers: 0 }
    }

    /// Applies a request of the view: a changed subscription, an ACK or a NACK.
    pub(crate) fn take(&mut self, request: DiscoveryRequest, table: &TypeTable, now: Instant) -> Accepted {
        self.node = request.node.or(self.node.take());
        let url = request.type_url;
        let kind = table.resolve(&url);
        let Some(path) = RestPath::for_type(kind.name()) else { return Accepted::NoPath };
        let subscription = self.by_url.entry(url).or_insert_with(|| PolledType::new(path));
        subscription.version = request.version_info;
        // Part of a rejected answer may have been applied. If the version before it were stated, the server would not send the rest again.
        subscription.versioned &= request.error_detail.is_none();
        subscription.named |= !request.resource_names.is_empty();
        // Each poll is a first request, where an empty list means the wildcard (REST-11).
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
                    return Accepted::Later;
                }
            }
        }
        Accepted::Now
    }

    /// Returns the polls that are due. Each is under way from now on, until its result is reported.
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

    /// Records the answer to a poll, with or without a change. `has_ttl`: a resource in it has a TTL and has to be sent again. Returns the number of
    /// the answer.
    pub(crate) fn answered(&mut self, question: &Poll, has_ttl: bool, now: Instant, random: f64) -> u64 {
        self.failed_in_a_row = 0;
        self.answers += 1;
        let refresh = self.pace.refresh.mul_f64(1.0 + random.clamp(0.0, 1.0));
        if let Some(subscription) = self.by_url.get_mut(&question.url) {
            subscription.backoff.reset();
            subscription.versioned = !has_ttl && !subscription.changed;
            (subscription.last_answer, subscription.has_failed) = (self.answers, false);
            subscription.is_refused = false;
            subscription.next(now, refresh);
        }
        self.answers
    }

    /// Records a failed poll. Returns whether the server counts as unreachable. Only silence counts: an error for one type is not a reason to leave the
    /// server for all other types. Nor does an error make up for silence: a gateway may answer it, and a type that the server never has would keep
    /// clients at a server that answers nothing else any more. Silence about some types counts only once every type has failed. That is found out in
    /// time: with the poll whose failure would be one too many, the types that have not failed are polled too.
    pub(crate) fn failed(&mut self, question: &Poll, silent: bool, now: Instant, random: f64) -> bool {
        self.failed_in_a_row += u32::from(silent);
        let Some(subscription) = self.by_url.get_mut(&question.url) else { return false };
        (subscription.versioned, subscription.has_failed) = (false, true);
        let pause = subscription.backoff.next(random).min(self.pace.refresh.max(LEAST_PAUSE));
        subscription.next(now, pause);
        let again = subscription.due;
        if !silent || self.failed_in_a_row + 1 < self.pace.failures {
            return false;
        }
        let mut others = self.by_url.values_mut().filter(|other| other.wanted && !other.has_failed).peekable();
        let have_all_failed = others.peek().is_none();
        others.for_each(|other| other.due = other.due.min(again)); // none while a poll is under way
        have_all_failed && self.failed_in_a_row >= self.pace.failures
    }

    /// Records a failed poll by which the server does not refuse the poller.
    pub(crate) fn not_refused(&mut self, question: &Poll) {
        if let Some(subscription) = self.by_url.get_mut(&question.url) {
            subscription.is_refused = false;
        }
    }

    /// Records that the server refuses the poller. Returns whether it does so for every polled type.
    pub(crate) fn refused(&mut self, question: &Poll) -> bool {
        if let Some(subscription) = self.by_url.get_mut(&question.url) {
            subscription.is_refused = true;
        }
        self.by_url.values().filter(|subscription| subscription.wanted).all(|subscription| subscription.is_refused)
    }

    /// Returns polls that test whether the server is alive, first those of types that it has answered last: it may never answer others.
    pub(crate) fn probes(&self) -> Vec<Poll> {
        let mut wanted: Vec<_> = self.by_url.iter().filter(|(_, subscription)| subscription.wanted).collect();
        wanted.sort_by_key(|(_, subscription)| Reverse(subscription.last_answer));
        let question =
            |(url, subscription): (&String, &PolledType)| subscription.question(url, self.node.clone(), false);
        wanted.into_iter().map(question).collect()
    }
}

impl PolledType {
    fn new(path: String) -> Self {
        Self {
            path,
            names: Vec::new(),
            version: String::new(),
            named: false,
            wanted: false,
            versioned: false,
            last_answer: 0,
            has_failed: false,
            is_refused: false,
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

/// The shortest pause after a failure, even if the delay between polls is shorter.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
