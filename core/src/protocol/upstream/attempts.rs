//! Attempts to open a stream to a server: how long the next one waits (UP-33, UP-34), in which variant it is, and what the end of the last one
//! shows about the server.

use std::time::Duration;

use crate::protocol::session::Variant;

/// How waiting times grow. Invariants: `initial` is not zero and at most `max`, `factor` is at least 1, and `jitter` is between 0
/// and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackoffTimes {
    /// The first wait.
    pub initial: Duration,
    /// By which factor each wait is longer than the one before.
    pub factor: f64,
    /// The longest wait.
    pub max: Duration,
    /// The fraction of a wait by which it may be longer or shorter.
    pub jitter: f64,
    /// How long a stream with a response has to last for the next wait to be the initial one again.
    pub reset_after: Duration,
}

/// The numbers are checked when the configuration is read, so that none of them is NaN.
impl Eq for BackoffTimes {}

impl Default for BackoffTimes {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            factor: 1.6,
            max: Duration::from_secs(120),
            jitter: 0.2,
            reset_after: Duration::from_secs(30),
        }
    }
}

/// The waiting times of one stream. They grow until a stream lasts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    times: BackoffTimes,
    failures: u32,
    /// A short stream with a response has reset the waits. That happens once at most between two streams that last.
    spared: bool,
}

impl Backoff {
    /// Starts with the first wait.
    pub fn new(times: BackoffTimes) -> Self {
        Self { times, ..Self::default() }
    }

    /// Returns how long to wait before the next attempt. `random` is between 0 and 1.
    pub fn next(&mut self, random: f64) -> Duration {
        let BackoffTimes { initial, factor, max, jitter, .. } = self.times;
        let exponent = i32::try_from(self.failures).unwrap_or(i32::MAX);
        self.failures = self.failures.saturating_add(1);
        let seconds = (initial.as_secs_f64() * factor.powi(exponent)).min(max.as_secs_f64());
        let jittered = seconds * (1.0 + jitter * (2.0 * random.clamp(0.0, 1.0) - 1.0));
        Duration::try_from_secs_f64(jittered).unwrap_or(max)
    }

    /// Records that a stream has ended, or could not be opened. A server that responds and then ends each stream is not retried at the initial
    /// pace for ever: after the first time, only a stream that lasts resets the waits. A stream that outlasts the longest wait resets them even
    /// without a response.
    pub fn ended(&mut self, answered: bool, lived: Duration) {
        let BackoffTimes { max, reset_after, .. } = self.times;
        if answered && lived >= reset_after || lived >= max.max(reset_after) {
            self.reset();
        } else if answered && !self.spared {
            self.failures = 0;
            self.spared = true;
        }
    }

    /// Starts over with the shortest wait, after a stream that worked.
    pub fn reset(&mut self) {
        self.failures = 0;
        self.spared = false;
    }
}

/// What successive streams to one server have shown about its variants.
pub struct VariantChoice {
    configured: Option<Variant>,
    /// The variant of the next stream.
    variant: Variant,
    /// The variant that is configured, or that the server has answered in.
    spoken: Option<Variant>,
    refused_other: bool,
    /// How many times in a row the server has rejected the variant.
    refusals: u32,
    was_sent_away: bool,
}

/// How a stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The stream had a response.
    Answered,
    /// The server does not support the variant.
    Unspoken,
    /// The server takes no more streams on this connection.
    SentAway,
    /// The stream ended otherwise without a response.
    Failed,
}

/// What follows from the end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conclusion {
    /// The server can be reached, whatever it answered.
    pub is_there: bool,
    /// The next stream is opened without a wait, on another connection.
    pub goes_elsewhere: bool,
    /// The end was about the variant, and not about the connection.
    pub changes_variant: bool,
}

impl Conclusion {
    /// The end says nothing against the server. The next stream is opened after a wait.
    pub const NONE: Self = Self { is_there: true, goes_elsewhere: false, changes_variant: false };
}

impl VariantChoice {
    /// Starts with `first`, or with delta. A configured variant is never changed.
    pub fn new(first: Option<Variant>, configured: Option<Variant>) -> Self {
        let (refused_other, was_sent_away) = (false, false);
        let variant = first.unwrap_or(Variant::Delta);
        Self { configured, variant, spoken: configured, refused_other, refusals: 0, was_sent_away }
    }

    /// Returns the variant in which to open the next stream.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Records how a stream ended, and returns what follows.
    pub fn ended(&mut self, ending: Ending) -> Conclusion {
        if ending == Ending::Answered {
            self.spoken.get_or_insert(self.variant);
        }
        self.refusals = if ending == Ending::Unspoken { self.refusals + 1 } else { 0 };
        if self.refusals >= REFUSALS {
            self.spoken = self.configured; // the address now seems to lead to another server
        }
        let unspoken = ending == Ending::Unspoken && self.spoken.is_none();
        // A server that lacks one variant is reachable. A server that lacks both is of no use (FB-32). A server that takes no more streams on a
        // connection is reachable too, unless that happens each time.
        let goes_elsewhere = ending == Ending::SentAway && !self.was_sent_away;
        let is_there = ending == Ending::Answered || unspoken && !self.refused_other || goes_elsewhere;
        (self.refused_other, self.was_sent_away) = (unspoken, ending == Ending::SentAway);
        if unspoken {
            self.variant = other(self.variant);
        }
        Conclusion { is_there, goes_elsewhere, changes_variant: unspoken }
    }
}

fn other(variant: Variant) -> Variant {
    match variant {
        Variant::Sotw => Variant::Delta,
        Variant::Delta => Variant::Sotw,
    }
}

/// If a server has answered in a variant: how many rejections of that variant in a row are believed.
const REFUSALS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::Ending::*;
    use super::*;

    const SHORT: Duration = Duration::from_secs(29);
    const LASTING: Duration = Duration::from_secs(30);

    /// Returns the next wait without jitter.
    fn wait(backoff: &mut Backoff) -> f64 {
        backoff.next(0.5).as_secs_f64()
    }

    #[test]
    fn up_33_waits_grow_to_the_cap_and_start_over_after_a_stream_that_lasted() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..40).map(|_| wait(&mut backoff)).collect();
        assert!((waits[0] - 1.0).abs() < 1e-9 && (waits[1] - 1.6).abs() < 1e-9);
        assert!(waits.is_sorted() && waits[39] == 120.0);
        backoff.ended(false, LASTING);
        assert_eq!(wait(&mut backoff), 120.0, "a stream without a response is no reason to hope");
        backoff.ended(true, LASTING);
        assert_eq!(wait(&mut backoff), 1.0);
        backoff.next(0.5);
        backoff.ended(false, Duration::from_secs(120));
        assert_eq!(wait(&mut backoff), 1.0, "it has outlasted the longest wait");
    }

    #[test]
    fn up_34_a_stream_that_answered_is_retried_soon_the_first_time_and_one_that_goes_on_dying_less_and_less() {
        let mut backoff = Backoff::default();
        while wait(&mut backoff) < 120.0 {}
        let mut waits = Vec::new();
        for _ in 0..15 {
            backoff.ended(true, SHORT);
            waits.push(wait(&mut backoff));
        }
        assert_eq!((waits[0], waits[1], waits[14]), (1.0, 1.6, 120.0));
        assert!(waits.is_sorted());
        backoff.ended(true, LASTING);
        assert_eq!(wait(&mut backoff), 1.0);
        backoff.next(0.5);
        backoff.ended(true, SHORT);
        assert_eq!(wait(&mut backoff), 1.0, "the first time since one has lasted");
    }

    #[test]
    fn jitter_stays_within_a_fifth() {
        for random in [0.0, 0.3, 1.0, 7.0] {
            let wait = Backoff::default().next(random).as_secs_f64();
            assert!((0.8..=1.2).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn waits_are_those_that_were_configured_however_large() {
        let times = BackoffTimes {
            initial: Duration::from_millis(10),
            factor: 1e300,
            max: Duration::MAX,
            jitter: 1.0,
            ..BackoffTimes::default()
        };
        let mut backoff = Backoff::new(times);
        assert_eq!(backoff.next(0.5), Duration::from_millis(10));
        assert!((0..5).all(|_| backoff.next(1.0) > Duration::from_secs(1 << 40)));
        let mut even = Backoff::new(BackoffTimes { factor: 1.0, ..BackoffTimes::default() });
        assert!((0..100).all(|_| wait(&mut even) == 1.0));
    }

    /// Returns whether the server counts as reachable after each end, and the variant of the next stream.
    fn concluded<const N: usize>(choice: &mut VariantChoice, endings: [Ending; N]) -> [(bool, Variant); N] {
        endings.map(|ending| (choice.ended(ending).is_there, choice.variant()))
    }

    #[test]
    fn fb_32_a_server_that_lacks_one_variant_is_there_and_one_that_lacks_both_is_not() {
        let mut choice = VariantChoice::new(None, None);
        let found = concluded(&mut choice, [Unspoken, Unspoken, Unspoken, Answered, Unspoken]);
        let expected = [(true, Variant::Sotw), (false, Variant::Delta), (false, Variant::Sotw), (true, Variant::Sotw)];
        assert_eq!(found[..4], expected);
        assert_eq!(found[4], (false, Variant::Sotw), "it has answered in it");
    }

    #[test]
    fn fb_32_refusals_are_believed_of_a_server_that_has_answered_if_they_come_in_a_row() {
        let mut choice = VariantChoice::new(None, None);
        choice.ended(Answered);
        for _ in 0..10 {
            let found = concluded(&mut choice, [Unspoken, Unspoken, Unspoken, Unspoken, Answered]);
            assert!(found.iter().all(|(_, variant)| *variant == Variant::Delta));
            let found = concluded(&mut choice, [Unspoken, Unspoken, Unspoken, Unspoken, Failed]);
            assert!(found.iter().all(|(_, variant)| *variant == Variant::Delta));
        }
        let found = concluded(&mut choice, [Unspoken; 6]).map(|(_, variant)| variant);
        assert_eq!(found[3..], [Variant::Delta, Variant::Sotw, Variant::Delta]);
    }

    #[test]
    fn a_configured_variant_is_kept_whatever_the_server_says() {
        let mut choice = VariantChoice::new(Some(Variant::Sotw), Some(Variant::Sotw));
        assert!(concluded(&mut choice, [Unspoken; 9]).iter().all(|found| *found == (false, Variant::Sotw)));
    }

    #[test]
    fn a_server_that_sends_streams_away_each_time_is_of_no_use() {
        let mut choice = VariantChoice::new(None, None);
        let goes = [SentAway, SentAway, SentAway, Answered, SentAway, Failed, SentAway];
        let goes = goes.map(|ending| choice.ended(ending).goes_elsewhere);
        assert_eq!(goes, [true, false, false, false, true, false, true]);
    }
}
