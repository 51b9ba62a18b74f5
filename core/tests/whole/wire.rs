//! Converts a reply of one relay to the response that the relay of the next tier reads.

use prost::Message;
use weir_core::proto::discovery::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource as Wrapper, ResourceError, ResourceName, Status,
};
use weir_core::proto::{Any, Response};
use weir_core::protocol::session::{Reply, Variant};
use weir_core::xds::WRAPPER_TYPE;

pub fn response(reply: &Reply, variant: Variant) -> Response {
    let error =
        |(name, error): &(weir_core::xds::Name, std::sync::Arc<weir_core::protocol::view::NamedError>)| ResourceError {
            resource_name: Some(ResourceName { name: name.to_string(), dynamic_parameter_constraints: None }),
            error_detail: Some(Status { code: error.code, message: error.message.clone() }),
        };
    let resource_errors = reply.errors.iter().map(error).collect();
    let any = |body: &bytes::Bytes| Any { type_url: reply.spelling.to_string(), value: body.clone() };
    let wrappers = reply.resources.iter().map(|resource| Wrapper {
        name: resource.name.to_string(),
        version: resource.full.to_string(),
        resource: Some(any(resource.body.bytes())),
        ..Wrapper::default()
    });
    match variant {
        Variant::Delta => Response::Delta(DeltaDiscoveryResponse {
            system_version_info: reply.set_mark.map_or_else(String::new, |mark| mark.text().into()),
            resources: wrappers.collect(),
            type_url: reply.spelling.to_string(),
            nonce: reply.nonce.to_string(),
            removed_resources: reply.removed.iter().map(ToString::to_string).collect(),
            resource_errors,
            ..DeltaDiscoveryResponse::default()
        }),
        Variant::Sotw => {
            let entries =
                reply.resources.iter().zip(wrappers).map(|(resource, wrapper)| match reply.wraps(resource, None) {
                    true => Any {
                        type_url: format!("type.googleapis.com/{WRAPPER_TYPE}"),
                        value: wrapper.encode_to_vec().into(),
                    },
                    false => any(resource.body.bytes()),
                });
            Response::Sotw(DiscoveryResponse {
                version_info: reply.version.to_string(),
                resources: entries.collect(),
                type_url: reply.spelling.to_string(),
                nonce: reply.nonce.to_string(),
                resource_errors,
                ..DiscoveryResponse::default()
            })
        }
    }
}
