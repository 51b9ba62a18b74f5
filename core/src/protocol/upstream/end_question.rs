//! The question where the set of a delta `*` ends, asked on the stream that the set is requested on.
//!
//! The first request of a reopening also states one made-up name, under a version that no server gives. A server that honors stated versions
//! compares all that it has with all that is stated, so it lists that name as removed. By then it has sent what it had to send of the set. The
//! set has ended if nothing came that was not stated, until a short time after that answer. One assumption is left: within one answer, removals
//! come at most that much earlier than additions.

use std::collections::BTreeSet;

use crate::protocol::moment::Moment;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::xds::Name;

/// The question of one opening. It ends with the opening.
#[derive(Debug, Default)]
pub(super) struct EndQuestion {
    asked: Option<Asked>,
}

#[derive(Debug)]
struct Asked {
    name: Name,
    /// When the request with it was written.
    written: Option<Moment>,
    /// When the server listed it as removed.
    answered: Option<Moment>,
    /// Resources with a TTL: they are cached, were not stated, and have not come yet.
    unsent: BTreeSet<Name>,
    state: QuestionState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuestionState {
    Open,
    /// The end was not known in time, so it is found out in other ways. A late answer still counts.
    Late,
    /// A resource came that was not stated: the set may have more of them.
    Grown,
    /// The server does not compare versions, or does not understand the question.
    Void,
    Ended,
}

impl EndQuestion {
    pub(crate) fn ask(&mut self, name: Name, unsent: BTreeSet<Name>) {
        self.asked = Some(Asked { name, written: None, answered: None, unsent, state: QuestionState::Open });
    }

    pub(crate) fn written(&mut self, now: Moment) {
        if let Some(asked) = &mut self.asked {
            asked.written.get_or_insert(now);
        }
    }

    /// Ends the question with the stream.
    pub(crate) fn disconnect(&mut self) {
        self.asked = None;
    }

    /// Records that the server listed a reserved name as removed. Only the name of this opening is an answer.
    pub(crate) fn on_removed(&mut self, name: &Name, now: Moment) {
        if let Some(asked) = self.asked.as_mut().filter(|asked| asked.name == *name) {
            asked.answered.get_or_insert(now);
        }
    }

    /// Records that the server has sent a reserved name as a resource, or with an error.
    pub(crate) fn on_nonsense(&mut self) {
        self.change(QuestionState::Void);
    }

    /// Records that the end was not known in time.
    pub(crate) fn give_up(&mut self) {
        self.change(QuestionState::Late);
    }

    /// Records that the server has sent something again under the stated version: it does not compare versions.
    pub(crate) fn on_repeated(&mut self) {
        self.change(QuestionState::Void);
    }

    /// Records that a name came.
    pub(crate) fn on_sent(&mut self, name: &Name, is_stated: bool) {
        let Some(asked) = &mut self.asked else { return };
        if !asked.unsent.remove(name) && !is_stated {
            self.change(QuestionState::Grown);
        }
    }

    /// Records that the server has removed a name.
    pub(crate) fn on_absent(&mut self, name: &Name) {
        if let Some(asked) = &mut self.asked {
            asked.unsent.remove(name);
        }
    }

    fn change(&mut self, to: QuestionState) {
        let may_change = |asked: &&mut Asked| {
            matches!(asked.state, QuestionState::Open | QuestionState::Late | QuestionState::Grown)
        };
        if let Some(asked) = self.asked.as_mut().filter(may_change) {
            asked.state = to;
        }
    }

    /// Returns when the set has ended, if nothing speaks against it until then. Names that were stated under a version that no server gives have
    /// to be answered as well; the caller checks that.
    pub(crate) fn ends_at(&self, options: &UpstreamOptions) -> Option<Moment> {
        let may_end = |asked: &&Asked| {
            matches!(asked.state, QuestionState::Open | QuestionState::Late) && asked.unsent.is_empty()
        };
        let asked = self.asked.as_ref().filter(may_end)?;
        asked.answered.map(|answered| answered + options.settle_fresh)
    }

    pub(crate) fn end(&mut self) {
        self.change(QuestionState::Ended);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.is(QuestionState::Ended)
    }

    /// Whether one more question may show the end, because it would state everything that has come.
    pub(crate) fn has_grown(&self) -> bool {
        self.is(QuestionState::Grown)
    }

    /// Whether an answer may still come. While it may, nothing else is requested.
    pub(crate) fn is_open(&self, now: Moment, options: &UpstreamOptions) -> bool {
        self.is(QuestionState::Open) && self.given_up_at(options).is_none_or(|at| now < at)
    }

    /// Returns when the question is given up: the server has not answered, or resources that were not stated have not come.
    pub(crate) fn given_up_at(&self, options: &UpstreamOptions) -> Option<Moment> {
        let asked = self.asked.as_ref().filter(|asked| asked.state == QuestionState::Open)?;
        asked.answered.or(asked.written).map(|since| since + options.resource_timer)
    }

    /// Returns since when the end is awaited, and whether the server has answered. `None` unless the question was written and is still open.
    pub(crate) fn waits_since(&self) -> Option<(Moment, bool)> {
        let asked = self.asked.as_ref().filter(|asked| asked.state == QuestionState::Open)?;
        asked.written.map(|written| (written, asked.answered.is_some()))
    }

    fn is(&self, state: QuestionState) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.state == state)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::START + Duration::from_millis(milliseconds)
    }

    fn asked() -> EndQuestion {
        let mut question = EndQuestion::default();
        question.ask("weir.end-of-set/1".into(), ["mortal".into()].into());
        question.written(at(0));
        question
    }

    #[test]
    fn xlat_12_the_set_ends_a_short_time_after_the_first_answer_once_all_that_was_not_stated_has_come() {
        let (mut question, options) = (asked(), UpstreamOptions::default());
        question.on_removed(&"weir.end-of-set/2".into(), at(10));
        assert_eq!(question.ends_at(&options), None, "the question of another opening");
        question.on_removed(&"weir.end-of-set/1".into(), at(20));
        question.on_removed(&"weir.end-of-set/1".into(), at(400));
        assert_eq!(question.ends_at(&options), None, "what has a TTL is sent in any case");
        question.on_sent(&"mortal".into(), false);
        question.on_sent(&"a".into(), true);
        assert_eq!(question.ends_at(&options), Some(at(20) + options.settle_fresh));
        question.end();
        assert!(question.has_ended());
        question.on_sent(&"news".into(), false);
        assert!(question.has_ended(), "a new name after the end is news");
        question.disconnect();
        assert!(!question.has_ended());
    }

    #[test]
    fn xlat_12_a_name_that_was_not_stated_is_asked_for_again_and_a_server_that_does_not_compare_is_not() {
        let options = UpstreamOptions::default();
        let mut question = asked();
        question.on_sent(&"new".into(), false);
        question.on_removed(&"weir.end-of-set/1".into(), at(20));
        assert!(question.has_grown() && question.ends_at(&options).is_none());
        question.on_repeated();
        assert!(!question.has_grown());
        question.on_sent(&"new".into(), false);
        assert!(!question.has_grown() && !question.is_open(at(20), &options));
    }

    #[test]
    fn xlat_12_an_answer_that_comes_late_still_shows_the_end() {
        let (mut question, options) = (EndQuestion::default(), UpstreamOptions::default());
        question.ask("weir.end-of-set/1".into(), BTreeSet::new());
        question.written(at(0));
        question.give_up();
        assert!(!question.is_open(at(16_000), &options) && question.given_up_at(&options).is_none());
        question.on_removed(&"weir.end-of-set/1".into(), at(20_000));
        assert_eq!(question.ends_at(&options), Some(at(20_000) + options.settle_fresh));
        question.on_sent(&"new".into(), false);
        assert!(question.ends_at(&options).is_none() && question.has_grown());
    }

    #[test]
    fn xlat_12_a_question_without_an_answer_is_given_up_after_the_resource_timer() {
        let (question, options) = (asked(), UpstreamOptions::default());
        let end = at(0) + options.resource_timer;
        assert_eq!(question.given_up_at(&options), Some(end));
        assert!(question.is_open(at(0), &options) && !question.is_open(end, &options));
    }
}
