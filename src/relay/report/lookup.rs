//! What `/resources` shows: what views know under the names of resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::protocol::moment::Moment;
use crate::protocol::view::{AbsenceEvidence, Class, Entry, Presence, Snapshot};
use crate::xds::{Name, Type};

/// What a view knows of one name, from the wildcard or from the name by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceReport {
    /// The hash of the sharing key.
    pub view: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    /// `wildcard` or `named`.
    pub subscription: &'static str,
    /// `present`, `absent` (known not to exist), `expired` (its TTL is over), or `error` (nothing but an error is known).
    pub state: &'static str,
    /// The version that delta clients see.
    pub version: Option<String>,
    /// The server that it came from.
    pub server: Option<String>,
    /// Time since the state or the server changed.
    pub state_seconds: u64,
    /// The last error reported for it.
    pub error: Option<String>,
}

/// Which resources are shown.
#[derive(Debug, Clone, Default)]
pub struct ResourceQuery {
    pub kind: Option<Type>,
    pub name: Option<Name>,
    /// A part of the name.
    pub contains: Option<String>,
    pub view: Option<String>,
    pub limit: usize,
    /// The last of the page before.
    pub after: Option<String>,
}

/// One page of resources, by type, name and view.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResourcePage {
    pub resources: Vec<ResourceReport>,
    /// How many there are on all pages.
    pub total: usize,
    /// What `after` has to be for the next page.
    pub next: Option<String>,
}

/// What one view knows at one moment. Whoever asks looks through it, and keeps nobody waiting.
pub struct ViewSnapshot {
    pub view: String,
    pub snapshot: Arc<Snapshot>,
    pub servers: Arc<[String]>,
    pub now: Moment,
}

impl ResourceQuery {
    fn takes(&self, name: &Name) -> bool {
        self.name.as_ref().is_none_or(|wanted| wanted == name)
            && self.contains.as_ref().is_none_or(|part| name.as_str().contains(part.as_str()))
    }

    /// Looks through what the views know.
    pub fn page(&self, views: &[ViewSnapshot]) -> ResourcePage {
        let (mut page, mut total) = (BTreeMap::new(), 0);
        for view in views.iter().filter(|view| self.view.as_ref().is_none_or(|wanted| *wanted == view.view)) {
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
    fn row(&self, kind: &Type, class: Class, name: &Name, entry: &Entry) -> ResourceReport {
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
