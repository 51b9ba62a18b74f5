//! The resources in a response, with or without wrappers, and their names.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use weir_core::proto::Any;
use weir_core::proto::discovery::Resource;
use weir_core::xds::{Type, WRAPPER_TYPE, wire};

/// One resource as a server has sent it.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct ReceivedResource {
    /// The resource's own version, or that of the response if it has none.
    pub(crate) version: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) metadata: Option<Bytes>,
    /// The dynamic parameter constraints with which the resource was selected.
    pub(crate) constraints: Option<Bytes>,
    pub(crate) do_not_cache: bool,
    pub(crate) resource: Any,
}

pub(super) fn unwrapped(any: Any, kind: &Type, version: &str) -> (Option<String>, ReceivedResource) {
    if type_name(&any.type_url) == WRAPPER_TYPE
        && let Ok(wrapper) = Resource::decode(any.value.clone())
    {
        let name = wrapper_name(&wrapper);
        if let Some(mut received) = received_of(wrapper) {
            if received.version.is_empty() {
                received.version = version.into();
            }
            return (name.or_else(|| name_in(&received.resource, kind)), received);
        }
    }
    let name = name_in(&any, kind);
    let received = ReceivedResource {
        version: version.into(),
        aliases: Vec::new(),
        ttl: None,
        metadata: None,
        constraints: None,
        do_not_cache: false,
        resource: any,
    };
    (name, received)
}

pub(super) fn name_in(any: &Any, kind: &Type) -> Option<String> {
    let field = kind.info().name_field?;
    wire::last_text(&any.value, field).map(str::to_owned)
}

/// Returns a name for a resource whose type has no names: the requested name, if there was only one.
pub(super) fn name_of_nameless(names: &[String], only: bool, number: usize) -> String {
    match names {
        [name] if only => name.clone(),
        _ => format!("(without a name, {})", number + 1),
    }
}

pub(super) fn wrapper_name(resource: &Resource) -> Option<String> {
    let other = || resource.resource_name.as_ref().map(|name| name.name.clone());
    Some(resource.name.clone()).filter(|name| !name.is_empty()).or_else(other).filter(|name| !name.is_empty())
}

pub(super) fn received_of(resource: Resource) -> Option<ReceivedResource> {
    let ttl = resource.ttl.and_then(|ttl| Duration::try_from(ttl).ok());
    let Resource { version, aliases, metadata, resource_name, cache_control, resource, .. } = resource;
    let constraints = resource_name.and_then(|name| name.dynamic_parameter_constraints);
    let do_not_cache = cache_control.is_some_and(|control| control.do_not_cache);
    Some(ReceivedResource { version, aliases, ttl, metadata, constraints, do_not_cache, resource: resource? })
}

fn type_name(type_url: &str) -> &str {
    type_url.rsplit_once('/').map_or(type_url, |(_, name)| name)
}
