//! The JSON schema of the configuration, for editors and other tools.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::form::Form;
use super::raw::Root;

/// Returns the schema (draft 2020-12). It comes from the declarations that read the file.
pub fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let mut schema = Root::schema();
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        schema["title"] = json!("Weir configuration");
        schema
    });
    &SCHEMA
}
