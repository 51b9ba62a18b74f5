//! What each update means for the tables of a view.

use super::table_writer::TableWriter;
use super::update::{Completeness, Evidence, Update};
use crate::protocol::keys::{Class, Selector};
use crate::xds::{Name, Role, Type};

/// Applies an update that no stage holds.
pub(super) fn apply(update: Update, to: &mut TableWriter) {
    match update {
        Update::Upsert { kind, class, key, resource } => {
            let led_to = endpoints_of(&kind, class, &key, to);
            to.set_resource(&kind, class, key, resource);
            led_to.into_iter().for_each(|endpoints| to.leave_endpoints(&endpoints));
        }
        Update::Absent { kind, class, key, evidence } => remove(&kind, class, &key, evidence, to),
        Update::RemovalHeld { kind, class, key } => to.note_removed_since(&kind, class, &key),
        Update::Expired { kind, class, key } => to.expire(&kind, class, key),
        Update::Kept { kind, class, key } => keep(&kind, class, &key, to),
        Update::Refresh { kind, class, key, ttl } => {
            if class == Class::Wildcard {
                to.confirm(&kind, &Selector::Wildcard);
            }
            to.extend_ttl((kind, class, key), ttl);
        }
        Update::Error { kind, key, error } => to.set_error(&kind, key, error),
        Update::Progress { kind, of, completeness } => {
            to.confirm(&kind, &of);
            to.update_completeness(&kind, &of, |known| known.raised(completeness));
            if let Selector::Name(glob) = of
                && completeness >= Completeness::Settled
            {
                conclude_empty(&kind, &glob, to);
            }
        }
        Update::PartHeld { kind, of } => to.update_completeness(&kind, &of, Completeness::interrupted),
        Update::Interrupted { kind, of } => to.interrupt(&kind, &of),
        Update::FullSet { .. } => {}   // it came as its differences
        Update::Unchanged { .. } => {} // brakes alone depend on it
        Update::Unreadable { kind, of, names } => to.set_unreadable(&kind, &of, names),
        Update::WithoutRoom { .. } => {} // it stays unknown
    }
}

/// Applies a server's report that a name has no resource, if the server's rules keep what is present.
fn keep(kind: &Type, class: Class, key: &Name, to: &mut TableWriter) {
    let members = match class {
        Class::Named if key.is_glob() => members_of(kind, key, to),
        _ if to.tables().resource(kind, class, key).is_some() => vec![key.clone()],
        _ => Vec::new(),
    };
    if members.is_empty() {
        return remove(kind, class, key, Evidence::Reported, to);
    }
    for name in members {
        to.confirm_one(kind, class, &name);
    }
    if class == Class::Named && key.is_glob() {
        let of = Selector::Name(key.clone());
        to.confirm(kind, &of);
        to.update_completeness(kind, &of, |_| Completeness::Complete);
    }
}

fn members_of(kind: &Type, glob: &Name, to: &TableWriter) -> Vec<Name> {
    let collection = to.tables().collection(kind, glob);
    collection.into_iter().flat_map(|of| of.members().cloned()).collect()
}

fn remove(kind: &Type, class: Class, key: &Name, word: Evidence, to: &mut TableWriter) {
    if class == Class::Named && key.is_glob() {
        return end_collection(kind, key, to);
    }
    let led_to = endpoints_of(kind, class, key, to).filter(|_| word == Evidence::Reported);
    to.remove_one(kind, class, key, word);
    led_to.into_iter().for_each(|endpoints| to.leave_endpoints(&endpoints));
    // A settled or complete collection is empty once upstream has removed its last member.
    if class == Class::Named
        && let Some(glob) = to.interest().collection(kind, key)
    {
        let of = to.tables().collection(kind, &glob);
        if of.is_some_and(|of| of.is_empty() && of.completeness >= Completeness::Settled) {
            to.remove_one(kind, class, &glob, Evidence::Reported);
        }
    }
}

/// Returns the endpoints that a cluster refers to, if this is one, and is present.
fn endpoints_of(kind: &Type, class: Class, name: &Name, to: &TableWriter) -> Option<Name> {
    let cluster = kind.is(Role::Clusters).then(|| to.tables().resource(kind, class, name)).flatten()?;
    cluster.refers_to.clone()
}

/// Records that a collection is empty, if it has no members and none has expired.
fn conclude_empty(kind: &Type, glob: &Name, to: &mut TableWriter) {
    let of = to.tables().collection(kind, glob);
    if of.is_some_and(|of| of.is_empty() && !of.lapsed) {
        to.remove_one(kind, Class::Named, glob, Evidence::Reported);
    }
}

/// Applies an empty collection reported by upstream (COLL-15), after its members were removed one by one. Members from a server of higher
/// rank may stay.
fn end_collection(kind: &Type, glob: &Name, to: &mut TableWriter) {
    if members_of(kind, glob, to).is_empty() {
        to.remove_one(kind, Class::Named, glob, Evidence::Reported);
    }
    let of = Selector::Name(glob.clone());
    to.confirm(kind, &of);
    to.update_completeness(kind, &of, |_| Completeness::Complete);
}
