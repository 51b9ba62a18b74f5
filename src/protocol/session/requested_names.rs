//! The names in a request, as a set, and errors of those that cannot be requested.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Variant;
use super::client::Client;
use crate::proto::code::{INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED};
use crate::proto::discovery::ResourceLocator;
use crate::protocol::view::NamedError;
use crate::xds::{Name, Type, WILDCARD, Xdstp};

/// The authorities whose names are served, besides old-style names, which have none.
pub(crate) type Authorities = Arc<BTreeSet<String>>;

/// A list of names as a set (SOTW-60), with `*` separate.
#[derive(Debug, Default)]
pub(super) struct RequestedNames {
    pub(crate) wildcard: bool,
    /// In canonical form.
    pub(crate) names: BTreeSet<Name>,
    /// The client's spelling of names that it does not write in canonical form (NAME-16).
    pub(crate) spellings: BTreeMap<Name, Arc<str>>,
    /// Names that cannot be requested, as the client wrote them.
    pub(crate) rejected: BTreeMap<Name, NamedError>,
}

/// What the parsing of names needs.
pub(super) struct NameParser<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) client: &'a Client,
    pub(crate) authorities: &'a Authorities,
}

impl RequestedNames {
    /// Locators without parameters count by their plain names (WIRE-14).
    pub(crate) fn of(names: Vec<String>, locators: Vec<ResourceLocator>, reader: &NameParser) -> Self {
        let mut listed = Self::default();
        for locator in locators {
            match locator.dynamic_parameters.is_empty() {
                true => listed.take(&locator.name, reader),
                false => {
                    listed.refuse(&locator.name, UNIMPLEMENTED, "dynamic parameters are not supported (KEY-18)".into())
                }
            }
        }
        names.iter().filter(|name| !name.is_empty()).for_each(|name| listed.take(name, reader));
        listed
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.wildcard && self.names.is_empty() && self.rejected.is_empty()
    }

    fn take(&mut self, text: &str, reader: &NameParser) {
        if text == WILDCARD {
            self.wildcard = true;
        } else if !Xdstp::is_new_style(text) {
            self.names.insert(text.into());
        } else {
            match reader.read(text) {
                Ok(name) => {
                    if name.as_str() != text {
                        self.spellings.insert(name.clone(), text.into());
                    }
                    self.names.insert(name);
                }
                Err((code, why)) => self.refuse(text, code, why),
            }
        }
    }

    fn refuse(&mut self, name: &str, code: i32, message: String) {
        self.rejected.insert(name.into(), NamedError { code, message });
    }
}

impl NameParser<'_> {
    /// Returns the canonical form of a new-style name, or the code and the reason why it cannot be requested.
    pub(super) fn read(&self, text: &str) -> Result<Name, (i32, String)> {
        let name = Xdstp::parse(text).map_err(|fault| (INVALID_ARGUMENT, fault.to_string()))?;
        if name.kind != self.kind.name() {
            return Err((
                INVALID_ARGUMENT,
                format!("it names a {} and was asked for as a {}", name.kind, self.kind.name()),
            ));
        }
        if !self.authorities.contains(&name.authority) {
            return Err((NOT_FOUND, format!("no servers are configured for the authority {:?}", name.authority)));
        }
        if name.is_glob() && self.client.variant == Variant::Sotw {
            return Err((NOT_FOUND, "glob collections exist in the delta variant alone".into()));
        }
        Ok(name.to_string().into())
    }
}
