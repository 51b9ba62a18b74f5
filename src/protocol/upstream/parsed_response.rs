//! The resources of one response, sorted: usable, extended, rejected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::quirks::INCOMPLETE_MARKER;
use crate::proto::code::OK;
use crate::proto::discovery;
use crate::protocol::limits::{Limits, truncate};
use crate::protocol::view::NamedError;
use crate::xds::{Malformed, Name, Resource};

/// The resources of one response, sorted into good and bad.
#[derive(Default)]
pub(super) struct ParsedResponse {
    pub(crate) good: BTreeMap<Name, Arc<Resource>>,
    /// Heartbeats: what lives on as it is, and for how long.
    pub(crate) alive: BTreeMap<Name, Option<Duration>>,
    /// Present, and not usable, with the reason: their previous value stays.
    pub(crate) rejected: BTreeMap<Name, Arc<str>>,
    /// Why something that cannot be told by name is not.
    pub(crate) unnamed: Option<Arc<str>>,
    /// A source within the process says that this is not all.
    pub(crate) incomplete: bool,
    pub(crate) faults: Vec<Malformed>,
}

impl ParsedResponse {
    /// Whatever it says something of by name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.good.keys().chain(self.alive.keys()).chain(self.rejected.keys())
    }

    pub(crate) fn take(&mut self, resource: Result<Resource, Malformed>) -> Option<Name> {
        match resource {
            // The same twice is one, and worth a NACK (UP-22); two that differ say nothing that can be believed.
            Ok(resource) if self.good.get(&resource.name).is_some_and(|known| known.is_same(&resource)) => {
                self.faults.push(Malformed::Duplicate { name: resource.name });
                None
            }
            Ok(resource) if self.good.contains_key(&resource.name) || self.rejected.contains_key(&resource.name) => {
                let name = resource.name;
                self.good.remove(&name);
                self.reject(Malformed::Duplicate { name });
                None
            }
            Ok(resource) => {
                let name = resource.name.clone();
                self.good.insert(name.clone(), Arc::new(resource));
                Some(name)
            }
            Err(malformed) => {
                self.reject(malformed);
                None
            }
        }
    }

    pub(crate) fn reject(&mut self, malformed: Malformed) {
        let reason: Arc<str> = malformed.to_string().into();
        match malformed.name() {
            Some(name) => drop(self.rejected.insert(name.clone(), reason)),
            None => self.unnamed = Some(reason),
        }
        self.faults.push(malformed);
    }

    /// A name both sent and removed says nothing that can be believed.
    pub(crate) fn reject_if_sent(&mut self, name: &Name) -> bool {
        if self.good.remove(name).is_none() && !self.rejected.contains_key(name) {
            return false;
        }
        self.reject(Malformed::SentAndRemoved { name: name.clone() });
        true
    }

    /// Errors that the server reports of single resources. They count as present; one that makes no sense is rejected (UP-22).
    pub(crate) fn take_errors(
        &mut self,
        errors: Vec<discovery::ResourceError>,
        limits: &Limits,
    ) -> Vec<(Name, NamedError)> {
        let mut reported = Vec::new();
        for error in errors {
            let name = Name::canonical(&error.resource_name.map(|name| name.name).unwrap_or_default());
            let detail = error.error_detail.unwrap_or_default();
            let code = detail.code;
            if name.as_str() == INCOMPLETE_MARKER {
                self.incomplete = true;
                continue;
            }
            if name.as_str().is_empty() || code == OK {
                let why = if code == OK { "that all is well" } else { "of nothing" };
                self.faults.push(Malformed::Error { name, why });
                continue;
            }
            if !self.reject_if_sent(&name) {
                self.rejected.insert(name.clone(), Arc::from("reported by the server"));
                reported.push((name, NamedError { code, message: truncate(&detail.message, limits.error_bytes) }));
            }
        }
        reported
    }

    /// The text of the NACK, if there is to be one.
    pub(crate) fn nack_message(&self, limits: &Limits) -> Option<String> {
        let mut text = String::new();
        for fault in &self.faults {
            let fault = fault.to_string();
            if text.len() + fault.len() > limits.error_bytes {
                text.push_str("; ...");
                break;
            }
            text.push_str(if text.is_empty() { "" } else { "; " });
            text.push_str(&fault);
        }
        (!text.is_empty()).then_some(text)
    }

    /// The fault of versions that are not made from content.
    pub(crate) fn overwrite_versions(&mut self, upstream_version: &str) {
        for resource in self.good.values_mut() {
            let mut stamped = (**resource).clone();
            stamped.full = stamped.full.with([upstream_version.as_bytes()]);
            *resource = Arc::new(stamped);
        }
    }
}
