//! The two text formats of metrics, and which of them a request accepts.

use std::collections::BTreeSet;

/// A format of the metrics page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    /// The text format of Prometheus, version 0.0.4, which every scraper can read.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// Returns the format for the value of an Accept header: the one with the higher quality, or OpenMetrics if both have the same.
    pub(crate) fn accepted(accept: Option<&str>) -> Self {
        let (mut text, mut open_metrics) = (None::<u16>, None::<u16>);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut is_known) = (1000, true);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = thousandths(value.trim()),
                    "version" => is_known = has_version(&media, value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            let of = match media.as_str() {
                "application/openmetrics-text" => &mut open_metrics,
                "text/plain" | "text/*" | "*/*" => &mut text,
                _ => continue,
            };
            *of = Some(quality).filter(|_| is_known).max(*of);
        }
        match open_metrics {
            Some(quality) if quality > 0 && quality >= text.unwrap_or_default() => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts OpenMetrics text to this format.
    pub(super) fn of_open_metrics(self, text: &str) -> String {
        match self {
            Self::Text => classic(text),
            Self::OpenMetrics => text.to_owned(),
        }
    }
}

/// Whether a version in an Accept header is one that is written.
fn has_version(media: &str, version: &str) -> bool {
    match media {
        "application/openmetrics-text" => matches!(version, "1.0.0" | "0.0.1"),
        _ => version == "0.0.4",
    }
}

/// Returns a quality in thousandths; one that cannot be parsed counts as 0.
fn thousandths(quality: &str) -> u16 {
    let quality: f32 = quality.parse().unwrap_or_default();
    (quality.clamp(0.0, 1.0) * 1000.0).round() as u16
}

/// Converts to the older format: there a family of counters has the name of its series, and the page has no end mark.
fn classic(text: &str) -> String {
    let mut classic = String::with_capacity(text.len());
    let counters: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    for line in text.lines() {
        if line == "# EOF" {
            continue;
        }
        let described = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        let name = described.and_then(|rest| rest.split(' ').next()).filter(|name| counters.contains(name));
        match name {
            Some(name) => {
                let (start, end) = line.split_at("# HELP ".len() + name.len());
                classic.extend([start, "_total", end, "\n"]);
            }
            None => classic.extend([line, "\n"]),
        }
    }
    classic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_for_those_who_ask_for_it_at_least_as_much_as_for_text() {
        use MetricsFormat::{OpenMetrics, Text};
        // The headers of Prometheus 2.53 and 3.1, curl, and a browser.
        let prometheus_2 = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, format) in [
            (prometheus_2, OpenMetrics),
            (prometheus_3, OpenMetrics),
            (browser, Text),
            ("*/*", Text),
            ("", Text),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; Version=1.0.0; Q=1", OpenMetrics),
            ("application/openmetrics-text;q=0.3,text/plain;q=0.7", Text),
            ("application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text;version=9.0.0", Text),
            ("application/openmetrics-text;q=x", Text),
            (";;;q=,=,,", Text),
        ] {
            assert_eq!(MetricsFormat::accepted(Some(accept)), format, "{accept}");
        }
        assert_eq!(MetricsFormat::accepted(None), Text);
    }

    #[test]
    fn the_older_format_names_counters_as_their_series_and_has_no_end() {
        let open_metrics = "# HELP a_b Bytes.\n# TYPE a_b gauge\na_b 1\n# HELP c It counts.\n# TYPE c counter\nc_total{d=\"# EOF\"} 2\n# HELP h Times.\n# TYPE h histogram\nh_sum 0.5\nh_count 1\nh_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let text = "# HELP a_b Bytes.\n# TYPE a_b gauge\na_b 1\n# HELP c_total It counts.\n# TYPE c_total counter\nc_total{d=\"# EOF\"} 2\n# HELP h Times.\n# TYPE h histogram\nh_sum 0.5\nh_count 1\nh_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(MetricsFormat::Text.of_open_metrics(open_metrics), text);
        assert_eq!(MetricsFormat::OpenMetrics.of_open_metrics(open_metrics), open_metrics);
    }
}
