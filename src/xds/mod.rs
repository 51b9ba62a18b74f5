//! The words of the protocol: types, names, resources, versions, and the keys by which clients share.

mod access;
mod authority;
mod body;
mod key;
mod metadata;
mod name;
mod nearest;
mod references;
mod resource;
mod rest_paths;
mod services;
mod store;
mod type_words;
mod types;
mod version;
pub mod wire;
mod xdstp;

pub use access::{Access, AccessRule, Clearance, NamePattern, Network};
pub use authority::Authority;
pub use body::Body;
pub use key::{ERRORS_FEATURE, KeyField, KeyRule, NodeError, RELAY_MARKER, SharingKey};
pub use name::{Name, WILDCARD};
pub use nearest::nearest;
pub use references::LeadsTo;
pub use resource::{Malformed, Resource};
pub(crate) use resource::{own_name, wrapper_name};
pub use rest_paths::RestPath;
pub use services::{LOADS_PATH, LOADS_PATH_V2, Method, Scope, Shape, service_names};
pub use store::BodyStore;
pub use type_words::UnknownType;
pub use types::{EmptyFirst, References, Role, Type, TypeInfo, TypeTable, WRAPPER_TYPE};
pub use version::{ContentHash, SetVersion};
pub use xdstp::{NameFault, Xdstp, authority_of_template};
