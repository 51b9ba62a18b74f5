//! The environment variables for traces. A faulty one is reported, and its default is used: a relay that cannot be traced
//! still serves.

use std::str::FromStr;
use std::time::Duration;

use super::sampling::Sampling;

/// The settings from the variables.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TraceSettings {
    pub(super) endpoint: String,
    pub(super) sampling: Sampling,
    /// The limit of spans that wait for their export.
    pub(super) queue: usize,
    /// The limit of spans in one export.
    pub(super) batch: usize,
    /// How long the first span of a batch waits for others.
    pub(super) delay: Duration,
    /// How long the collector may take to answer.
    pub(super) timeout: Duration,
    /// How long an export may take, retries included.
    pub(super) export_timeout: Duration,
}

/// A variable whose value cannot be used, and what is used instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Warning {
    pub(super) variable: &'static str,
    pub(super) reason: String,
}

/// Reads the settings; `None` if there are to be no traces.
pub(super) fn read(variable: &dyn Fn(&str) -> Option<String>) -> (Option<TraceSettings>, Vec<Warning>) {
    let mut reader = SettingsReader { variable, warnings: Vec::new() };
    let settings = reader.settings();
    (settings, reader.warnings)
}

struct SettingsReader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<Warning>,
}

impl SettingsReader<'_> {
    fn settings(&mut self) -> Option<TraceSettings> {
        if self.get("OTEL_SDK_DISABLED").is_some_and(|(_, value)| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let endpoint = self.first(["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]);
        let endpoint = match self.get("OTEL_TRACES_EXPORTER") {
            None => endpoint?.1,
            Some((_, value)) if value == "otlp" => endpoint.map_or_else(|| LOCAL.to_owned(), |(_, value)| value),
            Some((_, value)) if value == "none" => return None,
            Some((variable, value)) => {
                self.warn(variable, format!("unknown exporter {value:?}: expected otlp or none; there are no traces"));
                return None;
            }
        };
        let protocol = self.first(["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]);
        if let Some((variable, protocol)) = protocol.filter(|(_, protocol)| protocol != "grpc") {
            self.warn(variable, format!("unsupported protocol {protocol:?}: expected grpc; there are no traces"));
            return None;
        }
        let compression = self.first(["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"]);
        if let Some((variable, value)) =
            compression.filter(|(_, value)| !["gzip", "none"].iter().any(|known| value.eq_ignore_ascii_case(known)))
        {
            self.warn(variable, format!("unsupported compression {value:?}: expected gzip or none; not compressing"));
        }
        self.check_own_certificate();
        let sampling = self.sampling();
        let queue = self.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048, "spans");
        let batch = self.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, "spans").min(queue);
        let delay = self.number("OTEL_BSP_SCHEDULE_DELAY", 5000, "milliseconds");
        let export_timeout = self.number("OTEL_BSP_EXPORT_TIMEOUT", 30_000, "milliseconds");
        let timeout = match self.get("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT") {
            Some((variable, _)) => self.number(variable, 10_000, "milliseconds"),
            None => self.number("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000, "milliseconds"),
        };
        let [delay, timeout, export_timeout] =
            [delay, timeout, export_timeout].map(|of| Duration::from_millis(of as u64));
        Some(TraceSettings { endpoint, sampling, queue, batch, delay, timeout, export_timeout })
    }

    /// Reports a client certificate without its key: it cannot be presented.
    fn check_own_certificate(&mut self) {
        let certificate =
            self.first(["OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"]);
        let key = self.first(["OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"]);
        match (certificate, key) {
            (Some((variable, _)), None) => {
                self.warn(
                    variable,
                    "no key beside it: expected OTEL_EXPORTER_OTLP_CLIENT_KEY; not presenting it".into(),
                );
            }
            (None, Some((variable, _))) => {
                self.warn(variable, "no certificate beside it: expected OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE".into());
            }
            _ => {}
        }
    }

    fn sampling(&mut self) -> Sampling {
        let (_, name) = self.get("OTEL_TRACES_SAMPLER").unwrap_or_default();
        let is_ratio = name.ends_with("traceidratio");
        let ratio = self.get("OTEL_TRACES_SAMPLER_ARG").filter(|_| is_ratio).map_or(1.0, |(variable, text)| {
            let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            ratio.unwrap_or_else(|| {
                self.warn(variable, format!("invalid ratio {text:?}: expected a number from 0 to 1; taking 1"));
                1.0
            })
        });
        if name.is_empty() {
            return Sampling::All;
        }
        Sampling::named(&name, ratio).unwrap_or_else(|| {
            self.warn("OTEL_TRACES_SAMPLER", format!("unknown sampler {name:?}; taking parentbased_always_on"));
            Sampling::All
        })
    }

    fn number(&mut self, variable: &'static str, default: usize, unit: &str) -> usize {
        let Some((_, text)) = self.get(variable) else { return default };
        usize::from_str(&text).ok().filter(|number| (1..=LARGEST).contains(number)).unwrap_or_else(|| {
            let expected = format!("expected a number of {unit} from 1 to {LARGEST}");
            self.warn(variable, format!("invalid number {text:?}: {expected}; taking {default}"));
            default
        })
    }

    /// Returns the first variable that is set, with its name.
    fn first(&self, variables: [&'static str; 2]) -> Option<(&'static str, String)> {
        variables.into_iter().find_map(|variable| self.get(variable))
    }

    /// Returns a variable that is set. By the specification an empty one counts as not set.
    fn get(&self, variable: &'static str) -> Option<(&'static str, String)> {
        (self.variable)(variable)
            .map(|value| (variable, value.trim().to_owned()))
            .filter(|(_, value)| !value.is_empty())
    }

    fn warn(&mut self, variable: &'static str, reason: String) {
        self.warnings.push(Warning { variable, reason });
    }
}

/// The specification's default endpoint.
const LOCAL: &str = "http://localhost:4317";
const LARGEST: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> (Option<TraceSettings>, Vec<Warning>) {
        read(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");

    #[test]
    fn traces_are_off_until_an_endpoint_is_set_or_the_exporter_is_named() {
        let endpoint = |variables: &[(&str, &str)]| of(variables).0.map(|settings| settings.endpoint);
        assert_eq!(endpoint(&[]), None);
        assert_eq!(endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), None);
        assert_eq!(endpoint(&[ENDPOINT]).as_deref(), Some("http://collector:4317"));
        assert_eq!(
            endpoint(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:1")]).unwrap(),
            "http://own:1"
        );
        assert_eq!(endpoint(&[("OTEL_TRACES_EXPORTER", "otlp")]).as_deref(), Some(LOCAL));
        for off in [("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(of(&[ENDPOINT, off]), (None, Vec::new()), "{off:?}");
        }
    }

    #[test]
    fn a_sampler_and_the_limits_of_the_batches_are_taken() {
        let of = |variables: &[(&str, &str)]| of(&[&[ENDPOINT], variables].concat()).0.unwrap();
        assert_eq!(of(&[]).sampling, Sampling::All);
        assert_eq!(of(&[("OTEL_TRACES_SAMPLER", "always_off")]).sampling, Sampling::None);
        let ratio = ("OTEL_TRACES_SAMPLER_ARG", "0.25");
        assert_eq!(of(&[("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ratio]).sampling, Sampling::Ratio(0.25));
        let limits = [("OTEL_BSP_MAX_QUEUE_SIZE", "7"), ("OTEL_BSP_SCHEDULE_DELAY", "90")];
        let TraceSettings { queue, batch, delay, timeout, export_timeout, .. } = of(&limits);
        assert_eq!((queue, batch), (7, 7), "a batch has no more than the queue");
        assert_eq!([delay.as_millis(), timeout.as_millis(), export_timeout.as_millis()], [90, 10_000, 30_000]);
        let both = [("OTEL_EXPORTER_OTLP_TIMEOUT", "5"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "6")];
        assert_eq!(of(&both).timeout.as_millis(), 6);
    }

    #[test]
    fn what_cannot_be_used_is_reported_all_at_once_and_what_cannot_work_is_off() {
        let wrong = [
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_SCHEDULE_DELAY", "5s"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ];
        let (settings, warnings) = of(&[&[ENDPOINT], &wrong[..]].concat());
        assert_eq!(settings, of(&[ENDPOINT]).0, "the defaults count");
        let reported: Vec<_> = warnings.iter().map(|warning| warning.variable).collect();
        assert_eq!(
            reported,
            [
                "OTEL_EXPORTER_OTLP_COMPRESSION",
                "OTEL_TRACES_SAMPLER",
                "OTEL_BSP_MAX_QUEUE_SIZE",
                "OTEL_BSP_SCHEDULE_DELAY"
            ]
        );
        let ratio = [ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        assert_eq!(of(&ratio).1.len(), 1);
        for off in [("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"), ("OTEL_TRACES_EXPORTER", "zipkin")] {
            let (settings, warnings) = of(&[ENDPOINT, off]);
            assert!(settings.is_none() && warnings.len() == 1, "{off:?}");
        }
    }
}
