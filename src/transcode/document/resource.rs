//! The format of a resource file, and a resource in it.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use weir_core::proto::{Any, discovery};

/// The format of a resource file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One or more YAML documents.
    Yaml,
    /// One JSON document.
    Json,
    /// A DiscoveryResponse in protobuf's binary form.
    Binary,
    /// A DiscoveryResponse in protobuf's text form.
    Text,
}

impl Format {
    /// Returns the format by a file's extension, if it is known.
    pub fn of_path(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Self::Yaml,
            "json" => Self::Json,
            "pb" => Self::Binary,
            "pb_text" | "textproto" => Self::Text,
            _ => return None,
        })
    }
}

/// One resource of a file, with the fields of its wrapper.
#[derive(Debug, Clone, PartialEq)]
pub struct FileResource {
    /// The type of the resource.
    pub type_url: String,
    /// The name in the wrapper. A bare resource has only the name in its body.
    pub name: Option<String>,
    /// The version of the wrapper, or else of the response around it.
    pub version: Option<String>,
    /// The wrapper's TTL.
    pub ttl: Option<Duration>,
    /// The wrapper's aliases.
    pub aliases: Vec<String>,
    /// Encoded `envoy.config.core.v3.Metadata`.
    pub(crate) metadata: Option<Bytes>,
    /// Encoded `DynamicParameterConstraints`.
    pub(crate) constraints: Option<Bytes>,
    /// Whether the wrapper asks relays not to cache it.
    pub do_not_cache: bool,
    /// The encoded resource.
    pub body: Bytes,
    /// The line on which it begins in a YAML or JSON file.
    pub line: Option<u64>,
}

impl FileResource {
    /// Returns the resource as a delta server would send it.
    pub fn into_wrapper(self) -> discovery::Resource {
        let resource_name = self.constraints.map(|constraints| discovery::ResourceName {
            name: self.name.clone().unwrap_or_default(),
            dynamic_parameter_constraints: Some(constraints),
        });
        discovery::Resource {
            version: self.version.unwrap_or_default(),
            resource: Some(Any { type_url: self.type_url, value: self.body }),
            name: self.name.unwrap_or_default(),
            aliases: self.aliases,
            ttl: self.ttl.and_then(|ttl| prost_types::Duration::try_from(ttl).ok()),
            cache_control: self.do_not_cache.then_some(discovery::resource::CacheControl { do_not_cache: true }),
            resource_name,
            metadata: self.metadata,
        }
    }
}
