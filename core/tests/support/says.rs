//! What a server says and what a view holds, without the types of the core. Only this folder has to change with those.

use std::time::Duration;

use weir_core::proto::discovery::Resource as Wrapper;
use weir_core::protocol::view::{
    Claim, Claimed, Class, Completeness, Evidence, InterestChange, Lookup, NamedError, Retain, SavedSet, Selector,
    SessionId, TableEntry, Update,
};
use weir_core::xds::TypeTable;

use super::streams::ONE;
use super::{Bench, RDS, wrapper};

/// A set of resources of a type. What a server says of one says nothing of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set<'a> {
    /// `*`.
    All,
    Glob(&'a str),
    /// All that is given under its own name, also as a member of a glob.
    Names,
}

impl Set<'_> {
    pub fn class(self) -> Class {
        if self == Self::All { Class::Wildcard } else { Class::Named }
    }

    fn selector(self) -> Selector {
        match self {
            Self::All => Selector::Wildcard,
            Self::Glob(name) => Selector::Name(name.into()),
            Self::Names => panic!("single names have no end"),
        }
    }
}

/// How much of a set is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    Unknown,
    /// A part, from a server that sends its sets in pieces.
    Arriving,
    /// The first response.
    First,
    /// It was quiet after that.
    Settled,
    Complete,
}

const EXTENTS: [(Extent, Completeness); 5] = [
    (Extent::Unknown, Completeness::Unknown),
    (Extent::Arriving, Completeness::Arriving),
    (Extent::First, Completeness::FirstResponse),
    (Extent::Settled, Completeness::Settled),
    (Extent::Complete, Completeness::Complete),
];

/// Returns a change of what a session requests: `*` or a name.
pub fn interest(table: &TypeTable, url: &str, name: &str, on: bool) -> InterestChange {
    let selector = if name == "*" { Selector::Wildcard } else { Selector::Name(name.into()) };
    InterestChange { kind: table.resolve(url), selector, on }
}

/// What the server says.
impl Bench {
    /// Gives resources for `*` and for their names, the same for both.
    pub fn set(&mut self, url: &str, resources: &[(&str, &str)]) {
        let mut updates = Vec::new();
        for (name, content) in resources {
            let resource = self.resource(url, name, content);
            for class in [Class::Wildcard, Class::Named] {
                let (kind, key, resource) = (self.kind(url), (*name).into(), resource.clone());
                updates.push(Update::Upsert { kind, class, key, resource });
            }
        }
        self.apply(updates);
    }

    /// Gives resources of one set in one response.
    pub fn gives(&mut self, url: &str, set: Set, resources: &[(&str, &str)]) {
        self.gives_as(url, set, resources.iter().map(|(name, content)| (*name, wrapper(url, name, content))));
    }

    /// Like [`gives`](Self::gives), each as the answer to a name: its own one or an alias.
    pub fn gives_as<'a>(&mut self, url: &str, set: Set, answers: impl IntoIterator<Item = (&'a str, Wrapper)>) {
        let (kind, class) = (self.kind(url), set.class());
        let update = |(name, wrapper): (&str, Wrapper)| {
            let resource = self.of_wrapper(url, wrapper);
            Update::Upsert { kind: kind.clone(), class, key: name.into(), resource }
        };
        let updates = answers.into_iter().map(update).collect();
        self.apply(updates);
    }

    /// Gives one resource for the name `key`, or for `*` if that is the key.
    pub fn give(&mut self, url: &str, key: &str, content: &str, change: impl FnOnce(&mut Wrapper)) {
        let mut wrapper = wrapper(url, key, content);
        change(&mut wrapper);
        let own = wrapper.name.clone();
        let (set, name) = if key == "*" { (Set::All, own.as_str()) } else { (Set::Names, key) };
        self.gives_as(url, set, [(name, wrapper)]);
    }

    /// Gives one resource more of `*`, of which this much is known then.
    pub fn piece(&mut self, url: &str, name: &str, extent: Extent) {
        self.gives(url, Set::All, &[(name, "1")]);
        self.reaches(url, Set::All, extent);
    }

    /// Gives the complete `*` set.
    pub fn whole(&mut self, url: &str, resources: &[(&str, &str)]) {
        self.whole_of(url, resources.iter().map(|(name, content)| wrapper(url, name, content)));
    }

    pub fn whole_of(&mut self, url: &str, wrappers: impl IntoIterator<Item = Wrapper>) {
        let resources = wrappers.into_iter().map(|wrapper| self.of_wrapper(url, wrapper)).collect();
        self.apply(vec![Update::FullSet { kind: self.kind(url), resources, retain: Retain::nothing() }]);
    }

    /// Has shown this much of a set.
    pub fn reaches(&mut self, url: &str, set: Set, extent: Extent) {
        let (_, completeness) = EXTENTS[extent as usize];
        self.apply(vec![Update::Progress { kind: self.kind(url), of: set.selector(), completeness }]);
    }

    /// Is lost while it sends a set.
    pub fn cut(&mut self, url: &str, set: Set) {
        self.apply(vec![Update::Interrupted { kind: self.kind(url), of: set.selector() }]);
    }

    /// Removes a resource from `*` and from what is requested by name.
    pub fn remove(&mut self, url: &str, name: &str) {
        let updates = [Set::All, Set::Names].map(|set| self.absent(url, set, name, Evidence::Reported)).into();
        self.apply(updates);
    }

    /// Reports in one response that a set has none of these names.
    pub fn removes(&mut self, url: &str, set: Set, names: &[impl AsRef<str>]) {
        let updates = names.iter().map(|name| self.absent(url, set, name.as_ref(), Evidence::Reported)).collect();
        self.apply(updates);
    }

    /// Does not answer the request for a name, although it is alive.
    pub fn ignores(&mut self, url: &str, name: &str) {
        self.apply(vec![self.absent(url, Set::Names, name, Evidence::Silence)]);
    }

    fn absent(&self, url: &str, set: Set, name: &str, evidence: Evidence) -> Update {
        Update::Absent { kind: self.kind(url), class: set.class(), key: name.into(), evidence }
    }

    /// Lets a resource live for so many seconds from now on.
    pub fn prolongs(&mut self, url: &str, set: Set, name: &str, seconds: u64) {
        let (kind, class, ttl) = (self.kind(url), set.class(), Some(Duration::from_secs(seconds)));
        self.apply(vec![Update::Refresh { kind, class, key: name.into(), ttl }]);
    }

    /// Reports an error for a name.
    pub fn fails(&mut self, url: &str, name: &str, code: i32) {
        let error = NamedError { code, message: "as upstream says".into() }.into();
        self.apply(vec![Update::Error { kind: self.kind(url), key: name.into(), error }]);
    }

    /// Gives a resource of `*` that nobody can read.
    pub fn garbles(&mut self, url: &str, name: &str) {
        let names = [name.into()].into();
        self.apply(vec![Update::Unreadable { kind: self.kind(url), of: Selector::Wildcard, names }]);
    }

    /// Gives a resource of `*` for which the view has no room.
    pub fn overfills(&mut self, url: &str, name: &str) {
        self.apply(vec![Update::WithoutRoom { kind: self.kind(url), class: Class::Wildcard, key: name.into() }]);
    }

    pub fn apply(&mut self, updates: Vec<Update>) {
        self.view.apply(updates, self.now);
        if self.publishes {
            self.publish();
        }
    }
}

/// What the view holds.
impl Bench {
    fn entry(&self, url: &str, set: Set, name: &str) -> Option<&TableEntry> {
        self.view.snapshot().resources(&self.kind(url), set.class())?.get(&name.into())
    }

    /// Returns the last letter of the body that is cached under a name, or `gone`, or `unknown`.
    pub fn held(&self, url: &str, set: Set, name: &str) -> String {
        match self.view.snapshot().lookup(&self.kind(url), set.class(), &name.into()) {
            Lookup::Unknown => "unknown".into(),
            Lookup::Absent(_) => "gone".into(),
            Lookup::Present(resource) => {
                String::from_utf8_lossy(&resource.body.bytes()[resource.body.bytes().len() - 1..]).into()
            }
        }
    }

    /// Returns the clusters to which a route configuration refers, as clients have it.
    pub fn leads(&self, route: &str) -> Vec<String> {
        let kind = self.kind(RDS);
        match self.view.snapshot().lookup(&kind, Class::Named, &route.into()) {
            Lookup::Present(route) => route.body.clusters(&kind).iter().map(ToString::to_string).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether there is a trace of a name.
    pub fn remembers(&self, url: &str, set: Set, name: &str) -> bool {
        self.entry(url, set, name).is_some()
    }

    /// Returns the error that is known for a name.
    pub fn error_of(&self, url: &str, name: &str) -> Option<i32> {
        self.entry(url, Set::Names, name)?.error.as_ref().map(|(_, error)| error.code)
    }

    /// Whether a name is known to be absent also to those that hold it.
    pub fn is_denied(&self, url: &str, name: &str) -> bool {
        let table = self.view.snapshot().resources(&self.kind(url), Class::Named).unwrap();
        table.coverage().is_absent_by_evidence(table.get(&name.into()).unwrap())
    }

    /// Whether all that was given of `*` could be read.
    pub fn is_readable(&self, url: &str) -> bool {
        self.view.snapshot().resources(&self.kind(url), Class::Wildcard).unwrap().coverage().is_readable()
    }

    pub fn extent(&self, url: &str, set: Set) -> Extent {
        let table = self.view.snapshot().resources(&self.kind(url), set.class()).unwrap();
        let completeness = match set {
            Set::Glob(glob) => table.collections().completeness_of(&glob.into()).unwrap(),
            _ => table.coverage().completeness(),
        };
        EXTENTS.iter().find(|(_, of)| *of == completeness).unwrap().0
    }

    /// Lets a client say that it holds a resource, which is therefore asked for again.
    pub fn claims(&mut self, url: &str, set: Set, name: &str) {
        let claim = Claim { kind: self.kind(url), of: Claimed::Name(set.class(), name.into()) };
        self.view.add_claims(ONE, vec![claim]);
        self.settle();
    }

    /// Changes what a session requests, which nobody hears of yet.
    pub fn count_interest(&mut self, session: SessionId, url: &str, name: &str, on: bool) -> InterestChange {
        let change = interest(&self.table, url, name, on);
        self.view.change_interest(session, change.clone(), self.now);
        change
    }

    /// Returns the names of a set that a later process would have, if it would have the set.
    pub fn saved(&self, url: &str, set: Set) -> Option<Vec<String>> {
        let sets = SavedSet::all_of(self.view.snapshot(), self.now);
        let saved = sets.into_iter().find(|of| of.kind == self.kind(url) && of.class == set.class())?;
        Some(saved.resources.iter().map(|of| of.key.to_string()).collect())
    }

    /// Puts back what another view has saved, for an hour.
    pub fn inherit(&mut self, before: &Self) {
        let saved = SavedSet::all_of(before.view.snapshot(), before.now);
        self.view.restore(saved, self.now + Duration::from_secs(3600), self.now);
    }
}
