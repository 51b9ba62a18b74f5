//! Resource names: old-style ones opaque, compared byte for byte (NAME-30), new-style ones in their canonical form.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use super::xdstp::Xdstp;

/// The name of the wildcard: everything that a node may see (SOTW-37).
pub const WILDCARD: &str = "*";

/// The prefix of made-up names that ask where a set ends. A server that lists such a name as removed has sent the whole set.
pub(crate) const END_OF_SET: &str = "weir.end-of-set/";

/// A resource name. Clones share the text, so a name costs its bytes once, however many sessions want it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// Returns the name that a peer wrote, new-style names in canonical form and others unchanged (NAME-6, NAME-30).
    pub fn canonical(text: &str) -> Self {
        Self(Self::canonical_text(text).into())
    }

    /// Returns the text of [`Self::canonical`].
    pub(super) fn canonical_text(text: &str) -> Cow<'_, str> {
        match Xdstp::is_new_style(text).then(|| Xdstp::parse(text)) {
            Some(Ok(name)) => name.to_string().into(),
            Some(Err(_)) | None => text.into(),
        }
    }

    /// Returns the canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a relay has made the name up to ask a server where a set ends. No resource has such a name.
    pub(crate) fn asks_for_end(&self) -> bool {
        self.0.starts_with(END_OF_SET)
    }

    /// Whether the name is that of a collection, which is subscribed as a whole (NAME-23).
    pub fn is_glob(&self) -> bool {
        self.parsed().is_some_and(|name| name.is_glob())
    }

    /// Returns the glob that contains this name, if it is a new-style name (NAME-24).
    pub fn collection(&self) -> Option<Self> {
        self.parsed().filter(|name| !name.is_glob()).map(|name| name.parent().to_string().into())
    }

    /// Returns the common prefix of the members of a collection.
    pub(crate) fn folder(&self) -> &str {
        let path = self.0.split_once('?').map_or(&*self.0, |(path, _)| path);
        path.strip_suffix('*').unwrap_or(path)
    }

    /// Returns the entries of an ordered map that are members of this glob. Names that only share the prefix are left out.
    pub fn members_in<'a, V>(&'a self, map: &'a BTreeMap<Self, V>) -> impl Iterator<Item = (&'a Self, &'a V)> {
        let from = map.range::<str, _>((Included(self.folder()), Unbounded));
        let near = from.take_while(|(name, _)| name.as_str().starts_with(self.folder()));
        near.filter(|(name, _)| name.collection().as_ref() == Some(self))
    }

    fn parsed(&self) -> Option<Xdstp> {
        Xdstp::is_new_style(&self.0).then(|| Xdstp::parse(&self.0).ok()).flatten()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
