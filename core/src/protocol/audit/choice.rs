//! Which member of a view an audit asks for.

/// Returns one of the nodes that differ from the one that the server is shown, by a random number. None if there is no such node.
pub fn choose<'a, N: PartialEq>(nodes: impl Iterator<Item = &'a N>, shown: &N, random: u64) -> Option<&'a N> {
    let others: Vec<_> = nodes.filter(|node| *node != shown).collect();
    let count = u64::try_from(others.len()).ok().filter(|count| *count > 0)?;
    others.get(usize::try_from(random % count).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_that_is_not_shown_is_chosen_by_some_number_and_the_shown_one_by_none() {
        let nodes = ["a", "b", "c"];
        let chosen: Vec<_> = (0..4).map(|random| *choose(nodes.iter(), &"b", random).unwrap()).collect();
        assert_eq!(chosen, ["a", "c", "a", "c"]);
    }

    #[test]
    fn a_member_with_the_shown_node_shows_nothing() {
        assert_eq!(choose([].iter(), &"a", 7), None);
        assert_eq!(choose(["a", "a"].iter(), &"a", 7), None);
    }
}
