//! Texts of configurations and bootstrap files, read without the files beside them.

use std::path::Path;

use weir_core::protocol::ladder::FallbackTimers;

use super::bootstrap::{self, Bootstrap};
use super::diagnostic::Diagnostic;
use super::json::JsonReader;
use super::load::{self, Config, Review};
use super::plain_server::default_message_bytes;
use super::shown::json_of;
use crate::upstream::Plan;

/// Reviews the text of a configuration file with these environment variables, like a relay that reads it. Returns the configuration if a relay could
/// start with it, then the faults, then the warnings.
pub fn review_config(
    path: &Path,
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> (Option<Config>, Vec<Diagnostic>, Vec<Diagnostic>) {
    let Review { config, faults, warnings, .. } = load::review(path, text, environment, false);
    (config, faults, warnings)
}

/// Reads the text of a bootstrap file of gRPC clients, and returns its servers in their lists, or all of its faults.
pub fn read_bootstrap(path: &Path, text: &str) -> Result<Plan, Vec<Diagnostic>> {
    let Bootstrap { lists, .. } = bootstrap::read(path, text, default_message_bytes(), false)?;
    Ok(Plan::new(lists, FallbackTimers::default(), false))
}

/// Reads a JSON text like that of a bootstrap file, with the places of faults; duplicate keys are faults too. An integer outside the range of `i64`
/// becomes null.
pub fn read_json(path: &Path, text: &str) -> Result<serde_json::Value, Vec<Diagnostic>> {
    let mut reader = JsonReader::of(path, false);
    let tree = reader.parse(text);
    let faults = reader.into_diagnostics().faults;
    match tree {
        Some(tree) if faults.is_empty() => Ok(json_of(&tree, &str::to_owned)),
        _ => Err(faults),
    }
}
