//! Which member of a view an audit asks for.

/// Returns one of the nodes that differ from the one that the server is shown; `None` if there is none.
///
/// If `found` is among them, it is chosen: the node that was given something else before. Only what the server gives this node can end that
/// finding; what it gives another node says nothing about it. Otherwise a random number decides.
pub fn choose<'a, N: PartialEq>(
    nodes: impl Iterator<Item = &'a N>,
    shown: &N,
    found: Option<&N>,
    random: u64,
) -> Option<&'a N> {
    let others: Vec<_> = nodes.filter(|node| *node != shown).collect();
    if let Some(again) = others.iter().copied().find(|node| Some(*node) == found) {
        return Some(again);
    }
    let count = u64::try_from(others.len()).ok().filter(|count| *count > 0)?;
    others.get(usize::try_from(random % count).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_that_is_not_shown_is_chosen_by_some_number_and_the_shown_one_by_none() {
        let nodes = ["a", "b", "c"];
        let chosen: Vec<_> = (0..4).map(|random| *choose(nodes.iter(), &"b", None, random).unwrap()).collect();
        assert_eq!(chosen, ["a", "c", "a", "c"]);
    }

    #[test]
    fn a_member_with_the_shown_node_shows_nothing() {
        assert_eq!(choose([].iter(), &"a", None, 7), None);
        assert_eq!(choose(["a", "a"].iter(), &"a", None, 7), None);
    }

    #[test]
    fn the_member_of_a_finding_is_chosen_again_until_it_has_left_or_is_shown() {
        let nodes = ["a", "b", "c", "d"];
        let chosen = |nodes: &[&'static str], shown, random| *choose(nodes.iter(), &shown, Some(&"c"), random).unwrap();
        assert!((0..4).all(|random| chosen(&nodes, "b", random) == "c"));
        assert_eq!([0, 1].map(|random| chosen(&["a", "b", "d"], "b", random)), ["a", "d"], "it has left");
        assert_eq!([0, 1, 2].map(|random| chosen(&nodes, "c", random)), ["a", "b", "d"], "it is shown");
    }
}
