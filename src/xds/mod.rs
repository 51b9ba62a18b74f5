//! The vocabulary of the protocol: types, names, resources, versions and sharing keys.

mod access;
mod authority;
mod body;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod key;
mod metadata;
mod name;
mod name_pattern;
mod nearest;
mod network;
mod peer;
mod permissions;
mod references;
mod resource;
mod rest_paths;
mod services;
mod stated_versions;
mod store;
mod text;
mod type_words;
mod types;
mod version;
pub mod wire;
mod xdstp;

pub(crate) use access::Clearance;
pub use access::{Access, AccessRule};
pub use authority::Authority;
pub use body::Body;
pub(crate) use key::{ERRORS_FEATURE, NodeError, RELAY_MARKER};
pub use key::{KeyField, KeyRule, SharingKey};
pub use name::Name;
pub(crate) use name::{END_OF_SET, WILDCARD};
pub use name_pattern::NamePattern;
pub(crate) use nearest::nearest;
pub use network::Network;
pub use peer::{CertificateNames, Peer, Proven};
pub(crate) use permissions::TENANT;
pub use permissions::{
    Denied, IdentityPattern, NodeField, PatternFault, PermissionRule, Permissions, Permit, SegmentPattern, Template,
};
pub use resource::Resource;
pub(crate) use resource::{Malformed, own_name, wrapper_name};
pub(crate) use rest_paths::RestPath;
pub use services::{LOADS_PATH, LOADS_PATH_V2};
pub(crate) use services::{Method, Scope, Shape, service_names};
pub use stated_versions::{HeldVersions, StatedEntries, StatedVersions, StatedVersionsStore};
pub use store::BodyStore;
pub(crate) use text::{ERROR_BYTES, truncate};
pub(crate) use type_words::{UnknownType, short_type_name, type_by_word};
pub(crate) use types::{EmptyFirst, References, Role};
pub use types::{Type, TypeInfo, TypeTable, WRAPPER_TYPE};
pub(crate) use version::{ContentHash, SetVersion, VersionText};
pub(crate) use xdstp::{NameFault, Xdstp, authority_of_template};
