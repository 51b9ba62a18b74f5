//! What `/resources` shows: the state of resource names in each view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::view::{AbsenceEvidence, Class, Presence, Snapshot, TableEntry};
use weir_core::xds::{Name, Type};

/// The state of one name in one view, in the wildcard set or subscribed by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ResourceReport {
    /// The hash of the sharing key.
    pub(crate) view: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) name: String,
    /// `wildcard` or `named`.
    pub(crate) subscription: &'static str,
    /// `present`, `absent` (known not to exist), `expired` (its TTL is over), or `error` (only an error is known).
    pub(crate) state: &'static str,
    /// The version that delta clients get.
    pub(crate) version: Option<String>,
    /// The server that it came from.
    pub(crate) server: Option<String>,
    /// Time since the state or the server changed.
    pub(crate) state_seconds: u64,
    /// The last error reported for it.
    pub(crate) error: Option<String>,
}

/// A filter for the resources to show.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResourceQuery {
    pub(crate) kind: Option<Type>,
    pub(crate) name: Option<Name>,
    /// A part of the name.
    pub(crate) contains: Option<String>,
    pub(crate) view: Option<String>,
    pub(crate) limit: usize,
    /// The last resource of the page before.
    pub(crate) after: Option<String>,
}

/// One page of resources, by type, name and view.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ResourcePage {
    pub(crate) resources: Vec<ResourceReport>,
    /// How many resources there are on all pages.
    pub(crate) total: usize,
    /// The value of `after` for the next page.
    pub(crate) next: Option<String>,
}

/// The state of one view at one moment. Reports search it without delaying the view.
pub(crate) struct ViewSnapshot {
    pub(crate) view: String,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) servers: Arc<[String]>,
    pub(crate) now: Moment,
}

impl ResourceQuery {
    fn takes(&self, name: &Name) -> bool {
        self.name.as_ref().is_none_or(|wanted| wanted == name)
            && self.contains.as_ref().is_none_or(|part| name.as_str().contains(part.as_str()))
    }

    /// Searches the views. Of a view that two configurations have, it searches the first: that of the newer one.
    pub(crate) fn page(&self, views: &[ViewSnapshot]) -> ResourcePage {
        let (mut page, mut total, mut searched) = (BTreeMap::new(), 0, BTreeSet::new());
        let is_wanted = |view: &ViewSnapshot| self.view.as_ref().is_none_or(|wanted| *wanted == view.view);
        for view in views.iter().filter(|view| is_wanted(view) && searched.insert(&view.view)) {
            let tables = view.snapshot.tables();
            for (kind, class, table) in tables.filter(|(kind, ..)| self.kind.as_ref().is_none_or(|of| of == *kind)) {
                for (name, entry) in table.entries().filter(|(name, _)| self.takes(name)) {
                    total += 1;
                    let place = [kind.name(), name.as_str(), &view.view, subscription(class)].join("\n");
                    if self.after.as_ref().is_none_or(|after| place > *after) {
                        page.insert(place, (view, kind, class, name, entry));
                        if page.len() > self.limit {
                            page.pop_last();
                        }
                    }
                }
            }
        }
        let next = page.last_key_value().filter(|_| page.len() == self.limit).map(|(place, _)| place.clone());
        let resources = page.into_values().map(|(view, kind, class, name, entry)| view.row(kind, class, name, entry));
        ResourcePage { resources: resources.collect(), total, next }
    }
}

impl ViewSnapshot {
    fn row(&self, kind: &Type, class: Class, name: &Name, entry: &TableEntry) -> ResourceReport {
        let present = match &entry.presence {
            Presence::Present(resource) => Some(resource),
            Presence::Absent(_) | Presence::Unknown => None,
        };
        ResourceReport {
            view: self.view.clone(),
            kind: kind.name().to_owned(),
            name: name.to_string(),
            subscription: subscription(class),
            state: match &entry.presence {
                Presence::Present(_) => "present",
                Presence::Absent(_) if entry.absence == AbsenceEvidence::Expired => "expired",
                Presence::Absent(_) => "absent",
                Presence::Unknown => "error",
            },
            version: present.map(|resource| resource.full.to_string()),
            server: present.and_then(|_| self.servers.get(usize::from(entry.origin.server)).cloned()),
            state_seconds: (self.now - entry.since).as_secs(),
            error: entry.error.as_ref().map(|(_, error)| error.message.clone()),
        }
    }
}

fn subscription(class: Class) -> &'static str {
    match class {
        Class::Wildcard => "wildcard",
        Class::Named => "named",
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_core::proto::{Any, discovery};
    use weir_core::protocol::view::{InterestChange, Selector, SessionId, Update, View};
    use weir_core::xds::{BodyStore, Resource, TypeTable};

    use super::*;

    /// Returns a view that has these clusters from one server.
    fn view(hash: &str, server: &str, names: &[&str]) -> ViewSnapshot {
        let (table, store) = (Arc::new(TypeTable::new()), BodyStore::default());
        let kind = table.resolve("envoy.config.cluster.v3.Cluster");
        let mut view = View::new(table, Arc::default());
        for name in names {
            let change = InterestChange { kind: kind.clone(), selector: Selector::Name((*name).into()), on: true };
            view.change_interest(SessionId(1), change, Moment::START);
            let resource = Some(Any { type_url: kind.url().into_owned(), value: Bytes::new() });
            let wrapper = discovery::Resource { name: (*name).into(), resource, ..Default::default() };
            let resource = Arc::new(Resource::from_wrapper(0, wrapper, &kind, &store).unwrap());
            let update = Update::Upsert { kind: kind.clone(), class: Class::Named, key: (*name).into(), resource };
            view.apply(vec![update], Moment::START);
        }
        view.publish();
        let (snapshot, servers) = (view.snapshot().clone(), Arc::new([server.to_owned()]));
        ViewSnapshot { view: hash.to_owned(), snapshot, servers, now: Moment::START }
    }

    #[test]
    fn a_view_that_two_configurations_have_is_shown_and_counted_as_the_newer_one_has_it() {
        let views = [view("v", "new", &["a"]), view("w", "new", &["a"]), view("v", "old", &["a", "b"])];
        let shown = |view: Option<&str>, limit| {
            let query = ResourceQuery { view: view.map(str::to_owned), limit, ..ResourceQuery::default() };
            let page = query.page(&views);
            let row = |of: ResourceReport| format!("{} {} {}", of.view, of.name, of.server.unwrap());
            (page.resources.into_iter().map(row).collect::<Vec<_>>().join(", "), page.total)
        };
        assert_eq!(shown(None, 9), ("v a new, w a new".to_owned(), 2));
        assert_eq!(shown(None, 1), ("v a new".to_owned(), 2));
        assert_eq!(shown(Some("v"), 9), ("v a new".to_owned(), 1));
    }
}
