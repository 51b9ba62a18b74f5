//! Many clients of a small set connect and subscribe all at once: what a connection costs, without TLS and with it.

use super::gate::Gate;
use super::size::show_size;
use super::storm::Storm;
use super::subject::Subject;
use super::{Bench, Programs, Running};
use crate::wire::Variant;

#[derive(Debug, Clone)]
pub struct Connect {
    pub variant: Variant,
    pub connections: usize,
    pub resources: usize,
    /// Bytes of each resource.
    pub size: usize,
}

impl Bench for Connect {
    fn name(&self) -> String {
        let Self { variant, connections, resources, size } = self;
        format!("connect: {connections} clients of {resources} resources of {} at once, {variant}", show_size(*size))
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay, Subject::PlainTonic, Subject::RelayTls, Subject::RelayTlsShared]
    }

    fn gates(&self) -> Vec<Gate> {
        vec![
            Gate::ratio(CPU, Subject::PlainTonic, 0.85),
            Gate::ratio(CPU, Subject::RelayTlsShared, 1.05).of(Subject::RelayTls),
        ]
    }

    /// Measures as a storm does: the set is so small that little else than the connections counts.
    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        let Self { variant, connections, resources, size } = *self;
        let storm = Storm { variant, connections, resources, size, warm: true };
        Box::pin(async move { storm.measure(subject, programs).await })
    }
}

const CPU: &str = "cpu_ms_per_client";
