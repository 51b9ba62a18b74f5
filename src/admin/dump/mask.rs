//! The `mask` of a dump: the fields that are requested.

use serde_json::Value as Json;

/// Paths of fields. An empty path stands for everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mask(Vec<Vec<String>>);

impl Mask {
    /// Parses paths such as `dynamic_listeners.name,version_info`.
    pub(super) fn parse(text: &str) -> Self {
        let paths = text.split(',').map(str::trim).filter(|path| !path.is_empty());
        Self(paths.map(|path| path.split('.').map(str::to_owned).collect()).collect())
    }

    /// Returns the mask for the value of a field; `None` if nothing of it is requested.
    pub(super) fn within(&self, field: &str) -> Option<Self> {
        let inner = self.0.iter().filter(|path| path.first().is_none_or(|first| first == field));
        let inner: Vec<_> = inner.map(|path| path.iter().skip(1).cloned().collect()).collect();
        (!inner.is_empty()).then_some(Self(inner))
    }

    /// Drops what is not requested. The mask applies to each item of a list, and the types of Anys stay.
    pub(super) fn apply(&self, value: &mut Json) {
        if self.0.iter().any(Vec::is_empty) {
            return;
        }
        match value {
            Json::Object(fields) => {
                let all = std::mem::take(fields);
                for (field, mut value) in all {
                    if field == "@type" {
                        fields.insert(field, value);
                    } else if let Some(inner) = self.within(&field) {
                        inner.apply(&mut value);
                        fields.insert(field, value);
                    }
                }
            }
            Json::Array(items) => items.iter_mut().for_each(|item| self.apply(item)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mask_keeps_the_fields_of_its_paths_and_the_types_of_anys() {
        let masked = |mask: &str, mut value: Json| {
            Mask::parse(mask).apply(&mut value);
            value
        };
        let value =
            json!({"name": "a", "state": {"x": {"@type": "t", "a": 1, "b": 2}, "y": 3}, "list": [{"a": 1, "b": 2}]});
        assert_eq!(masked("name", value.clone()), json!({"name": "a"}));
        assert_eq!(
            masked("state.x.a, name", value.clone()),
            json!({"name": "a", "state": {"x": {"@type": "t", "a": 1}}})
        );
        assert_eq!(masked("list.b", value.clone()), json!({"list": [{"b": 2}]}));
        assert_eq!(masked("state", value.clone())["state"], value["state"]);
        assert_eq!(masked("none.at.all", value), json!({}));
        assert_eq!(Mask::parse("a.b,c").within("b"), None);
        assert_eq!(Mask::parse("a.b,a").within("a").unwrap(), Mask(vec![vec!["b".into()], vec![]]));
    }
}
