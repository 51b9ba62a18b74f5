//! The words that differ least from a given one.

/// Returns the word that differs least from `text`, by at most `limit` letters.
pub fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>, limit: usize) -> Option<&'a str> {
    nearest_few(text, known, limit, 1).pop()
}

/// Returns the `count` words that differ least from `text`, by at most `limit` letters, the nearest first.
pub fn nearest_few<'a>(text: &str, known: impl Iterator<Item = &'a str>, limit: usize, count: usize) -> Vec<&'a str> {
    let mut few: Vec<(usize, &str)> = Vec::new();
    for word in known {
        let Some(distance) = distance(text, word, limit) else { continue };
        let place = few.partition_point(|known| *known <= (distance, word));
        let is_listed = place > 0 && few[place - 1].1 == word;
        if place < count && !is_listed {
            few.insert(place, (distance, word));
            few.truncate(count);
        }
    }
    few.into_iter().map(|(_, word)| word).collect()
}

/// Returns how many letters have to be added, removed, replaced, or swapped with the next one; `None` if more than `limit`. Of words that
/// differ much, only the first few differing letters are compared.
fn distance(one: &str, other: &str, limit: usize) -> Option<usize> {
    let (one, other) = differing(one, other);
    if one.len().abs_diff(other.len()) > LONGEST_LETTER * limit {
        return None;
    }
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len().abs_diff(other.len()) > limit {
        return None;
    }
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
        // Each line is computed from the two before it, so no later one would be within the limit.
        if [&before, &last].into_iter().flatten().all(|distance| *distance > limit) {
            return None;
        }
    }
    Some(last[other.len()]).filter(|distance| *distance <= limit)
}

/// Returns two words without their common beginning and their common end.
fn differing<'a>(one: &'a str, other: &'a str) -> (&'a str, &'a str) {
    let same = |pair: &(char, char)| pair.0 == pair.1;
    let begin: usize = one.chars().zip(other.chars()).take_while(same).map(|(letter, _)| letter.len_utf8()).sum();
    let (one, other) = (&one[begin..], &other[begin..]);
    let end = one.chars().rev().zip(other.chars().rev()).take_while(same).map(|(letter, _)| letter.len_utf8());
    let end: usize = end.sum();
    (&one[..one.len() - end], &other[..other.len() - end])
}

/// In bytes.
const LONGEST_LETTER: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not() {
        let known = ["listen", "limits", "views"];
        assert_eq!(nearest("limist", known.into_iter(), 2), Some("limits"), "a swap is one change");
        assert_eq!(nearest("view", known.into_iter(), 2), Some("views"));
        assert_eq!(nearest("servers", known.into_iter(), 2), None);
        let distance = |one: &str, other: &str| distance(one, other, 9).unwrap();
        assert_eq!((distance("", "abc"), distance("ab", "a"), distance("a", "ab")), (3, 1, 1));
        assert_eq!((distance("ab", "ba"), distance("xaby", "xbay")), (1, 1), "a swap");
        assert_eq!((distance("ab", "xa"), distance("ab", "bx")), (2, 2), "no swap");
        assert_eq!((distance("näme", "name"), distance("aa", "a"), distance("abab", "ab")), (1, 1, 2));
    }

    #[test]
    fn the_nearest_few_are_in_order_and_each_is_there_once() {
        let known = ["cart-22", "cart-1", "card-2", "cart-3", "far", "cart-1"];
        assert_eq!(nearest_few("cart-2", known.into_iter(), 2, 3), ["card-2", "cart-1", "cart-22"]);
        assert_eq!(nearest_few("cart-2", known.into_iter(), 2, 9).len(), 4);
        assert_eq!(nearest_few("cart-2", known.into_iter(), 2, 0), [""; 0]);
    }

    #[test]
    fn what_is_far_off_is_left_early_and_a_limit_is_no_other_distance() {
        let words = ["", "a", "ab", "ba", "abc", "bac", "acb", "cab", "xabc", "abcx", "axbycz", "zzz"];
        for (one, other) in words.iter().flat_map(|one| words.iter().map(move |other| (one, other))) {
            let whole = distance(one, other, 99).unwrap();
            for limit in 0..5 {
                assert_eq!(distance(one, other, limit), Some(whole).filter(|whole| *whole <= limit), "{one} {other}");
            }
        }
    }
}
