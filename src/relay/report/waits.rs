//! Waits over all views and sessions: sums by kind, and the oldest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use weir_core::protocol::view::Selector;
use weir_core::protocol::wait::{Wait, WaitKind, WaitList, WaitSubject, WaitSum};
use weir_core::xds::WILDCARD;

/// The waits of one view, without those of its sessions.
#[derive(Debug)]
pub(crate) struct ViewWaits {
    pub(crate) view: String,
    /// The servers' names, by their places in the plan.
    pub(crate) servers: Vec<String>,
    pub(crate) list: WaitList,
}

/// Identifies a wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitKey {
    pub(crate) kind: WaitKind,
    pub(crate) view: String,
    pub(crate) session: Option<u64>,
    pub(crate) subject: WaitSubject,
}

/// All waits at one moment.
#[derive(Debug, Default)]
pub(crate) struct WaitReport {
    views: BTreeMap<String, BTreeMap<WaitKind, WaitSum>>,
    oldest: Vec<WaitRow>,
    limit: usize,
    /// Waits beyond their bounds.
    pub(crate) beyond: BTreeSet<WaitKey>,
}

/// A page of waits.
#[derive(Debug, Serialize)]
pub(crate) struct WaitPage {
    views: Vec<ViewSums>,
    oldest: Vec<WaitRow>,
}

/// The waits of one view and its sessions.
#[derive(Debug, Serialize)]
struct ViewSums {
    view: String,
    waits: Vec<KindSum>,
}

#[derive(Debug, Serialize)]
struct KindSum {
    wait: &'static str,
    count: usize,
    oldest_seconds: f64,
    beyond: usize,
}

/// One wait.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct WaitRow {
    wait: &'static str,
    view: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    what: &'static str,
    seconds: f64,
    bound_seconds: Option<f64>,
    /// Why there is no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    unbounded: Option<&'static str>,
    beyond: bool,
    /// The option that sets the bound.
    key: Option<&'static str>,
}

impl WaitReport {
    /// Returns an empty report that keeps so many of the oldest waits.
    pub(crate) fn keeping(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Returns an empty list for the waits of one owner.
    pub(crate) fn list(&self) -> WaitList {
        WaitList::keeping(self.limit)
    }

    /// Adds the waits of a view, or of one of its sessions.
    pub(crate) fn add(&mut self, view: &str, session: Option<u64>, servers: &[String], list: WaitList) {
        for (kind, sum) in list.sums() {
            let of_view = match self.views.get_mut(view) {
                Some(of_view) => of_view,
                None => self.views.entry(view.to_owned()).or_default(),
            };
            of_view.entry(kind).or_default().absorb(&sum);
        }
        self.beyond.extend(list.beyond().iter().map(|wait| WaitKey {
            kind: wait.kind,
            view: view.to_owned(),
            session,
            subject: wait.subject.clone(),
        }));
        self.oldest.extend(list.into_oldest().into_iter().map(|wait| WaitRow::of(&wait, view, session, servers)));
        if self.oldest.len() >= 2 * self.limit {
            self.shorten();
        }
    }

    /// Returns the sums over all views.
    pub(crate) fn sums(&self) -> BTreeMap<WaitKind, WaitSum> {
        let mut all = BTreeMap::<WaitKind, WaitSum>::new();
        for (kind, sum) in self.views.values().flatten() {
            all.entry(*kind).or_default().absorb(sum);
        }
        all
    }

    pub(crate) fn into_page(mut self) -> WaitPage {
        self.shorten();
        let oldest = |of: &BTreeMap<WaitKind, WaitSum>| of.values().map(|sum| sum.oldest).max();
        let mut views: Vec<_> = self.views.into_iter().collect();
        views.sort_by_key(|(_, of)| Reverse(oldest(of)));
        views.truncate(self.limit);
        let row = |(kind, sum): (WaitKind, WaitSum)| KindSum {
            wait: kind.name(),
            count: sum.count,
            oldest_seconds: sum.oldest.as_secs_f64(),
            beyond: sum.beyond,
        };
        let sums = |(view, of): (String, BTreeMap<_, _>)| ViewSums { view, waits: of.into_iter().map(row).collect() };
        WaitPage { views: views.into_iter().map(sums).collect(), oldest: self.oldest }
    }

    fn shorten(&mut self) {
        self.oldest.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        self.oldest.truncate(self.limit);
    }
}

impl WaitRow {
    pub(crate) fn of(wait: &Wait, view: &str, session: Option<u64>, servers: &[String]) -> Self {
        let (row, subject) = (wait.kind.row(), &wait.subject);
        Self {
            wait: row.name,
            view: view.to_owned(),
            session,
            server: subject.server.and_then(|server| servers.get(server).cloned()),
            authority: subject.authority.as_ref().map(|authority| authority.name().to_owned()),
            kind: subject.kind.as_ref().map(|kind| kind.name().to_owned()),
            name: subject.of.as_ref().map(|of| match of {
                Selector::Wildcard => WILDCARD.to_owned(),
                Selector::Name(name) => name.to_string(),
            }),
            what: row.what,
            seconds: wait.age.as_secs_f64(),
            bound_seconds: wait.bound.map(|bound| bound.as_secs_f64()),
            unbounded: wait.bound.is_none().then_some(AWAY),
            beyond: wait.is_beyond(),
            key: Some(row.key).filter(|key| !key.is_empty()),
        }
    }
}

/// Why a wait has no bound.
const AWAY: &str = "the control plane is away";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn list(limit: usize, ages: &[u64]) -> WaitList {
        let mut list = WaitList::keeping(limit);
        for age in ages {
            let subject = || WaitSubject { server: Some(0), ..WaitSubject::default() };
            list.add(WaitKind::Name, Duration::from_secs(*age), Some(Duration::from_secs(10)), subject);
        }
        list
    }

    #[test]
    fn waits_of_views_and_sessions_add_up_and_the_oldest_of_all_are_shown() {
        let mut report = WaitReport::keeping(2);
        report.add("one", None, &["http://a".into()], list(2, &[3, 1]));
        report.add("one", Some(7), &[], list(2, &[30]));
        report.add("two", None, &["http://b".into()], list(2, &[4, 2, 20]));
        let total = WaitSum { count: 6, oldest: Duration::from_secs(30), beyond: 2 };
        assert_eq!(report.sums(), BTreeMap::from([(WaitKind::Name, total)]));
        let owners: Vec<_> = report.beyond.iter().map(|key| (key.view.as_str(), key.session)).collect();
        assert_eq!(owners, [("one", Some(7)), ("two", None)]);
        let page = serde_json::to_value(report.into_page()).unwrap();
        assert_eq!(page["views"][0]["view"], "one");
        assert_eq!(page["views"][0]["waits"][0]["count"], 3);
        let rows = page["oldest"].as_array().unwrap();
        let shown: Vec<_> = rows.iter().map(|row| (row["seconds"].clone(), row["server"].clone())).collect();
        assert_eq!(shown, [(30.0.into(), serde_json::Value::Null), (20.0.into(), "http://b".into())]);
    }
}
