//! Metrics of the state file.

use super::page::Page;
use super::table::*;
use crate::state::StateCounters;

pub(super) fn add(page: &mut Page, state: &StateCounters) {
    page.add(STATE_WRITES, [], state.commits());
    page.add(STATE_FAILURES, [], state.failures());
    page.add(STATE_CURRENT_TIMESTAMP_SECONDS, [], state.current_at());
    page.add(STATE_VIEWS_LOADED, [], state.loaded_views());
    page.add(STATE_RESOURCES_LOADED, [], state.loaded_resources());
}
