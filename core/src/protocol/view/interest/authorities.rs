//! The authorities of which anything is wanted, counted so that this is known without going through all names.

use std::collections::BTreeMap;

use crate::protocol::keys::Selector;
use crate::xds::Authority;

/// How many names of each authority are wanted. `*` is of the top level.
#[derive(Debug, Default)]
pub(super) struct WantedAuthorities(BTreeMap<Authority, usize>);

impl WantedAuthorities {
    /// Something is wanted from now on, or no longer.
    pub(super) fn note(&mut self, selector: &Selector, on: bool) {
        let authority = match selector {
            Selector::Wildcard => Authority::TopLevel,
            Selector::Name(name) => Authority::of(name),
        };
        if on {
            *self.0.entry(authority).or_default() += 1;
        } else if let Some(count) = self.0.get_mut(&authority) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&authority);
            }
        }
    }

    pub(super) fn has(&self, authority: &Authority) -> bool {
        self.0.contains_key(authority)
    }
}
