//! Compares two texts line by line, with the result of `diff -u`.

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
    pieces(&steps(&old.lines().collect::<Vec<_>>(), &new.lines().collect::<Vec<_>>()))
}

/// Returns all lines of both texts in one order.
fn steps<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<Line<'t>> {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = (&old[head..], &new[head..]);
    let tail = rest.0.iter().rev().zip(rest.1.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let mut steps: Vec<_> = old[..head].iter().map(|line| Line::Same(line)).collect();
    between(&old[head..old_end], &new[head..new_end], &mut steps);
    steps.extend(old[old_end..].iter().map(|line| Line::Same(line)));
    steps
}

/// Compares by the longest common subsequence. If that would take too long, all old lines come first and then all new ones.
fn between<'t>(old: &[&'t str], new: &[&'t str], steps: &mut Vec<Line<'t>>) {
    let less = |line: &&'t str| Line::Less(line);
    let more = |line: &&'t str| Line::More(line);
    let width = new.len() + 1;
    if (old.len() + 1).saturating_mul(width) > MOST_CELLS {
        steps.extend(old.iter().map(less).chain(new.iter().map(more)));
        return;
    }
    // Each cell is the number of common lines in the remainders of both texts, from this pair of positions on.
    let mut common = vec![0u32; (old.len() + 1) * width];
    for at in (0..old.len()).rev() {
        for to in (0..new.len()).rev() {
            common[at * width + to] = match old[at] == new[to] {
                true => common[(at + 1) * width + to + 1] + 1,
                false => common[(at + 1) * width + to].max(common[at * width + to + 1]),
            };
        }
    }
    let (mut at, mut to) = (0, 0);
    while at < old.len() && to < new.len() {
        if old[at] == new[to] {
            steps.push(Line::Same(old[at]));
            (at, to) = (at + 1, to + 1);
        } else if common[(at + 1) * width + to] >= common[at * width + to + 1] {
            steps.push(Line::Less(old[at]));
            at += 1;
        } else {
            steps.push(Line::More(new[to]));
            to += 1;
        }
    }
    steps.extend(old[at..].iter().map(less).chain(new[to..].iter().map(more)));
}

/// Returns only the differences, with a few lines around each.
fn pieces<'t>(steps: &[Line<'t>]) -> Vec<Line<'t>> {
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    for (at, _) in steps.iter().enumerate().filter(|(_, step)| !matches!(step, Line::Same(_))) {
        let (from, to) = (at.saturating_sub(AROUND), (at + 1 + AROUND).min(steps.len()));
        match pieces.last_mut() {
            Some((_, end)) if from <= *end => *end = to,
            _ => pieces.push((from, to)),
        }
    }
    let mut out = Vec::new();
    let (mut old, mut new, mut done) = (0, 0, 0);
    let count = |steps: &[Line]| {
        let of = |wanted: fn(&Line) -> bool| steps.iter().filter(|step| wanted(step)).count();
        (of(|step| !matches!(step, Line::More(_))), of(|step| !matches!(step, Line::Less(_))))
    };
    for (from, to) in pieces {
        let (skipped, piece) = (count(&steps[done..from]), count(&steps[from..to]));
        (old, new) = (old + skipped.0, new + skipped.1);
        // Lines are counted from 1; an empty range has the number of the line before it.
        let first = |before: usize, length: usize| if length == 0 { before } else { before + 1 };
        out.push(Line::At { old: (first(old, piece.0), piece.0), new: (first(new, piece.1), piece.1) });
        out.extend(&steps[from..to]);
        (old, new, done) = (old + piece.0, new + piece.1, to);
    }
    out
}

const AROUND: usize = 3;
/// The limit on the table: 16 MB, some tens of milliseconds.
const MOST_CELLS: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn texts_that_are_too_long_to_compare_are_replaced_as_a_whole() {
        let many = |word: &str| (0..4000).map(|number| format!("{word} {number}\n")).collect::<String>();
        let (old, new) = (format!("first\n{}last\n", many("old")), format!("first\n{}last\n", many("new")));
        assert_eq!(lines(&old, &new).len(), 1 + 1 + 8000 + 1);
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
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
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
