//! Which member of a view an audit asks for.

use bytes::Bytes;

/// Returns one of the nodes that differ from the one that the server is shown, by a random number. None if there is no such node.
pub fn choose<'a>(nodes: &'a [Bytes], shown: &Bytes, random: u64) -> Option<&'a Bytes> {
    let others: Vec<_> = nodes.iter().filter(|node| *node != shown).collect();
    let count = u64::try_from(others.len()).ok().filter(|count| *count > 0)?;
    others.get(usize::try_from(random % count).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Bytes = Bytes::from_static(b"a");
    const B: Bytes = Bytes::from_static(b"b");
    const C: Bytes = Bytes::from_static(b"c");

    #[test]
    fn each_member_that_is_not_shown_is_chosen_by_some_number_and_the_shown_one_by_none() {
        let nodes = [A, B, C];
        let chosen: Vec<_> = (0..4).map(|random| choose(&nodes, &B, random).unwrap().clone()).collect();
        assert_eq!(chosen, [A, C, A, C]);
    }

    #[test]
    fn a_member_with_the_shown_node_shows_nothing() {
        assert_eq!(choose(&[], &A, 7), None);
        assert_eq!(choose(&[A, A], &A, 7), None);
    }
}
