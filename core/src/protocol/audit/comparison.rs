//! Which resources differ in bytes between a view and a member.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::offer::Wanted;
use crate::protocol::keys::Revision;
use crate::protocol::view::{Class, Lookup, ResourceTable, Selector, Snapshot};
use crate::xds::{Name, Resource, Type};

/// A resource that differs between the two sides, in its body or in its wrapper, or that one side does not have.
#[derive(Debug, Clone)]
pub struct Unequal {
    /// Its type.
    pub kind: Type,
    /// Its name.
    pub name: Name,
    /// What the view has.
    pub of_view: Option<Arc<Resource>>,
    /// What the member has.
    pub of_member: Option<Arc<Resource>>,
    /// When the view's resource last changed, if the view still knows that.
    pub changed: Option<Revision>,
}

/// Returns what differs among what is `wanted`. Names that one side does not know are left out (I3). What only the view has counts if it is
/// `certain`.
pub fn unequal(view: &Snapshot, member: &Snapshot, wanted: &Wanted, certain: &Wanted) -> Vec<Unequal> {
    let sides = Sides { view, member };
    let mut found = Vec::new();
    for (kind, of) in wanted.iter() {
        let is_certain = certain.has(kind, of);
        match of {
            Selector::Wildcard => {
                let names = sides.present(kind, Class::Wildcard, |_| true);
                let of_set = |name| sides.member_of_set((kind, Class::Wildcard), name, is_certain);
                found.extend(names.into_iter().filter_map(of_set));
            }
            Selector::Name(glob) if glob.is_glob() => {
                let names = sides.present(kind, Class::Named, |name| name.collection().as_ref() == Some(glob));
                let of_set = |name| sides.member_of_set((kind, Class::Named), name, is_certain);
                found.extend(names.into_iter().filter_map(of_set));
            }
            Selector::Name(name) => found.extend(sides.single(kind, name, is_certain)),
        }
    }
    found
}

struct Sides<'a> {
    view: &'a Snapshot,
    member: &'a Snapshot,
}

impl<'a> Sides<'a> {
    /// Returns the names that are present on either side.
    fn present(&self, kind: &Type, class: Class, is_meant: impl Fn(&Name) -> bool) -> BTreeSet<&'a Name> {
        let tables = [self.view, self.member].into_iter().filter_map(|side| side.resources(kind, class));
        tables.flat_map(ResourceTable::present_names).filter(|name| is_meant(name)).collect()
    }

    /// Compares a member of a set. The sets of both sides have settled, so a name that one side lacks does not exist there, unless it came and
    /// was unreadable, or with an error.
    fn member_of_set(&self, (kind, class): (&Type, Class), name: &Name, is_certain: bool) -> Option<Unequal> {
        let is_unread = |side: &Snapshot| {
            let table = side.resources(kind, class);
            let is_there = resource(side.lookup(kind, class, name)).is_some();
            let has_failed = || side.error(kind, name).is_some();
            !is_there && (table.is_some_and(|table| table.coverage().is_unreadable(name)) || has_failed())
        };
        if is_unread(self.view) || is_unread(self.member) {
            return None;
        }
        self.compare((kind, class), name, is_certain)
    }

    fn single(&self, kind: &Type, name: &Name, is_certain: bool) -> Option<Unequal> {
        let is_unknown = |side: &Snapshot| side.lookup(kind, Class::Named, name).is_unknown();
        if is_unknown(self.view) || is_unknown(self.member) {
            return None;
        }
        self.compare((kind, Class::Named), name, is_certain)
    }

    /// A resource that the server makes for each request (`do_not_cache`) is no difference.
    fn compare(&self, (kind, class): (&Type, Class), name: &Name, is_certain: bool) -> Option<Unequal> {
        let of = |side: &Snapshot| resource(side.lookup(kind, class, name)).cloned();
        let (of_view, of_member) = (of(self.view), of(self.member));
        let is_made_anew = [&of_view, &of_member].into_iter().flatten().any(|resource| resource.do_not_cache());
        let is_equal = match (&of_view, &of_member) {
            (Some(one), Some(other)) => one.is_same(other),
            (Some(_), None) => !is_certain,
            (None, of_member) => of_member.is_none(),
        };
        let entry = self.view.resources(kind, class).and_then(|table| table.get(name));
        let changed = entry.map(|entry| entry.changed);
        let (kind, name) = (kind.clone(), name.clone());
        (!is_equal && !is_made_anew).then_some(Unequal { kind, name, of_view, of_member, changed })
    }
}

fn resource(found: Lookup<'_>) -> Option<&Arc<Resource>> {
    match found {
        Lookup::Present(resource) => Some(resource),
        Lookup::Unknown | Lookup::Absent(_) => None,
    }
}
