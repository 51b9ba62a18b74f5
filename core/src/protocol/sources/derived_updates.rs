//! Updates that no server has sent: what follows when another server becomes active. The updates that follow from the end of a stream are made
//! in [`servers`](super::servers).

use std::collections::BTreeSet;

use super::plan::authority_of;
use crate::protocol::view::{Completeness, Selector, Update, View};
use crate::xds::{Authority, Type};

/// Returns interruptions of the sets and names that the previous server may have been sending or had removed. It will not send the rest of them,
/// and the new active server has yet to send its own (XLAT-12).
pub(super) fn interrupted_sets(view: &View, of: &BTreeSet<Authority>) -> Vec<Update> {
    let is_reported = |kind: &Type, selector: &Selector| match selector {
        Selector::Wildcard => true,
        Selector::Name(name) => name.is_glob() || view.tables().is_gone(kind, name),
    };
    let sent = view
        .wants()
        .all()
        .filter(|(kind, selector, _)| of.contains(&authority_of(selector)) && is_reported(kind, selector));
    sent.map(|(kind, of, _)| Update::Interrupted { kind: kind.clone(), of }).collect()
}

/// Returns the updates for a report of how much of a set is known. A set that counted as complete may have grown since.
pub(super) fn progress(kind: Type, of: Selector, completeness: Completeness) -> Vec<Update> {
    let less =
        (completeness < Completeness::Complete).then(|| Update::Interrupted { kind: kind.clone(), of: of.clone() });
    less.into_iter().chain([Update::Progress { kind, of, completeness }]).collect()
}

/// Whether an update shows that a server has something. A resource for which there was no room counts: the server does have it.
pub(super) fn has_content(update: &Update) -> bool {
    matches!(update, Update::Upsert { .. } | Update::FullSet { .. } | Update::WithoutRoom { .. })
}
