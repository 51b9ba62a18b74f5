//! The results of checks, and how they are printed.

use std::fmt::{Display, Formatter};
use std::time::Duration;

use serde_json::{Value, json};

use super::Case;

pub struct Outcome {
    pub case: Case,
    pub verdict: Verdict,
    pub took: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    /// The text says what was observed.
    Failed(String),
    /// The text is the reason.
    Skipped(&'static str),
}

#[derive(Default)]
pub struct Report {
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Whether no check failed.
    pub fn passed(&self) -> bool {
        !self.outcomes.iter().any(|outcome| matches!(outcome.verdict, Verdict::Failed(_)))
    }
}

impl Outcome {
    /// Returns the result for a program that reads it. `verdict` is `ok`, `failed` or `skipped`; the last two have a `reason`.
    pub fn to_json(&self) -> Value {
        let (verdict, reason) = match &self.verdict {
            Verdict::Ok => ("ok", None),
            Verdict::Failed(seen) => ("failed", Some(seen.as_str())),
            Verdict::Skipped(reason) => ("skipped", Some(*reason)),
        };
        let Case { check, variant } = self.case;
        json!({
            "rules": check.rules.split(' ').collect::<Vec<_>>(),
            "check": check.what,
            "variant": variant.map(|variant| variant.to_string()),
            "verdict": verdict,
            "reason": reason,
            "seconds": self.took.as_secs_f64(),
        })
    }
}

impl Display for Outcome {
    fn fmt(&self, out: &mut Formatter) -> std::fmt::Result {
        let word = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Failed(_) => "FAILED",
            Verdict::Skipped(_) => "skipped",
        };
        write!(out, "{word:<8} {} ({:.1} s)", self.case, self.took.as_secs_f64())?;
        match &self.verdict {
            Verdict::Ok => Ok(()),
            Verdict::Failed(seen) => write!(out, "\n         {seen}"),
            Verdict::Skipped(reason) => write!(out, ": {reason}"),
        }
    }
}

impl Display for Report {
    fn fmt(&self, out: &mut Formatter) -> std::fmt::Result {
        let count =
            |wanted: fn(&Verdict) -> bool| self.outcomes.iter().filter(|outcome| wanted(&outcome.verdict)).count();
        let ok = count(|verdict| *verdict == Verdict::Ok);
        let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
        let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
        let took: Duration = self.outcomes.iter().map(|outcome| outcome.took).sum();
        write!(out, "{ok} ok, {failed} failed, {skipped} skipped in {:.0} s", took.as_secs_f64())
    }
}
