//! Which names a reply has. As far as there is room, they are remembered until the client has answered, because the reason of a NACK need not
//! name what it rejects.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::xds::Name;

/// The names in one reply or in several. Clones share them, and so do the replies of one batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReplyNames(Arc<Listed>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Listed {
    /// The first few names.
    first: Box<[Name]>,
    others: Others,
}

/// The names that are not remembered one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Others {
    /// At most this many: a name in two replies counts twice.
    count: usize,
    /// A Bloom filter: a name that lacks one of its bits is not among them. `None` if there are no such names, or too many.
    bits: Option<Box<[u64; WORDS]>>,
}

impl ReplyNames {
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a Name>) -> Self {
        Self::default().with(names)
    }

    /// Adds names.
    pub(crate) fn with<'a>(self, names: impl Iterator<Item = &'a Name>) -> Self {
        let mut names = names.peekable();
        if names.peek().is_none() {
            return self; // so that nothing is copied
        }
        let (mut first, mut others) = (self.0.first.to_vec(), self.0.others.clone());
        for name in names {
            if first.len() == MOST_NAMES {
                others.add(name); // there may be very many
            } else if !first.contains(name) {
                first.push(name.clone());
            }
        }
        Self::listing(first, others)
    }

    fn listing(first: Vec<Name>, others: Others) -> Self {
        Self(Arc::new(Listed { first: first.into(), others }))
    }

    /// Adds the names of another reply.
    pub(crate) fn and(self, other: &Self) -> Self {
        self.and_those(other, |_| true)
    }

    /// Adds the names of another reply that matter, and all those that are not remembered one by one.
    pub(crate) fn and_those(self, other: &Self, matters: impl Fn(&Name) -> bool) -> Self {
        let others = self.0.others.and(&other.0.others);
        let new = other.first().iter().filter(|name| matters(name) && !self.first().contains(name));
        let new: Vec<_> = new.collect();
        Self::listing(self.0.first.to_vec(), others).with(new.into_iter())
    }

    /// Removes the names that another reply has. Names that are not remembered one by one stay.
    pub(crate) fn without(&mut self, other: &Self) {
        let (first, gone) = (self.first(), other.first());
        if first.iter().any(|name| gone.contains(name)) {
            let left = first.iter().filter(|name| !gone.contains(name)).cloned();
            *self = Self::listing(left.collect(), self.0.others.clone());
        }
    }

    /// Whether a resource is among the names. `None` if that is not known.
    pub(crate) fn has(&self, name: &Name) -> Option<bool> {
        match self.first().contains(name) {
            true => Some(true),
            false => (!self.0.others.may_have(name)).then_some(false),
        }
    }

    /// Whether all names are remembered one by one.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.others.count == 0
    }

    /// Whether all names are known to be among others.
    pub(crate) fn are_all_in(&self, others: &Self) -> bool {
        self.is_complete() && self.first().iter().all(|name| others.has(name) == Some(true))
    }

    /// Returns the name, if there is only one.
    pub(crate) fn only(&self) -> Option<&Name> {
        match self.first() {
            [only] if self.is_complete() => Some(only),
            _ => None,
        }
    }

    /// Returns the first few names.
    pub(crate) fn first(&self) -> &[Name] {
        &self.0.first
    }
}

impl Others {
    fn add(&mut self, name: &Name) {
        self.count += 1;
        match self.count {
            1 => self.bits = Some(Box::default()),
            MOST_IN_FILTER.. => self.bits = None,
            _ => {}
        }
        if let Some(bits) = &mut self.bits {
            places(name).for_each(|(word, bit)| bits[word] |= bit);
        }
    }

    fn and(&self, other: &Self) -> Self {
        let count = self.count + other.count;
        let bits = match (&self.bits, &other.bits) {
            _ if count >= MOST_IN_FILTER => None,
            (bits, _) if other.count == 0 => bits.clone(),
            (_, bits) if self.count == 0 => bits.clone(),
            (Some(own), Some(other)) => {
                let mut both = own.clone();
                both.iter_mut().zip(other.iter()).for_each(|(word, more)| *word |= more);
                Some(both)
            }
            _ => None,
        };
        Self { count, bits }
    }

    fn may_have(&self, name: &Name) -> bool {
        self.count > 0 && self.bits.as_ref().is_none_or(|bits| places(name).all(|(word, bit)| bits[word] & bit != 0))
    }
}

/// Returns the bits of a name in the filter, each as the index of its word and the bit in that.
fn places(name: &Name) -> impl Iterator<Item = (usize, u64)> {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let hash = hasher.finish();
    let place = move |part: u32| (hash >> (16 * part)) as usize % (WORDS * 64);
    (0..3).map(place).map(|place| (place / 64, 1_u64 << (place % 64)))
}

const MOST_NAMES: usize = 16;
/// The size of the filter, 256 bytes. With a few hundred names in it, it still rules out most names that are not among them.
const WORDS: usize = 32;
/// From this many names on, more than three of four bits would be set.
const MOST_IN_FILTER: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(range: std::ops::Range<u32>) -> Vec<Name> {
        range.map(|number| number.to_string().into()).collect()
    }

    #[test]
    fn a_few_names_are_remembered_and_of_the_others_how_many_there_are() {
        let few = ReplyNames::of(names(0..3).iter());
        assert_eq!((few.first(), few.0.others.count), (&*names(0..3), 0));
        assert_eq!((few.has(&"1".into()), few.has(&"7".into())), (Some(true), Some(false)));
        let many = few.clone().with(names(1..100).iter());
        assert_eq!((many.first().len(), many.0.others.count), (MOST_NAMES, 100 - MOST_NAMES));
        assert_eq!((many.has(&"1".into()), many.has(&"99".into())), (Some(true), None));
        let both = ReplyNames::of(names(0..40).iter()).and(&few).and(&many);
        assert_eq!((both.first().len(), both.0.others.count), (MOST_NAMES, 24 + 84));
    }

    #[test]
    fn one_alone_is_known_to_be_and_what_another_reply_has_goes() {
        let (one, two) = (ReplyNames::of(names(0..1).iter()), ReplyNames::of(names(0..2).iter()));
        let one_more = Others { count: 1, bits: None };
        assert_eq!((one.only(), two.only()), (Some(&"0".into()), None));
        assert_eq!(ReplyNames::listing(names(0..1), one_more).only(), None, "another is not remembered");
        let mut left = two;
        left.without(&one);
        assert_eq!(left.only(), Some(&"1".into()));
    }

    #[test]
    fn a_name_that_is_not_in_a_large_reply_is_mostly_known_not_to_be_and_one_that_is_never() {
        let known_not = |of: &ReplyNames, range| names(range).iter().filter(|name| of.has(name) == Some(false)).count();
        let (some, more) = (ReplyNames::of(names(0..100).iter()), ReplyNames::of(names(100..200).iter()));
        assert_eq!(known_not(&some, 0..100), 0);
        assert!(known_not(&some, 1_000..2_000) > 900);
        let both = some.and(&more);
        assert_eq!(known_not(&both, 0..200), 0);
        assert!(known_not(&both, 1_000..2_000) > 900);
        let very_many = both.and(&ReplyNames::of(names(200..2_000).iter()));
        assert_eq!(known_not(&very_many, 3_000..4_000), 0, "nothing is known of others");
    }
}
