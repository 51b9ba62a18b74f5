//! Gates: limits for the cost of the relay compared with a baseline. The median of the repetitions has to be within them.

use serde::{Deserialize, Serialize};

use super::subject::Subject;
use crate::measure::Spread;
use crate::report::Sample;

/// A limit for one figure of the relay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The figure's name, which includes its unit: `cpu_us_per_delivery`.
    pub figure: String,
    /// The subject that this is a limit for. `None`: the relay without TLS, and another build of it.
    pub of: Option<Subject>,
    /// The subject by whose figure in the same repetition the relay's figure is divided. `None`: the figure itself is compared.
    pub against: Option<Subject>,
    /// The name of that subject's figure, if it differs.
    pub base: Option<String>,
    /// This much of the relay's figure is free: it is subtracted first.
    pub free: f64,
    pub limit: f64,
    /// The desired value.
    pub stretch: Option<f64>,
}

/// The range in which the ratio of two baselines must be. If it is out of range, the machine or the baselines differ from those for which the
/// gates were derived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plausible {
    pub figure: String,
    pub of: Subject,
    pub against: Subject,
    pub from: f64,
    pub to: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GateResult {
    pub gate: Gate,
    pub subject: Subject,
    pub spread: Option<Spread>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Passed,
    Missed,
    /// A subject was not measured.
    NotMeasured,
    /// The baselines differ from those for which the gate was derived.
    NotJudged,
}

impl Gate {
    pub fn ratio(figure: &str, against: Subject, limit: f64) -> Self {
        Self { figure: figure.into(), of: None, against: Some(against), base: None, free: 0.0, limit, stretch: None }
    }

    pub fn absolute(figure: &str, limit: f64) -> Self {
        Self { figure: figure.into(), of: None, against: None, base: None, free: 0.0, limit, stretch: None }
    }

    /// Makes this a limit for one subject alone.
    pub fn of(self, subject: Subject) -> Self {
        Self { of: Some(subject), ..self }
    }

    pub fn stretch(self, stretch: f64) -> Self {
        Self { stretch: Some(stretch), ..self }
    }

    pub fn free(self, free: f64) -> Self {
        Self { free, ..self }
    }

    pub fn base(self, figure: &str) -> Self {
        Self { base: Some(figure.into()), ..self }
    }

    /// Whether this is a limit for the subject.
    pub fn is_for(&self, subject: Subject) -> bool {
        self.of.map_or(matches!(subject, Subject::Relay | Subject::RelayB), |of| of == subject)
    }

    pub fn judge(&self, subject: Subject, samples: &[Sample]) -> GateResult {
        let values = match self.against {
            None => values(&self.figure, subject, samples),
            Some(against) => {
                let base = self.base.as_ref().unwrap_or(&self.figure);
                ratios((subject, &self.figure, self.free), (against, base), samples)
            }
        };
        let spread = Spread::of(&values);
        let verdict = match spread {
            None => Verdict::NotMeasured,
            Some(spread) if spread.median <= self.limit => Verdict::Passed,
            Some(_) => Verdict::Missed,
        };
        GateResult { gate: self.clone(), subject, spread, verdict }
    }
}

impl Plausible {
    /// Returns the ratio if it was measured and is out of range.
    pub fn violated(&self, samples: &[Sample]) -> Option<f64> {
        let spread = Spread::of(&ratios((self.of, &self.figure, 0.0), (self.against, &self.figure), samples))?;
        (!(self.from..=self.to).contains(&spread.median)).then_some(spread.median)
    }
}

fn values(figure: &str, subject: Subject, samples: &[Sample]) -> Vec<f64> {
    let of = samples.iter().filter(|sample| sample.subject == subject);
    of.filter_map(|sample| sample.figures.get(figure).copied()).collect()
}

/// Divides the figure of one subject, less `free`, by the figure of another subject in the same repetition.
fn ratios(
    (subject, figure, free): (Subject, &str, f64),
    (against, base): (Subject, &str),
    samples: &[Sample],
) -> Vec<f64> {
    let of = samples.iter().filter(|sample| sample.subject == subject);
    let paired = of.filter_map(|sample| {
        let other = samples.iter().find(|other| other.subject == against && other.repetition == sample.repetition)?;
        let (value, base) = (sample.figures.get(figure)?, other.figures.get(base)?);
        (*base > 0.0).then(|| (value - free) / base)
    });
    paired.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn samples(values: &[(Subject, &[f64])]) -> Vec<Sample> {
        let of = |(subject, values): &(Subject, &[f64])| {
            let subject = *subject;
            let sample = move |(repetition, value): (usize, &f64)| Sample {
                figures: BTreeMap::from([("cpu".to_owned(), *value)]),
                ..Sample::empty(subject, repetition)
            };
            values.iter().enumerate().map(sample).collect::<Vec<_>>()
        };
        values.iter().flat_map(of).collect()
    }

    #[test]
    fn ratios_are_paired_by_repetition_and_judged_by_their_median() {
        let samples = samples(&[(Subject::Relay, &[2.0, 30.0, 6.0]), (Subject::Floor, &[1.0, 10.0, 4.0])]);
        let gate = Gate::ratio("cpu", Subject::Floor, 2.0);
        let result = gate.judge(Subject::Relay, &samples);
        assert_eq!(result.spread, Some(Spread { min: 1.5, median: 2.0, max: 3.0 }));
        assert_eq!(result.verdict, Verdict::Passed);
        assert_eq!(Gate::ratio("cpu", Subject::Floor, 1.9).judge(Subject::Relay, &samples).verdict, Verdict::Missed);
        assert_eq!(
            Gate::ratio("cpu", Subject::Linear, 1.9).judge(Subject::Relay, &samples).verdict,
            Verdict::NotMeasured
        );
        assert_eq!(Gate::absolute("cpu", 5.0).judge(Subject::Relay, &samples).verdict, Verdict::Missed);
        let free = Gate::ratio("cpu", Subject::Floor, 1.5).free(1.0).judge(Subject::Relay, &samples);
        assert_eq!(free.spread, Some(Spread { min: 1.0, median: 1.25, max: 2.9 }));
    }

    #[test]
    fn baselines_outside_of_their_band_are_noticed() {
        let samples = samples(&[(Subject::PlainTonic, &[3.0, 3.2, 2.9]), (Subject::Floor, &[1.0, 1.0, 1.0])]);
        let band =
            |from, to| Plausible { figure: "cpu".into(), of: Subject::PlainTonic, against: Subject::Floor, from, to };
        assert_eq!(band(2.0, 3.5).violated(&samples), None);
        assert_eq!(band(2.0, 2.9).violated(&samples), Some(3.0));
        assert_eq!(band(3.1, 9.0).violated(&samples), Some(3.0));
    }
}
