//! What one client may have.

use std::sync::Arc;

use crate::xds::name::Name;
use crate::xds::name_pattern::NamePattern;
use crate::xds::types::Type;

/// What one client may have, by its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// The name of the rule.
    pub rule: Arc<str>,
    /// The tenant to which the client belongs, for keys with `tenant`.
    pub tenant: Option<Arc<str>>,
    /// Full names of types; `None` means all.
    pub(super) types: Option<Arc<[Box<str>]>>,
    /// Names of resources other than secrets; `None` means all.
    pub(super) names: Option<Vec<NamePattern>>,
    /// Names of secrets. All other secrets are denied.
    pub(super) secrets: Vec<NamePattern>,
}

impl Permit {
    /// Returns a permit for everything except secrets, for views that all clients share.
    pub fn all_but_secrets() -> Self {
        Self { rule: "shared".into(), tenant: None, types: None, names: None, secrets: Vec::new() }
    }

    /// Returns the types that may be requested; `None` means all.
    pub fn types(&self) -> Option<&[Box<str>]> {
        self.types.as_deref()
    }

    /// Returns names of resources other than secrets; `None` means all.
    pub fn names(&self) -> Option<&[NamePattern]> {
        self.names.as_deref()
    }

    /// Returns names of secrets.
    pub fn secrets(&self) -> &[NamePattern] {
        &self.secrets
    }

    /// Whether any resource of a type may be requested.
    pub(crate) fn allows_type(&self, kind: &Type) -> bool {
        let listed = |types: &Arc<[Box<str>]>| types.iter().any(|name| kind.is_called(name));
        kind.is_secret() && !self.secrets.is_empty() || self.types.as_ref().is_none_or(listed)
    }

    /// Whether the client may have a resource.
    pub fn allows(&self, kind: &Type, name: &Name) -> bool {
        let among = |patterns: &[NamePattern]| patterns.iter().any(|pattern| pattern.matches(name.as_str()));
        match kind.is_secret() {
            true => among(&self.secrets),
            false => self.allows_type(kind) && self.names.as_deref().is_none_or(among),
        }
    }

    /// Whether there may be resources of the type that the permit does not allow.
    pub(crate) fn restricts(&self, kind: &Type) -> bool {
        kind.is_secret() || self.names.is_some() || !self.allows_type(kind)
    }
}
