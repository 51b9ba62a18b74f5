//! The last responses that a client has NACKed, per type of a stream.

use std::collections::BTreeSet;

use crate::kind::Kind;
use crate::subscription::{Name, Response};
use crate::wire::Variant;

/// The last NACKed response of a type.
#[derive(Debug, Default)]
pub struct Nacked {
    /// The version and the names (SotW).
    set: Option<(String, BTreeSet<Name>)>,
    /// Each resource with its version (delta).
    resources: BTreeSet<(Name, Name)>,
}

impl Nacked {
    pub fn remember(&mut self, variant: Variant, response: &Response) {
        match variant {
            Variant::Sotw => self.set = Some((response.version.clone(), names(response))),
            Variant::Delta => self.resources = versions(response),
        }
    }

    /// Checks a response to the type. Endpoints are exempt: they are sent again after their cluster has changed.
    pub fn check(&self, kind: Kind, response: &Response) -> Result<(), String> {
        if kind == Kind::Endpoints {
            return Ok(());
        }
        if self.set.as_ref().is_some_and(|(version, set)| *version == response.version && *set == names(response)) {
            return Err(format!("version {} of {} was NACKed and is sent again", response.version, kind.word()));
        }
        match versions(response).intersection(&self.resources).next() {
            None => Ok(()),
            Some((name, version)) => Err(format!("version {version} of {name} was NACKed and is sent again")),
        }
    }
}

fn names(response: &Response) -> BTreeSet<Name> {
    response.entries.iter().map(|entry| entry.name.clone()).collect()
}

fn versions(response: &Response) -> BTreeSet<(Name, Name)> {
    let versions = response.entries.iter().filter_map(|entry| Some((entry.name.clone(), entry.version.clone()?)));
    versions.collect()
}
