//! Headers of clients in the key: which servers may be shown them.

use weir_core::xds::{KeyField, KeyRule};

use super::checker::Checker;
use super::raw;
use crate::relay::HeaderHasher;
use crate::upstream::{Plan, SourcePlan};

/// Returns what makes the hashes of headers in the key, if there are any.
pub(super) fn check(raw: &raw::Root, rule: &KeyRule, plan: &Plan, checker: &mut Checker) -> Option<HeaderHasher> {
    rule.headers().next()?;
    let fields = raw.views.key.iter().flat_map(|fields| &fields.0);
    let field = fields.into_iter().find(|field| matches!(field.value, KeyField::Header(_)))?;
    let (place, name) = (&field.place, &field.value);
    for server in &plan.servers {
        match server {
            SourcePlan::Ads(server) if !server.may_be_shown_headers() => {
                let reason = format!(
                    "{name} requires servers with https://, on a Unix socket, or with http:// on this machine without a proxy: {} would be \
                     shown it in plain text",
                    server.name()
                );
                checker.fault(place, reason);
            }
            SourcePlan::Rest(server) => {
                let reason = format!("{name} requires servers with uri or files: {} is not shown it", server.name());
                checker.fault(place, reason);
            }
            SourcePlan::Ads(_) | SourcePlan::Files(_) => {}
        }
    }
    if let Some(shared) = raw.upstream.0.as_ref().and_then(|upstream| upstream.shared_authorities.first()) {
        let reason = format!("cannot be combined with {name} in views.key: what all views share is requested without it");
        checker.fault(&shared.place, reason);
    }
    let hasher = HeaderHasher::random();
    hasher.map_err(|error| checker.fault(place, format!("{name} is hashed in memory, and {error}"))).ok()
}
