//! Writes mutants into a file, each behind its switch.

use std::ops::Range;

use crate::mutation::{Mutant, Place};

#[cfg(test)]
#[path = "rewrite_tests.rs"]
mod tests;

/// A changed file, with the places of its mutants.
pub struct Rewritten {
    pub text: String,
    /// For each mutant its number, the range of the text that only it has, and the range of its whole place.
    pub placed: Vec<(usize, Range<usize>, Range<usize>)>,
}

/// Returns the source with all mutants. Their numbers are those of their switches.
pub fn rewrite(source: &str, mutants: &[(usize, &Mutant)]) -> Rewritten {
    let mut sites: Vec<Site> = Vec::new();
    for (number, mutant) in mutants {
        let range = mutant.place.range();
        match sites.iter_mut().find(|site| site.range == range && site.is_like(&mutant.place)) {
            Some(site) => site.mutants.push((*number, &mutant.place)),
            None => sites.push(Site { range, mutants: vec![(*number, &mutant.place)] }),
        }
    }
    // Outer sites come before inner ones. Of two sites with one range, a statement contains its expression.
    sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end), site.depth()));
    let mut writer = Writer { source, sites: &sites, next: 0, text: String::new(), placed: Vec::new() };
    writer.copy(0..source.len());
    Rewritten { text: writer.text, placed: writer.placed }
}

struct Site<'a> {
    range: Range<usize>,
    mutants: Vec<(usize, &'a Place)>,
}

impl Site<'_> {
    fn is_like(&self, place: &Place) -> bool {
        self.mutants.iter().all(|(_, other)| std::mem::discriminant(*other) == std::mem::discriminant(place))
    }

    fn depth(&self) -> u8 {
        match self.mutants[0].1 {
            Place::Body { .. } | Place::Arm { .. } => 0,
            Place::Statement { .. } => 1,
            Place::Expression { .. } => 2,
        }
    }
}

impl Place {
    fn range(&self) -> Range<usize> {
        match self {
            Self::Body { at, .. } => *at..*at,
            Self::Expression { range, .. } | Self::Statement { range } => range.clone(),
            Self::Arm { at, guard } => *at..guard.as_ref().map_or(*at, |guard| guard.end),
        }
    }
}

struct Writer<'a> {
    source: &'a str,
    sites: &'a [Site<'a>],
    next: usize,
    text: String,
    placed: Vec<(usize, Range<usize>, Range<usize>)>,
}

impl Writer<'_> {
    /// Copies a part of the source, with the sites in it rewritten.
    fn copy(&mut self, part: Range<usize>) {
        let mut at = part.start;
        while let Some(site) = self.sites.get(self.next).filter(|site| site.range.end <= part.end) {
            self.next += 1;
            self.text.push_str(&self.source[at..site.range.start]);
            self.site(site);
            at = site.range.end;
        }
        self.text.push_str(&self.source[at..part.end]);
    }

    fn site(&mut self, site: &Site<'_>) {
        let (start, before) = (self.text.len(), self.placed.len());
        match site.mutants[0].1 {
            Place::Body { .. } => {
                for (number, place) in &site.mutants {
                    let Place::Body { value, .. } = place else { continue };
                    self.mutant(*number, &format!(" if {} {{ return {value}; }}", switch(*number)));
                }
            }
            Place::Expression { .. } => {
                self.text.push('(');
                for (number, place) in &site.mutants {
                    let Place::Expression { other, .. } = place else { continue };
                    self.mutant(*number, &format!("if {} {{ ({other}) }} else ", switch(*number)));
                }
                self.text.push_str("{ (");
                self.copy(site.range.clone());
                self.text.push_str(") })");
            }
            Place::Statement { .. } => {
                self.mutant(site.mutants[0].0, &format!("if !{} {{ ", switch(site.mutants[0].0)));
                self.copy(site.range.clone());
                self.text.push_str(" }");
            }
            Place::Arm { guard, .. } => {
                self.mutant(site.mutants[0].0, &format!(" if !{}", switch(site.mutants[0].0)));
                if let Some(guard) = guard {
                    self.text.push_str(" && (");
                    self.copy(guard.clone());
                    self.text.push(')');
                }
            }
        }
        let whole = start..self.text.len();
        for placed in &mut self.placed[before..] {
            if site.mutants.iter().any(|(number, _)| *number == placed.0) {
                placed.2 = whole.clone();
            }
        }
    }

    fn mutant(&mut self, number: usize, text: &str) {
        let range = self.text.len()..self.text.len() + text.len();
        self.text.push_str(text);
        self.placed.push((number, range.clone(), range));
    }
}

/// Returns the condition that a mutant is turned on.
pub fn switch(number: usize) -> String {
    format!("crate::mutant_switch::is_on({number})")
}
