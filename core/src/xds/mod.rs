//! The vocabulary of the protocol: types, names, resources, versions and sharing keys.

mod access;
mod authority;
mod body;
mod built_in_types;
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
mod type_info;
mod type_words;
mod types;
mod version;
pub mod wire;
mod xdstp;

pub use access::{Access, AccessRule, Clearance};
pub use authority::Authority;
pub use body::Body;
pub use key::{
    ERRORS_FEATURE, HeaderHashes, HeaderName, HeaderNameFault, IdPart, KeyField, KeyRule, MemberNode, SharingKey,
};
pub(crate) use key::{NodeError, RELAY_MARKER};
pub(crate) use name::END_OF_SET;
pub use name::{Name, WILDCARD};
pub use name_pattern::NamePattern;
pub use nearest::{nearest, nearest_few};
pub use network::Network;
pub use peer::{CertificateNames, Peer, PeerProof};
pub use permissions::{
    Denied, IdentityPattern, NodeField, Owner, PatternFault, PermissionRule, Permissions, Permit, SegmentPattern,
    TENANT, Template,
};
pub(crate) use resource::wrapper_name;
pub use resource::{Malformed, Resource, name_of_entry};
pub use rest_paths::RestPath;
pub use services::{LOADS_PATH, LOADS_PATH_V2, Method, Scope, Shape, service_names};
pub use stated_versions::{HeldVersions, StatedEntries, StatedVersions, StatedVersionsStore};
pub use store::BodyStore;
pub(crate) use text::ERROR_BYTES;
pub use text::truncate;
pub(crate) use type_info::References;
pub use type_info::{EmptyFirst, Role, TypeInfo};
pub use type_words::{UnknownType, short_type_name, type_by_word};
pub(crate) use types::BodyType;
pub use types::{Type, TypeTable, WRAPPER_TYPE, type_url};
pub use version::{ContentHash, SetVersion, VersionText};
pub use xdstp::{NameFault, Xdstp, authority_of_template};
