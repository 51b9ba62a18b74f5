//! Compares two texts line by line, with the result of `diff -u`.

use std::ops::Range;

use similar::{Algorithm, DiffTag, capture_diff_slices, group_diff_ops};

/// One line of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'t> {
    /// The position and length of a hunk, before and after.
    At {
        old: (usize, usize),
        new: (usize, usize),
    },
    Same(&'t str),
    Less(&'t str),
    More(&'t str),
}

/// Returns the difference; empty if the texts are equal.
pub(super) fn lines<'t>(old: &'t str, new: &'t str) -> Vec<Line<'t>> {
    let [old, new] = [old, new].map(|text| text.lines().collect::<Vec<_>>());
    let mut lines = Vec::new();
    for hunk in group_diff_ops(capture_diff_slices(Algorithm::Myers, &old, &new), AROUND) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        lines.push(Line::At {
            old: position(first.old_range().start..last.old_range().end),
            new: position(first.new_range().start..last.new_range().end),
        });
        for step in &hunk {
            let less = old[step.old_range()].iter().copied();
            let more = new[step.new_range()].iter().copied();
            match step.tag() {
                DiffTag::Equal => lines.extend(less.map(Line::Same)),
                DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
                    lines.extend(less.map(Line::Less).chain(more.map(Line::More)));
                }
            }
        }
    }
    lines
}

/// Returns the first line of a range, from 1, and the number of its lines. An empty range has the number of the line before it.
fn position(lines: Range<usize>) -> (usize, usize) {
    let first = if lines.is_empty() { lines.start } else { lines.start + 1 };
    (first, lines.len())
}

/// How many equal lines are shown before and after what differs.
const AROUND: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    fn text(lines: &[Line]) -> String {
        let line = |line: &Line| match line {
            Line::At { old, new } => format!("@@ -{},{} +{},{} @@\n", old.0, old.1, new.0, new.1),
            Line::Same(line) => format!(" {line}\n"),
            Line::Less(line) => format!("-{line}\n"),
            Line::More(line) => format!("+{line}\n"),
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn only_what_differs_is_shown_with_three_lines_around_it() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\n";
        let new = old.replace("b\n", "B\n").replace("l\n", "l\nL\n");
        let expected = "@@ -1,5 +1,5 @@
 a
-b
+B
 c
 d
 e
@@ -10,5 +10,6 @@
 j
 k
 l
+L
 m
 n
";
        assert_eq!(text(&lines(old, &new)), expected);
        assert_eq!(lines(old, old), []);
        assert_eq!(text(&lines("", "a\n")), "@@ -0,0 +1,1 @@\n+a\n");
    }

    /// Differences form one piece if their context lines meet. A piece ends at the first and the last line of a text.
    #[test]
    fn differences_that_are_near_have_one_piece() {
        for (between, pieces) in [(5, 1), (6, 1), (7, 2), (8, 2)] {
            let same: String = (0..between).map(|number| format!("{number}\n")).collect();
            let (old, new) = (format!("a\n{same}b\n"), format!("A\n{same}B\n"));
            let found = lines(&old, &new);
            let heads = found.iter().filter(|line| matches!(line, Line::At { .. }));
            assert_eq!(heads.count(), pieces, "{between} lines between: {}", text(&found));
            let shown = found.iter().filter(|line| matches!(line, Line::Same(_))).count();
            assert_eq!(shown, between.min(6), "{between} lines between");
        }
        assert_eq!(text(&lines("a\nb\n", "b\n")), "@@ -1,2 +1,1 @@\n-a\n b\n");
        assert_eq!(text(&lines("a\n", "")), "@@ -1,1 +0,0 @@\n-a\n");
    }

    #[test]
    fn long_texts_without_an_equal_line_in_between_are_replaced_as_a_whole() {
        let many = |word: &str| (0..4000).map(|number| format!("{word} {number}\n")).collect::<String>();
        let (old, new) = (format!("first\n{}last\n", many("old")), format!("first\n{}last\n", many("new")));
        assert_eq!(lines(&old, &new).len(), 1 + 1 + 8000 + 1);
    }

    /// Texts of 10,000 lines have 100 million pairs of lines: too many for a table.
    #[test]
    fn long_texts_are_compared_line_by_line() {
        let text = |word: &str| {
            let line = |number| format!("{} {number}\n", if number % 100 == 50 { word } else { "same" });
            (0..10_000).map(line).collect::<String>()
        };
        let (old, new) = (text("old"), text("new"));
        let found = lines(&old, &new);
        assert_eq!(found.iter().filter(|line| matches!(line, Line::At { .. })).count(), 100);
        assert_eq!(
            found.len(),
            100 * (1 + 2 * AROUND + 2),
            "a head, equal lines on both sides, and the line that differs"
        );
    }

    /// Applies the difference to the old text.
    fn patched<'t>(old: &[&'t str], diff: &[Line<'t>]) -> Vec<&'t str> {
        let (mut out, mut at) = (Vec::new(), 0);
        let place = |(first, count): (usize, usize)| if count == 0 { first } else { first - 1 };
        for line in diff {
            match line {
                Line::At { old: from, new } => {
                    out.extend(&old[at..place(*from)]);
                    at = place(*from);
                    assert_eq!(out.len(), place(*new));
                }
                Line::Same(text) | Line::Less(text) => {
                    assert_eq!(old[at], *text);
                    out.extend(matches!(line, Line::Same(_)).then_some(*text));
                    at += 1;
                }
                Line::More(text) => out.push(text),
            }
        }
        out.extend(&old[at..]);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
        #[test]
        fn a_difference_makes_the_second_text_out_of_the_first(
            old in prop::collection::vec("[abc]", 0..40),
            new in prop::collection::vec("[abc]", 0..40),
        ) {
            let (old, new) = (old.join("\n"), new.join("\n"));
            let made = patched(&old.lines().collect::<Vec<_>>(), &lines(&old, &new));
            prop_assert_eq!(made, new.lines().collect::<Vec<_>>());
        }
    }
}
