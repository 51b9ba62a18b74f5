//! The resources in a response, with or without wrappers, and their names.

use prost::Message;

use super::{QueryState, ReceivedResource, held_of, type_name, wrapper_name};
use crate::proto::Any;
use crate::proto::discovery::Resource;
use crate::xds::{WRAPPER_TYPE, wire};

impl QueryState {
    pub(super) fn unwrapped(&self, any: Any, version: &str) -> (Option<String>, ReceivedResource) {
        if type_name(&any.type_url) == WRAPPER_TYPE
            && let Ok(wrapper) = Resource::decode(any.value.clone())
        {
            let name = wrapper_name(&wrapper);
            if let Some(mut held) = held_of(wrapper) {
                if held.version.is_empty() {
                    held.version = version.into();
                }
                return (name.or_else(|| self.name_in(&held.resource)), held);
            }
        }
        let name = self.name_in(&any);
        (
            name,
            ReceivedResource { version: version.into(), aliases: Vec::new(), ttl: None, metadata: None, resource: any },
        )
    }

    pub(super) fn name_in(&self, any: &Any) -> Option<String> {
        let field = self.question.kind.info().name_field?;
        wire::last_text(&any.value, field).map(str::to_owned)
    }

    /// Returns a name for a resource of a type without names: the one that was requested, if only one was.
    pub(super) fn name_of_nameless(&self, only: bool, number: usize) -> String {
        match self.question.names.as_slice() {
            [name] if only => name.clone(),
            _ => format!("(without a name, {})", number + 1),
        }
    }
}
