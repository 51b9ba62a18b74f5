//! When changes of keys take effect.

use super::form::{Applies, Row, Section};
use super::raw::Root;

/// Returns when a change of a key takes effect, by its path from the top of the file. The last key on the path that declares this decides.
pub(crate) fn applies(path: &str) -> Applies {
    let (mut rows, mut found): (Vec<Row>, _) = (Root::rows(), None);
    for step in path.split('.') {
        let Some(row) = rows.into_iter().find(|row| row.key == step) else { break };
        found = row.applies.or(found);
        rows = (row.inner)().rows;
    }
    found.unwrap_or(Applies::Restart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_a_word_of_its_own_counts_like_what_it_is_in() {
        let keys = [
            "limits.header_bytes",
            "limits.linger",
            "listen",
            "listen.tls",
            "listen.address",
            "upstream.servers",
            "drain",
            "drain.grace",
            "made_up",
            "limits.made_up",
        ];
        use Applies::{AtOnce, NewStreams, Restart};
        let expected = [Restart, NewStreams, Restart, AtOnce, Restart, NewStreams, AtOnce, AtOnce, Restart, Restart];
        assert_eq!(keys.map(applies), expected);
    }
}
