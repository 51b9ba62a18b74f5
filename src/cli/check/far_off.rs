//! Warns of values that are so far from their defaults that a unit may be wrong.

use crate::config::{InForce, ShownKey, size};

/// Returns a line for each value of the file that is a hundred times its default or more, or a hundredth of it or less.
pub(super) fn warnings(in_force: &InForce) -> Vec<String> {
    let line = |(section, ShownKey { key, value, default, is_set }): (&str, &ShownKey)| {
        let (value, default) = (value.as_ref().filter(|_| *is_set)?, default.as_ref()?);
        let ratio = magnitude(value)? / magnitude(default)?;
        let is_far = ratio.is_finite() && ratio > 0.0 && ratio.max(1.0 / ratio) >= FAR;
        let place = if section == "process" { (*key).to_owned() } else { format!("{section}.{key}") };
        let how = match ratio > 1.0 {
            true => format!("{ratio:.0} times its default {default}"),
            false => format!("1/{:.0} of its default {default}", 1.0 / ratio),
        };
        is_far.then(|| format!("{place}: {value} is {how}; is the unit right?"))
    };
    in_force.all().filter_map(line).collect()
}

/// Reads a number, a time or a size; `None` for any other text.
fn magnitude(text: &str) -> Option<f64> {
    let number = || text.parse::<f64>().ok();
    let time = || humantime::parse_duration(text).ok().map(|time| time.as_secs_f64());
    let size = || size(text).ok().map(|bytes| bytes as f64);
    number().or_else(size).or_else(time)
}

const FAR: f64 = 100.0;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    #[test]
    fn a_value_a_hundred_times_off_its_default_is_told_and_one_that_is_nearer_or_not_set_is_not() {
        let of = |rest: &str| {
            let text = format!("listen: [{{address: ':1'}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\n{rest}");
            warnings(&Config::parse(Path::new("relay.yaml"), &text).unwrap().in_force)
        };
        assert_eq!(of(""), [""; 0]);
        assert_eq!(of("limits: {linger: 49m}\ndrain: {spread: 1s}\n"), [""; 0]);
        assert_eq!(
            of("limits: {linger: 50m}\n"),
            ["limits.linger: 50m is 100 times its default 30s; is the unit right?"]
        );
        assert_eq!(
            of("drain: {grace: 100ms, bytes_per_second: 1KiB}\nwatchdog: 10h\n"),
            [
                "drain.grace: 100ms is 1/100 of its default 10s; is the unit right?",
                "drain.bytes_per_second: 1KiB is 1/65536 of its default 64MiB; is the unit right?",
                "watchdog: 10h is 1200 times its default 30s; is the unit right?",
            ]
        );
        assert_eq!(of("drain: {grace: 0s}\n"), [""; 0], "none at all is no mistake in the unit");
    }
}
