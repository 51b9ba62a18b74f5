//! In which variant a server is spoken to, and what the end of a stream says of the server.

use crate::protocol::session::Variant;

/// What is known of one server by the streams of one link.
pub(crate) struct VariantChoice {
    configured: Option<Variant>,
    /// For the next stream.
    variant: Variant,
    /// The variant that the server has answered in.
    spoken: Option<Variant>,
    refused_other: bool,
    /// In a row.
    refusals: u32,
    was_sent_away: bool,
}

/// How a stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// There was a response on it.
    Answered,
    /// The server does not support the variant.
    Unspoken,
    /// The server takes no more streams on the connection.
    SentAway,
    /// Anything else without a response.
    Failed,
}

/// What follows from the end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conclusion {
    /// The server can be reached, whatever it said.
    pub(crate) is_there: bool,
    /// The next stream is opened without a wait, on another connection.
    pub(crate) goes_elsewhere: bool,
    /// The end was about the variant, and not about the connection.
    pub(crate) changes_variant: bool,
}

impl Conclusion {
    /// Nothing is held against the server, and the next stream is opened after a wait.
    pub(crate) const NONE: Self = Self { is_there: true, goes_elsewhere: false, changes_variant: false };
}

impl VariantChoice {
    pub(crate) fn new(first: Option<Variant>, configured: Option<Variant>) -> Self {
        let (refused_other, was_sent_away) = (false, false);
        let variant = first.unwrap_or(Variant::Delta);
        Self { configured, variant, spoken: configured, refused_other, refusals: 0, was_sent_away }
    }

    pub(crate) fn variant(&self) -> Variant {
        self.variant
    }

    pub(crate) fn ended(&mut self, ending: Ending) -> Conclusion {
        if ending == Ending::Answered {
            self.spoken.get_or_insert(self.variant);
        }
        self.refusals = if ending == Ending::Unspoken { self.refusals + 1 } else { 0 };
        if self.refusals >= REFUSALS {
            self.spoken = self.configured; // the address now seems to lead to another server
        }
        let unspoken = ending == Ending::Unspoken && self.spoken.is_none();
        // A server that lacks one variant is reachable. A server that lacks both is of no use (FB-32).
        // One that takes no more streams on a connection is reachable too, unless it is so each time.
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

/// Rejections of the variant in a row before they are believed of a server that has answered in it.
const REFUSALS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::Ending::*;
    use super::*;

    /// Whether the server counts as there after each end, and the variant of the next stream.
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
