//! The notices of its view that a session has not read yet.

use std::collections::VecDeque;

use weir_core::protocol::session::Session;

use crate::relay::subscriber::Notice;

/// Notices in the order in which they came, and how many names they have.
#[derive(Default)]
pub(super) struct Inbox {
    notices: VecDeque<Notice>,
    names: usize,
}

impl Inbox {
    pub(super) fn names(&self) -> usize {
        self.names
    }

    pub(super) fn add(&mut self, notice: Notice) {
        self.names += notice.names();
        match notice {
            // First, whatever is before it: their memory counts as free from now on.
            Notice::StatedVersionsRefused => self.notices.push_front(notice),
            _ => self.notices.push_back(notice),
        }
    }

    /// Takes out all.
    pub(super) fn take_all(&mut self) -> VecDeque<Notice> {
        std::mem::take(self).notices
    }

    /// Takes out the first ones, with about `most` names. Changed names and refused claims are divided. Refused names are not: they come in parts of
    /// at most [`PART`](crate::relay::command::PART).
    pub(super) fn take(&mut self, most: usize) -> VecDeque<Notice> {
        if self.names <= most {
            return self.take_all();
        }
        let (mut taken, mut room) = (VecDeque::new(), most);
        while room > 0
            && let Some(first) = self.notices.pop_front()
        {
            let (first, rest) = divided(first, room);
            rest.into_iter().for_each(|rest| self.notices.push_front(rest));
            self.names -= first.names();
            room = room.saturating_sub(first.names());
            taken.push_back(first);
        }
        taken
    }
}

/// Returns the part of a notice with the first `room` names, and the rest.
fn divided(mut notice: Notice, room: usize) -> (Notice, Option<Notice>) {
    match &mut notice {
        Notice::NamesChanged(changes) if changes.len() > room => {
            let first = changes.drain(..room).collect();
            (Notice::NamesChanged(first), Some(notice))
        }
        Notice::ClaimsRefused(claims) if claims.len() > room => {
            let first = claims.drain(..room).collect();
            (Notice::ClaimsRefused(first), Some(notice))
        }
        _ => (notice, None),
    }
}

/// Lets the session read notices.
pub(super) fn read(notices: VecDeque<Notice>, session: &mut Session) {
    for notice in notices {
        match notice {
            Notice::NamesChanged(changes) => changes.iter().for_each(|change| session.on_name_changed(change)),
            Notice::InterestApplied => session.on_interest_applied(),
            Notice::NamesRefused(names) => session.on_names_refused(&names),
            Notice::ClaimsRefused(claims) => session.on_claims_refused(claims.into()),
            Notice::ClaimRoom => session.on_claim_room(),
            Notice::ReplyLate(by) => session.on_late_reply(by),
            Notice::StatedVersionsRefused => session.end_if_refused(),
            Notice::ViewRefused(status) => session.on_view_refused(&status),
            Notice::TypeRefused(kind, status) => session.on_type_refused(&kind, &status),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use weir_core::protocol::view::{Claim, Claimed, Class, NameChanged, Revision};
    use weir_core::xds::TypeTable;

    use super::*;

    const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

    fn changed(names: Range<usize>) -> Notice {
        let (kind, revision) = (TypeTable::new().resolve(RDS), Revision::ZERO);
        let name = |name: usize| name.to_string().as_str().into();
        let change = |at| NameChanged { kind: kind.clone(), name: name(at), revision, is_absent: false, claimed: None };
        Notice::NamesChanged(names.map(change).collect())
    }

    fn refused(names: Range<usize>) -> Notice {
        let kind = TypeTable::new().resolve(RDS);
        let name = |name: usize| name.to_string().as_str().into();
        Notice::ClaimsRefused(
            names.map(|at| Claim { kind: kind.clone(), of: Claimed::Name(Class::Named, name(at)) }).collect(),
        )
    }

    fn name_of(claim: &Claim) -> String {
        let Claimed::Name(_, name) = &claim.of else { panic!("{claim:?}") };
        name.to_string()
    }

    /// Returns the names of each notice.
    fn shown(notices: &VecDeque<Notice>) -> String {
        let of = |notice: &Notice| match notice {
            Notice::NamesChanged(changes) => changes.iter().map(|change| format!("{} ", change.name)).collect(),
            Notice::ClaimsRefused(claims) => claims.iter().map(|claim| format!("-{} ", name_of(claim))).collect(),
            other => format!("{other:?} "),
        };
        notices.iter().map(of).collect::<String>().trim_end().to_owned()
    }

    #[test]
    fn what_is_taken_is_the_first_of_what_came_and_nothing_is_lost_or_turned_round() {
        let mut inbox = Inbox::default();
        let first = Notice::StatedVersionsRefused;
        for notice in [changed(0..3), Notice::InterestApplied, changed(3..8), refused(0..4), Notice::ClaimRoom, first] {
            inbox.add(notice);
        }
        let mut taken = |most| {
            let taken = shown(&inbox.take(most));
            (taken, inbox.names())
        };
        for (most, expected, left) in [
            (2, "StatedVersionsRefused 0 1", 10),
            (2, "2 InterestApplied 3", 8),
            (3, "4 5 6", 5),
            (2, "7 -0", 3),
            (2, "-1 -2", 1),
            (1, "-3 ClaimRoom", 0),
        ] {
            assert_eq!(taken(most), (expected.to_owned(), left));
        }
    }
}
