//! Which resources a reply has, as far as that is remembered until the client has answered it: the reason of a NACK need not name what it rejects.

use std::sync::Arc;

use crate::xds::Name;

/// The names in one reply or in several. Clones share them, and so do the replies of one batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReplyNames(Arc<Listed>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Listed {
    /// The first few.
    first: Box<[Name]>,
    /// How many others there are, at most.
    others: usize,
}

impl ReplyNames {
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a Name>) -> Self {
        Self::default().with(names)
    }

    /// Adds names.
    pub(crate) fn with<'a>(self, names: impl Iterator<Item = &'a Name>) -> Self {
        let mut names = names.peekable();
        if names.peek().is_none() {
            return self; // nothing is copied
        }
        let (mut first, mut others) = (self.0.first.to_vec(), self.0.others);
        for name in names {
            if first.len() == MOST_NAMES {
                others += 1; // there may be very many
            } else if !first.contains(name) {
                first.push(name.clone());
            }
        }
        Self::listing(first, others)
    }

    fn listing(first: Vec<Name>, others: usize) -> Self {
        Self(Arc::new(Listed { first: first.into(), others }))
    }

    /// Adds those of another reply.
    pub(crate) fn and(self, other: &Self) -> Self {
        let others = self.0.others + other.0.others;
        let new: Vec<_> = other.first().iter().filter(|name| !self.first().contains(name)).collect();
        Self::listing(self.0.first.to_vec(), others).with(new.into_iter())
    }

    /// Takes away what another reply has. Those that are not remembered stay.
    pub(crate) fn without(&mut self, other: &Self) {
        let (first, gone) = (self.first(), other.first());
        if first.iter().any(|name| gone.contains(name)) {
            let left = first.iter().filter(|name| !gone.contains(name)).cloned();
            *self = Self::listing(left.collect(), self.0.others);
        }
    }

    /// Whether a resource is among them. None if that is not remembered.
    pub(crate) fn has(&self, name: &Name) -> Option<bool> {
        match self.first().contains(name) {
            true => Some(true),
            false => (self.0.others == 0).then_some(false),
        }
    }

    /// Returns the name if there is one alone.
    pub(crate) fn only(&self) -> Option<&Name> {
        match self.first() {
            [only] if self.0.others == 0 => Some(only),
            _ => None,
        }
    }

    /// Returns the first few.
    pub(crate) fn first(&self) -> &[Name] {
        &self.0.first
    }
}

const MOST_NAMES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(range: std::ops::Range<u32>) -> Vec<Name> {
        range.map(|number| number.to_string().into()).collect()
    }

    #[test]
    fn a_few_names_are_remembered_and_of_the_others_how_many_there_are() {
        let few = ReplyNames::of(names(0..3).iter());
        assert_eq!((few.first(), few.0.others), (&*names(0..3), 0));
        assert_eq!((few.has(&"1".into()), few.has(&"7".into())), (Some(true), Some(false)));
        let many = few.clone().with(names(1..100).iter());
        assert_eq!((many.first().len(), many.0.others), (MOST_NAMES, 100 - MOST_NAMES));
        assert_eq!((many.has(&"1".into()), many.has(&"99".into()), many.has(&"x".into())), (Some(true), None, None));
        let both = ReplyNames::of(names(0..40).iter()).and(&few).and(&many);
        assert_eq!((both.first().len(), both.0.others), (MOST_NAMES, 24 + 84));
    }

    #[test]
    fn one_alone_is_known_to_be_and_what_another_reply_has_goes() {
        let (one, two) = (ReplyNames::of(names(0..1).iter()), ReplyNames::of(names(0..2).iter()));
        assert_eq!((one.only(), two.only()), (Some(&"0".into()), None));
        assert_eq!(ReplyNames::listing(names(0..1), 1).only(), None, "another is not remembered");
        let mut left = two;
        left.without(&one);
        assert_eq!(left.only(), Some(&"1".into()));
    }
}
