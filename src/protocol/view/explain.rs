//! What a view has decided of one name: which of its rules keep a change of the server from clients.

use super::View;
use super::class::Class;
use crate::protocol::moment::Moment;
use crate::xds::{Name, Type};

/// What keeps the tables from following the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NameHolds {
    /// Somebody subscribes to it, or did until recently.
    pub(crate) is_wanted: bool,
    /// The server has removed it, and it stays since something leads to it.
    pub(crate) doomed: Option<Held>,
    /// The server has changed it, and the change waits for these clusters.
    pub(crate) awaits: Option<(Vec<Name>, Held)>,
    /// The server has removed or changed it, and a brake holds that.
    pub(crate) braked: Option<Held>,
    /// Another server has become active, and its set is not complete yet.
    pub(crate) is_behind_gate: bool,
}

/// Since when something is held, and until when at the latest, if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) since: Option<Moment>,
    pub(crate) until: Option<Moment>,
}

impl View {
    /// Returns what the view holds back of a name, of either class.
    pub(crate) fn holds_of(&self, kind: &Type, name: &Name) -> NameHolds {
        let both = [Class::Wildcard, Class::Named];
        let key = |class: Class| (kind.clone(), class, name.clone());
        NameHolds {
            is_wanted: self.interest.has_wildcard(kind)
                || self.interest.has_name(kind, name)
                || self.interest.collection(kind, name).is_some(),
            doomed: both.into_iter().find_map(|class| self.order.doomed_until(&key(class), self.limits.reference_hold)),
            awaits: both.into_iter().find_map(|class| self.order.awaited_by(&key(class))),
            braked: both.into_iter().find_map(|class| self.braked(kind, class, name)),
            is_behind_gate: self.gate.is_shut(kind),
        }
    }

    fn braked(&self, kind: &Type, class: Class, name: &Name) -> Option<Held> {
        let hold = self.brakes.hold(&self.facts().set_of(kind, class, name)?)?;
        hold.get(name)?;
        Some(Held { since: Some(hold.since), until: hold.due_of(name, &self.limits.brakes) })
    }
}
