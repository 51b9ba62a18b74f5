//! The resources that a client was sent for aliases, by their own names: a removal names a resource in the client's own terms (DELTA-29, DELTA-38).

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::visits::visit;
use crate::xds::{Name, SetVersion};

/// Has an alias while the client subscribes to it and holds a resource with another name that it was sent for it.
#[derive(Debug, Default)]
pub(super) struct AliasTargets {
    /// The own name of the resource that the client was sent for each alias.
    targets: BTreeMap<Name, Name>,
    /// The same pairs, each with the own name first.
    aliases: BTreeSet<(Name, Name)>,
    bytes: usize,
}

impl AliasTargets {
    /// Returns about what it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the own name of the resource that the client was sent for an alias.
    pub(super) fn get(&self, alias: &Name) -> Option<&Name> {
        self.targets.get(alias)
    }

    /// Returns the aliases for which the client was sent the resource of this name.
    pub(super) fn aliases_of<'a>(&'a self, own: &'a Name) -> impl Iterator<Item = &'a Name> {
        let later = self.aliases.range((own.clone(), Name::from(""))..);
        later.take_while(move |(of, _)| of == own).map(|(_, alias)| alias).inspect(|_| visit())
    }

    /// Records that the client is sent the resource `own` for an alias. Returns the own name of the one that it was sent before.
    pub(super) fn set(&mut self, alias: &Name, own: &Name) -> Option<Name> {
        let before = self.forget(alias);
        self.targets.insert(alias.clone(), own.clone());
        self.aliases.insert((own.clone(), alias.clone()));
        self.bytes += bytes_of(own);
        before
    }

    /// Forgets an alias. Returns the own name of the resource that the client was sent for it.
    pub(super) fn forget(&mut self, alias: &Name) -> Option<Name> {
        let own = self.targets.remove(alias)?;
        self.aliases.remove(&(own.clone(), alias.clone()));
        self.bytes -= bytes_of(&own);
        if self.targets.is_empty() {
            *self = Self::default(); // a tree keeps its last node
        }
        Some(own)
    }

    /// Records the share of what the client holds under a name. Without one it holds nothing there.
    pub(super) fn record_share(&mut self, name: &Name, share: SetVersion) {
        if share.is_empty() {
            self.forget(name);
        }
    }
}

/// Returns about what an alias takes: its places in the two trees, and the own name. The name of the alias is counted with the subscription.
fn bytes_of(own: &Name) -> usize {
    4 * size_of::<Name>() + own.as_str().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.into()
    }

    #[test]
    fn the_aliases_of_a_resource_are_those_that_led_to_it_last() {
        let mut targets = AliasTargets::default();
        let aliases = |targets: &AliasTargets, own: &str| {
            targets.aliases_of(&name(own)).map(ToString::to_string).collect::<Vec<_>>()
        };
        for (alias, own) in [("r/b", "r/one"), ("r/a", "r/one"), ("r/c", "r/one/more"), ("r/d", "r/on")] {
            assert_eq!(targets.set(&name(alias), &name(own)), None);
        }
        assert_eq!(aliases(&targets, "r/one"), ["r/a", "r/b"]);
        assert_eq!(targets.set(&name("r/a"), &name("r/two")), Some(name("r/one")));
        assert_eq!(targets.set(&name("r/a"), &name("r/two")), Some(name("r/two")), "it was sent again");
        assert_eq!((aliases(&targets, "r/one"), aliases(&targets, "r/two")), (vec!["r/b".into()], vec!["r/a".into()]));
        targets.record_share(&name("r/b"), SetVersion::EMPTY);
        assert_eq!((targets.get(&name("r/b")), aliases(&targets, "r/one")), (None, vec![]));
    }

    #[test]
    fn i1_aliases_that_were_left_keep_no_memory() {
        let mut targets = AliasTargets::default();
        let aliases: Vec<_> = (0..100).map(|number| name(&format!("r/{number}"))).collect();
        for own in ["r/one", "r/another"] {
            aliases.iter().for_each(|alias| drop(targets.set(alias, &name(own))));
            assert_eq!(targets.bytes(), 100 * bytes_of(&name(own)));
        }
        aliases.iter().for_each(|alias| drop(targets.forget(alias)));
        assert_eq!((targets.bytes(), targets.forget(&aliases[0])), (0, None));
    }
}
