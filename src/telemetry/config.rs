//! Metrics of the configuration file.

use std::time::UNIX_EPOCH;

use super::page::Page;
use super::table::*;
use crate::config_status::ConfigFacts;

pub(super) fn add(page: &mut Page, facts: &ConfigFacts) {
    page.add(CONFIG_LAST_RELOAD_SUCCESSFUL, [], facts.error.is_none().into());
    let read = facts.read.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    page.add(CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS, [], read);
    page.add(CONFIG_RELOADS, ["taken"], facts.reloads);
    page.add(CONFIG_RELOADS, ["failed"], facts.failures);
    page.count(CONFIG_PENDING_KEYS, [], facts.pending.len());
    page.add(CONFIG_HASH, [&facts.sha256], 1);
}
