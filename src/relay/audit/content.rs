//! Where the content of resources differs: their maps may be in any order, and the bytes of their fields too.

use std::collections::BTreeSet;

use weir_core::protocol::audit::{Differing, Unequal, Wanted, unequal};
use weir_core::protocol::view::Snapshot;

use crate::transcode::{Descriptors, Transcoder};

/// Returns the first differences between what a view has and what a member was given. The time grows with the number of resources, so the
/// caller should not block the runtime with it.
pub(super) fn differing(
    view: &Snapshot,
    member: &Snapshot,
    (wanted, certain): (&Wanted, &Wanted),
    descriptors: &Descriptors,
) -> BTreeSet<Differing> {
    let unequal = unequal(view, member, wanted, certain);
    if unequal.is_empty() {
        return BTreeSet::new(); // the descriptors are not needed, which take some memory
    }
    let transcoder = descriptors();
    unequal.iter().filter_map(|of| of_resource(of, &transcoder)).take(MOST).collect()
}

fn of_resource(unequal: &Unequal, transcoder: &Transcoder) -> Option<Differing> {
    let Unequal { kind, name, of_view, of_member, changed } = unequal;
    let path = match (of_view, of_member) {
        (Some(of_view), Some(of_member)) => {
            let urls = [of_view, of_member].map(|resource| resource.body.type_url());
            let message = urls[0].map_or(kind.name(), |url| url.rsplit('/').next().unwrap_or(url));
            match urls[0] == urls[1] {
                true => match transcoder.difference(message, of_view.body.bytes(), of_member.body.bytes()) {
                    Some(found) => found.path,
                    None => format!("wrapper.{}", of_view.differs_beside(of_member)?),
                },
                false => "type_url".to_owned(),
            }
        }
        _ => String::new(),
    };
    Some(Differing { kind: kind.clone(), name: name.clone(), path, changed: *changed })
}

/// How many differences are returned: one is enough to show what is wrong, and a second comparison returns the same ones.
const MOST: usize = 100;
