//! Finds the sections in which an unknown key would be valid.

use serde_json::Value as Json;

/// Returns the names of the sections that have this key, without the top level, which has no name.
pub(super) fn of(key: &str, schema: &Json) -> Vec<String> {
    let mut homes = Vec::new();
    collect(key, schema, "", &mut homes);
    homes.dedup();
    homes
}

fn collect(key: &str, schema: &Json, path: &str, homes: &mut Vec<String>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if let Some(properties) = schema["properties"].as_object() {
        if properties.contains_key(key) && !path.is_empty() {
            homes.push(path.into());
        }
        properties.iter().for_each(|(name, schema)| collect(key, schema, &below(name), homes));
    }
    if schema["items"].is_object() {
        collect(key, &schema["items"], &format!("{path}[]"), homes);
    }
    if schema["additionalProperties"].is_object() {
        collect(key, &schema["additionalProperties"], &below("<name>"), homes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn homes_are_all_sections_but_the_top_that_have_a_key() {
        let list = json!({"items": {"properties": {"delay": {}}}});
        let names = json!({"additionalProperties": {"properties": {"delay": {}}}});
        let schema = json!({"properties": {"drain": {"properties": {"delay": {}}}, "servers": list, "by_name": names, "delay": {}}});
        assert_eq!(of("delay", &schema), ["by_name.<name>", "drain", "servers[]"]);
        assert_eq!(of("drain", &schema), [""; 0]);
    }
}
