//! Counts as people read them.

/// Returns a number with what it counts: `1 stream`, `2 streams`.
pub(crate) fn plural(count: usize, one: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {one}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alone_has_no_ending() {
        assert_eq!([0, 1, 2].map(|count| plural(count, "view")), ["0 views", "1 view", "2 views"]);
    }
}
