//! The owner of a name.

use super::name::Name;
use super::xdstp::Xdstp;

/// What a server list serves: `*` and old-style names together, or the new-style names of one authority (XLAT-38).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    /// Old-style names and `*`, which have no authority.
    TopLevel,
    /// Names `xdstp://<authority>/…`.
    Named(String),
}

impl Authority {
    /// Returns the authority of a name.
    pub fn of(name: &Name) -> Self {
        match Xdstp::is_new_style(name.as_str()).then(|| Xdstp::parse(name.as_str())) {
            Some(Ok(name)) => Self::Named(name.authority),
            Some(Err(_)) | None => Self::TopLevel,
        }
    }

    /// Returns the name of the authority, which is empty for old-style names and wildcards.
    pub fn name(&self) -> &str {
        match self {
            Self::TopLevel => "",
            Self::Named(name) => name,
        }
    }
}
