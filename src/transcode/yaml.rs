//! YAML to JSON values and back. The work for an input is limited by its length.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::options::{AliasLimits, DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Budget, Options};

use super::tree::Tree;

/// The limit on the nesting of lists and maps. In builds without optimisation the parser takes more than 20 KB of stack for each level of a merge,
/// and workers have 2 MiB.
pub const MAX_YAML_DEPTH: usize = 64;
/// The number of values that any file may contain, however short it is: an alias stands for many values. A longer file may contain one per byte.
const MIN_VALUES: usize = 250_000;
const MIN_SCALAR_BYTES: usize = 16 * 1024 * 1024;

/// What is wrong with a YAML text, and where.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}{reason}", place(*line, *column))]
pub struct YamlError {
    /// The line, from 1.
    pub line: Option<u64>,
    pub(crate) column: Option<u64>,
    /// What is wrong.
    pub reason: String,
}

/// Returns the documents of a text, without the empty ones.
pub fn parse_all(text: &str) -> Result<Vec<Value>, YamlError> {
    Ok(documents::<Tree>(text)?.into_iter().map(|Tree(value)| value).collect())
}

/// Returns the only document of a text.
pub fn parse(text: &str) -> Result<Value, YamlError> {
    let mut documents = parse_all(text)?;
    match documents.len() {
        1 => Ok(documents.remove(0)),
        0 => Err(YamlError { line: None, column: None, reason: "there is nothing in it".into() }),
        count => {
            Err(YamlError { line: None, column: None, reason: format!("it has {count} documents, and one is wanted") })
        }
    }
}

/// Writes a JSON value as YAML.
pub fn write(json: &Value) -> Result<String, YamlError> {
    serde_saphyr::to_string(json).map_err(|error| YamlError { line: None, column: None, reason: error.to_string() })
}

pub(super) fn documents<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, YamlError> {
    serde_saphyr::from_multiple_with_options(text, options(text.len())).map_err(|error| {
        let error = error.without_snippet();
        let location = error.location().filter(|location| location.line() > 0);
        YamlError {
            line: location.map(|location| location.line()),
            column: location.map(|location| location.column()),
            reason: reason(&error.render()),
        }
    })
}

fn options(length: usize) -> Options {
    let values = length.max(MIN_VALUES);
    let mut budget = Budget::default();
    budget.max_reader_input_bytes = None;
    budget.max_nodes = values;
    budget.max_events = values.saturating_mul(3);
    budget.max_depth = MAX_YAML_DEPTH;
    budget.flow_nesting_limit = MAX_YAML_DEPTH;
    budget.max_documents = values;
    budget.max_anchors = values;
    budget.max_aliases = values;
    budget.max_merge_keys = values;
    budget.max_recorded_anchor_events = values.saturating_mul(3);
    budget.max_total_scalar_bytes = length.saturating_mul(2).max(MIN_SCALAR_BYTES);
    budget.max_recorded_anchor_bytes = budget.max_total_scalar_bytes;
    budget.max_total_comment_bytes = length;
    // A frequently used anchor is normal, and the values that it adds are counted by the budget.
    budget.enforce_alias_anchor_ratio = false;
    let mut aliases = AliasLimits::default();
    aliases.max_total_replayed_events = values;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.alias_limits = aliases;
    options.strict_booleans = true;
    options.with_snippet = false;
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    options.non_finite_float_policy = NonFiniteFloatPolicy::PassThrough;
    options
}

/// Returns the parser's message without the position, which is reported separately.
fn reason(rendered: &str) -> String {
    let first = rendered.lines().next().unwrap_or_default();
    let cut = first.rfind(" at line ").map_or(first, |at| &first[..at]);
    cut.trim_start_matches("error: ").to_owned()
}

fn place(line: Option<u64>, column: Option<u64>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!("line {line}, column {column}: "),
        (Some(line), None) => format!("line {line}: "),
        _ => String::new(),
    }
}
