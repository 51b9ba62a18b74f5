//! The path of a value in the metadata as text: keys with points between them. A key that has points itself, or is empty, is written in brackets
//! and quotes: `LABELS["app.kubernetes.io/name"]`.

/// Reads a path.
pub(super) fn parse(text: &str) -> Option<Vec<String>> {
    let (mut keys, mut rest) = (Vec::new(), text);
    loop {
        let (key, after) = match rest.strip_prefix(OPENING) {
            Some(quoted) => quoted_key(quoted)?,
            None => plain_key(rest)?,
        };
        keys.push(key);
        rest = match after {
            "" => return Some(keys),
            after if after.starts_with(OPENING) => after,
            after => after.strip_prefix('.').filter(|after| !after.starts_with(OPENING))?,
        };
    }
}

/// Adds a key to a path.
pub(super) fn push(path: &mut String, key: &str) {
    if key.is_empty() || key.contains('.') || key.contains(OPENING) {
        let escaped = key.replace('\\', "\\\\").replace('"', "\\\"");
        path.push_str(OPENING);
        path.push_str(&escaped);
        path.push_str("\"]");
        return;
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

/// Returns the key at the beginning of a text, and what follows it.
fn plain_key(text: &str) -> Option<(String, &str)> {
    let end = [text.find('.'), text.find(OPENING)].into_iter().flatten().min().unwrap_or(text.len());
    let (key, after) = text.split_at_checked(end)?;
    (!key.is_empty()).then(|| (key.to_owned(), after))
}

/// Returns the key at the beginning of a text that follows an opening quote, and what follows the closing one.
fn quoted_key(text: &str) -> Option<(String, &str)> {
    let (mut key, mut letters) = (String::new(), text.chars());
    loop {
        match letters.next()? {
            '"' => return letters.as_str().strip_prefix(']').map(|after| (key, after)),
            '\\' => key.push(letters.next().filter(|letter| ['"', '\\'].contains(letter))?),
            letter => key.push(letter),
        }
    }
}

const OPENING: &str = "[\"";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use crate::xds::KeyField;

    fn path(keys: &[&str]) -> Vec<String> {
        keys.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_key_with_points_is_in_brackets_and_quotes() {
        for (text, keys) in [
            (r#"LABELS["app.kubernetes.io/name"]"#, vec!["LABELS", "app.kubernetes.io/name"]),
            (r#"["a.b"].c["d.e"]["f.g"]"#, vec!["a.b", "c", "d.e", "f.g"]),
            (r#"a[""]"#, vec!["a", ""]),
            (r#"a[".\"\\"]"#, vec!["a", ".\"\\"]),
            ("a.b", vec!["a", "b"]),
            ("a[0].b]", vec!["a[0]", "b]"]),
        ] {
            assert_eq!(KeyField::metadata_path(text), Some(path(&keys)), "{text}");
            assert_eq!(KeyField::path_text(&path(&keys)), text);
        }
        let field = KeyField::MetadataPath(path(&["a.b", "c"]));
        assert_eq!(field.to_string(), r#"metadata["a.b"].c"#);
        assert_eq!(KeyField::parse(r#"metadata["a.b"].c"#), Some(field));
    }

    #[test]
    fn a_path_with_an_open_quote_or_a_point_too_many_is_none() {
        for text in [
            "",
            "a.",
            ".a",
            "a..b",
            r#"a["b.c"#,
            r#"a["b.c""#,
            r#"a["b.c"]d"#,
            r#"a.["b.c"]"#,
            r#"a["b\c"]"#,
            r#"a["b"]."#,
        ] {
            assert_eq!(KeyField::metadata_path(text), None, "{text}");
            assert_eq!(KeyField::parse(&format!("metadata.{text}")), None, "{text}");
        }
        assert_eq!(KeyField::parse("metadata_x"), None);
        assert_eq!(KeyField::parse(r#"metadata.["a.b"]"#), None, "a point too many");
    }

    /// State files have the fields of a key as text, and its hash stays the same only if the text does.
    #[test]
    fn a_path_without_such_keys_is_written_as_before() {
        let except = KeyField::metadata_except(vec![path(&["LABELS", "hash"]), path(&["a b"])]);
        assert_eq!(except.to_string(), "metadata except LABELS.hash, \"a b\"");
        assert_eq!(KeyField::MetadataPath(path(&["a", "b"])).to_string(), "metadata.a.b");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
        #[test]
        fn a_path_is_read_as_it_is_written(keys in prop::collection::vec("[a.\\[\\]\"\\\\]{0,5}", 1..4)) {
            let text = KeyField::path_text(&keys);
            prop_assert_eq!(KeyField::metadata_path(&text), Some(keys.clone()), "{}", text);
            let field = KeyField::MetadataPath(keys);
            prop_assert_eq!(KeyField::parse(&field.to_string()), Some(field));
        }
    }
}
