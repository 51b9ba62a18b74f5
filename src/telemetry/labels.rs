//! One metric for each set of labels.

use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Metric, Registry};

pub(super) type Labels<'a> = [(&'a str, &'a str)];

pub(super) struct Labelled<M>(Family<Vec<(String, String)>, M>);

impl<M: Default + Clone + TypedMetric> Labelled<M>
where
    Family<Vec<(String, String)>, M>: Metric,
{
    pub(crate) fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let family = Family::default();
        registry.register(name, help, family.clone());
        Self(family)
    }

    pub(crate) fn at(&self, labels: &Labels<'_>) -> M {
        let labels = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        self.0.get_or_create_owned(&labels)
    }
}
