//! The result of `weir diff` as JSON: what both sides have of each resource that differs.

use serde::Serialize;
use serde_json::{Value, json};

/// What both sides have of one resource that differs. One side may lack it.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    #[serde(flatten)]
    location: Location,
    name: String,
    first: Option<Value>,
    second: Option<Value>,
}

/// Where a resource is found.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Location {
    /// In a list of `/config_dump`.
    Dump { list: String },
    /// In a table of a view.
    View {
        #[serde(rename = "type")]
        kind: String,
        subscription: &'static str,
    },
}

impl Difference {
    pub(super) fn in_dump(list: &str, name: &str, [first, second]: [Option<Value>; 2]) -> Self {
        Self { location: Location::Dump { list: list.to_owned() }, name: name.to_owned(), first, second }
    }

    pub(super) fn in_view(kind: &str, by_name: bool, name: &str, [first, second]: [Option<Value>; 2]) -> Self {
        let subscription = if by_name { "named" } else { "wildcard" };
        Self { location: Location::View { kind: kind.to_owned(), subscription }, name: name.to_owned(), first, second }
    }
}

/// Returns the whole page: the two sides, how many resources are equal, which differ, and what could not be found out.
pub(super) fn page((first, second): (&str, &str), same: usize, differences: &[Difference], errors: &[String]) -> Value {
    json!({"first": first, "second": second, "same": same, "differences": differences, "errors": errors})
}
