//! Finds the known word that a misspelt one probably stands for.

/// Returns the known word with the fewest single-letter changes, if it needs at most `limit`.
pub fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>, limit: usize) -> Option<&'a str> {
    let measured = known.map(|word| (distance(text, word), word)).filter(|(distance, _)| *distance <= limit);
    measured.min().map(|(_, word)| word)
}

/// Letters that have to be added, removed, replaced, or swapped with the next one.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut line = vec![row + 1];
        for (column, with) in other.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != with);
            let mut least = replaced.min(last[column + 1] + 1).min(line[column] + 1);
            if row > 0 && column > 0 && one[row - 1] == *with && other[column - 1] == *letter {
                least = least.min(before[column - 1] + 1);
            }
            line.push(least);
        }
        before = std::mem::replace(&mut last, line);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not() {
        let known = ["listen", "limits", "views"];
        assert_eq!(nearest("limist", known.into_iter(), 2), Some("limits"), "a swap is one change");
        assert_eq!(nearest("view", known.into_iter(), 2), Some("views"));
        assert_eq!(nearest("servers", known.into_iter(), 2), None);
        assert_eq!((distance("", "abc"), distance("ab", "a"), distance("a", "ab")), (3, 1, 1));
        assert_eq!(distance("ab", "ba"), 1, "a swap");
        assert_eq!((distance("ab", "xa"), distance("ab", "bx")), (2, 2), "no swap");
    }
}
