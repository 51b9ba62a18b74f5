//! The measurements of a subject.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bench::Subject;

/// One subject in one repetition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    pub subject: Subject,
    pub repetition: usize,
    /// The figures by name. The name includes the unit.
    pub figures: BTreeMap<String, f64>,
    pub timeline: Vec<Point>,
    /// Pairs of milliseconds after a change and the percentage of clients that have it by then.
    pub fan_out: Vec<(f64, f64)>,
    /// The figures of the clients of each behaviour, if simulated clients were measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_behaviour: BTreeMap<String, BTreeMap<String, f64>>,
    /// Like `fan_out`, only of the clients that behave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behaving_fan_out: Vec<(f64, f64)>,
}

/// The measurements at one time of a sample.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    pub seconds: f64,
    pub figures: BTreeMap<String, f64>,
}

impl Sample {
    /// Returns a sample without figures.
    pub fn empty(subject: Subject, repetition: usize) -> Self {
        Self {
            subject,
            repetition,
            figures: BTreeMap::new(),
            timeline: Vec::new(),
            fan_out: Vec::new(),
            by_behaviour: BTreeMap::new(),
            behaving_fan_out: Vec::new(),
        }
    }
}
