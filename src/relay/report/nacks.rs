//! What `/nacks` shows: for each view and type, how many clients accepted which version, how many NACK it and why, and how many have yet
//! to answer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::TypeAnswers;
use weir_core::xds::truncate;
use weir_core::xds::{Name, Type, VersionText};

use super::clients::HoldingsSource;

/// A session whose answers can be counted. This takes the session's lock, and no other.
pub(crate) trait AnswersSource: HoldingsSource {
    fn count(&self, into: &mut NackCounts);
}

/// The sessions of one view.
pub(crate) struct ViewSessions {
    pub(crate) view: String,
    pub(crate) sessions: Vec<Arc<dyn AnswersSource>>,
    pub(crate) now: Moment,
}

/// A filter for what to show.
#[derive(Debug, Clone, Default)]
pub(crate) struct NackQuery {
    pub(crate) kind: Option<Type>,
    pub(crate) view: Option<String>,
    /// Only types with NACKs.
    pub(crate) nacked: bool,
    pub(crate) limit: usize,
}

/// The answers of the clients of one view, summed by type.
#[derive(Debug, Default)]
pub(crate) struct NackCounts {
    only: Option<Type>,
    types: BTreeMap<Type, TypeCounts>,
}

#[derive(Debug, Default)]
struct TypeCounts {
    clients: usize,
    acked: usize,
    nacked: usize,
    pending: usize,
    since: Option<Moment>,
    agents: BTreeMap<Box<str>, AgentCounts>,
    versions: HashMap<VersionText, VersionCounts>,
}

#[derive(Debug, Default, Clone, Copy)]
struct AgentCounts {
    clients: usize,
    nacked: usize,
}

#[derive(Debug, Default)]
struct VersionCounts {
    newest: usize,
    acked: usize,
    nacked: usize,
    pending: usize,
    since: Option<Moment>,
    nodes: Vec<String>,
    reasons: BTreeMap<Arc<str>, ReasonCounts>,
    other_reasons: usize,
    suspected: BTreeMap<Name, usize>,
    in_reply: BTreeMap<Name, usize>,
}

/// The clients that give a reason.
#[derive(Debug, Default)]
struct ReasonCounts {
    clients: usize,
    nodes: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct NackPage {
    pub(crate) types: Vec<NackReport>,
    /// How many there are without the limit.
    pub(crate) total: usize,
}

/// One type in one view.
#[derive(Debug, Serialize)]
pub(crate) struct NackReport {
    pub(crate) view: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Clients that were sent something of the type. Each is in one of the three following.
    pub(crate) clients: usize,
    pub(crate) acked: usize,
    pub(crate) nacked: usize,
    pub(crate) pending: usize,
    pub(crate) nacked_seconds: Option<u64>,
    pub(crate) user_agents: Vec<AgentReport>,
    pub(crate) versions: Vec<VersionReport>,
    pub(crate) other_versions: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct AgentReport {
    pub(crate) user_agent: String,
    pub(crate) clients: usize,
    pub(crate) nacked: usize,
}

/// One version of a type in a view.
#[derive(Debug, Serialize)]
pub(crate) struct VersionReport {
    pub(crate) version: String,
    /// Clients that were sent no newer version.
    pub(crate) newest: usize,
    /// Clients that accepted this version and no newer one.
    pub(crate) acked: usize,
    pub(crate) nacked: usize,
    pub(crate) pending: usize,
    pub(crate) nacked_seconds: Option<u64>,
    /// The first few clients that NACK it.
    pub(crate) nodes: Vec<String>,
    pub(crate) reasons: Vec<ReasonReport>,
    /// Clients with other reasons.
    pub(crate) other_reasons: usize,
    /// Resources that reasons quote, or that were alone in a reply.
    pub(crate) suspected: Vec<SuspectReport>,
    /// What else the rejected replies had, as far as that is remembered.
    pub(crate) in_reply: Vec<SuspectReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ReasonReport {
    pub(crate) reason: String,
    pub(crate) clients: usize,
    /// The first few clients that give it.
    pub(crate) nodes: Vec<String>,
}

/// A resource, and the number of clients that it concerns.
#[derive(Debug, Serialize)]
pub(crate) struct SuspectReport {
    pub(crate) name: String,
    pub(crate) clients: usize,
}

impl NackCounts {
    /// Adds the answers of a client to the replies of one type.
    pub(crate) fn add(&mut self, answers: &TypeAnswers<'_>, node: &str, user_agent: &str) {
        if self.only.as_ref().is_some_and(|only| only != answers.kind) {
            return;
        }
        let of_type = match self.types.get_mut(answers.kind) {
            Some(of_type) => of_type,
            None => self.types.entry(answers.kind.clone()).or_default(),
        };
        of_type.add(answers, node, user_agent);
    }
}

impl TypeCounts {
    fn add(&mut self, answers: &TypeAnswers<'_>, node: &str, user_agent: &str) {
        let TypeAnswers { kind: _, newest, is_pending, accepted, nack } = *answers;
        self.clients += 1;
        let agent =
            if self.agents.contains_key(user_agent) || self.agents.len() < MOST_AGENTS { user_agent } else { OTHER };
        let agent = match self.agents.get_mut(agent) {
            Some(agent) => agent,
            None => self.agents.entry(agent.into()).or_default(),
        };
        agent.clients += 1;
        match nack {
            Some(nack) => {
                self.nacked += 1;
                agent.nacked += 1;
                self.since = Some(self.since.map_or(nack.since, |since| since.min(nack.since)));
            }
            None if is_pending => self.pending += 1,
            None => self.acked += 1,
        }
        let of_newest = self.versions.entry(newest.version.text()).or_default();
        of_newest.newest += 1;
        let is_of_nack = |version| nack.is_some_and(|nack| nack.reply.version == version);
        of_newest.pending += usize::from(is_pending && !is_of_nack(newest.version));
        if let Some(accepted) = accepted.filter(|accepted| !is_of_nack(accepted.version)) {
            self.versions.entry(accepted.version.text()).or_default().acked += 1;
        }
        let Some(nack) = nack else { return };
        let version = self.versions.entry(nack.reply.version.text()).or_default();
        version.nacked += 1;
        version.since = Some(version.since.map_or(nack.at, |since| since.min(nack.at)));
        if version.nodes.len() < MOST_NODES {
            version.nodes.push(truncate(node, NODE_BYTES));
        }
        version.add_reason(&nack.reason, node);
        for name in nack.suspects() {
            count_one(&mut version.suspected, name, MOST_SUSPECTED); // a bounded number is shown
        }
        for name in nack.others_in_reply() {
            count_one(&mut version.in_reply, name, MOST_SUSPECTED);
        }
    }

    fn report(self, view: &str, kind: &Type, now: Moment) -> NackReport {
        let agents = self.agents.into_iter().map(|(agent, AgentCounts { clients, nacked })| {
            let user_agent = agent.into_string();
            AgentReport { user_agent, clients, nacked }
        });
        let mut user_agents: Vec<_> = agents.collect();
        user_agents.sort_by_key(|agent| Reverse((agent.nacked, agent.clients)));
        let mut versions: Vec<_> = self.versions.into_iter().collect();
        versions.sort_by_key(|(version, of)| (Reverse((of.nacked, of.newest, of.acked)), *version));
        let other_versions = versions.len().saturating_sub(MOST_VERSIONS);
        versions.truncate(MOST_VERSIONS);
        NackReport {
            view: view.to_owned(),
            kind: kind.name().to_owned(),
            clients: self.clients,
            acked: self.acked,
            nacked: self.nacked,
            pending: self.pending,
            nacked_seconds: self.since.map(|since| (now - since).as_secs()),
            user_agents,
            versions: versions.into_iter().map(|(version, of)| of.report(&version, now)).collect(),
            other_versions,
        }
    }
}

/// Counts a key, unless there is no room for another one.
fn count_one<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K, most: usize) -> bool {
    if let Some(count) = counts.get_mut(key) {
        *count += 1;
    } else if counts.len() < most {
        counts.insert(key.clone(), 1);
    } else {
        return false;
    }
    true
}

impl VersionCounts {
    /// Counts a client for its reason, or among the others if there is no room for another reason.
    fn add_reason(&mut self, reason: &Arc<str>, node: &str) {
        if !self.reasons.contains_key(reason) && self.reasons.len() >= MOST_REASONS {
            self.other_reasons += 1;
            return;
        }
        let of_reason = self.reasons.entry(reason.clone()).or_default();
        of_reason.clients += 1;
        if of_reason.nodes.len() < MOST_NODES {
            of_reason.nodes.push(truncate(node, NODE_BYTES));
        }
    }

    fn report(self, version: &VersionText, now: Moment) -> VersionReport {
        let reasons = self.reasons.into_iter();
        let mut reasons: Vec<_> = reasons
            .map(|(reason, ReasonCounts { clients, nodes })| ReasonReport {
                reason: truncate(&reason, REASON_BYTES),
                clients,
                nodes,
            })
            .collect();
        reasons.sort_by_key(|reason| Reverse(reason.clients));
        VersionReport {
            version: String::from_utf8_lossy(version).into_owned(),
            newest: self.newest,
            acked: self.acked,
            nacked: self.nacked,
            pending: self.pending,
            nacked_seconds: self.since.map(|since| (now - since).as_secs()),
            nodes: self.nodes,
            reasons,
            other_reasons: self.other_reasons,
            suspected: suspects(self.suspected),
            in_reply: suspects(self.in_reply),
        }
    }
}

/// Returns the resources with the most clients first.
fn suspects(counts: BTreeMap<Name, usize>) -> Vec<SuspectReport> {
    let all = counts.into_iter();
    let mut all: Vec<_> = all.map(|(name, clients)| SuspectReport { name: name.to_string(), clients }).collect();
    all.sort_by_key(|suspect| Reverse(suspect.clients));
    all
}

impl NackQuery {
    /// Counts the answers of a view's clients.
    pub(crate) fn reports(&self, view: &ViewSessions) -> Vec<NackReport> {
        if self.view.as_ref().is_some_and(|wanted| *wanted != view.view) {
            return Vec::new();
        }
        let mut counts = NackCounts { only: self.kind.clone(), types: BTreeMap::new() };
        view.sessions.iter().for_each(|session| session.count(&mut counts));
        let types = counts.types.into_iter().filter(|(_, of)| of.nacked > 0 || !self.nacked);
        types.map(|(kind, of)| of.report(&view.view, &kind, view.now)).collect()
    }

    /// Adds the reports of a view to a page, those with the most NACKs first.
    pub(crate) fn add(&self, reports: Vec<NackReport>, page: &mut NackPage) {
        page.total += reports.len();
        page.types.extend(reports);
        let place = |of: &NackReport| (Reverse(of.nacked), of.view.clone(), of.kind.clone());
        page.types.sort_by_cached_key(place);
        page.types.truncate(self.limit);
    }
}

/// The label for all other user agents, since clients can invent them.
const OTHER: &str = "other";
const MOST_AGENTS: usize = 32;
const MOST_VERSIONS: usize = 16;
const MOST_REASONS: usize = 8;
/// How much of a reason is shown. The log line of the NACK and `/clients` have more.
const REASON_BYTES: usize = 512;
const MOST_SUSPECTED: usize = 16;
const MOST_NODES: usize = 10;
const NODE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_that_most_clients_give_is_first() {
        let mut counts = VersionCounts::default();
        for reason in ["a", "b", "c", "b", "c", "c"] {
            counts.add_reason(&reason.into(), "node");
        }
        let reasons = counts.report(&VersionText::default(), Moment::START).reasons;
        let reasons: Vec<_> = reasons.iter().map(|of| (of.reason.as_str(), of.clients)).collect();
        assert_eq!(reasons, [("c", 3), ("b", 2), ("a", 1)]);
    }
}
