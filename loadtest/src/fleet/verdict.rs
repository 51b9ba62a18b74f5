//! The verdict on a run of clients.

use std::fmt;

use super::counters::Counters;
use super::progress::plural;

/// The result of `weir-loadtest clients`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// Too few clients received everything that they subscribe to, or a check failed.
    Failed,
    /// No client connected, or none received everything that it subscribes to. There is nothing to judge.
    Unserved,
}

/// The counts from which a verdict follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// Connections that were opened.
    pub connects: u64,
    /// Clients that request anything.
    pub subscribing: u64,
    /// The number of clients with a behaviour of real clients, and how many of them synced.
    pub behaving: u64,
    pub behaving_synced: u64,
    /// How many of them have to sync.
    pub min_synced: u64,
    pub synced: u64,
    pub violations: u64,
}

impl Judged {
    pub fn new(counters: &Counters, [subscribing, behaving, min_synced]: [u64; 3]) -> Self {
        let (synced, behaving_synced) = (counters.synced.value(), counters.behaving_synced.value());
        let (connects, violations) = (counters.connects.value(), counters.violations.value());
        Self { connects, subscribing, behaving, behaving_synced, min_synced, synced, violations }
    }

    pub fn verdict(&self) -> Verdict {
        if self.connects == 0 || (self.synced == 0 && self.subscribing > 0) {
            return Verdict::Unserved;
        }
        let passed = self.behaving_synced >= self.min_synced && self.violations == 0;
        if passed { Verdict::Passed } else { Verdict::Failed }
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verdict() {
            Verdict::Passed => f.write_str("passed"),
            Verdict::Unserved if self.connects == 0 => f.write_str("NOT SERVED: no client connected"),
            Verdict::Unserved => f.write_str("NOT SERVED: no client received everything that it subscribes to"),
            Verdict::Failed => {
                let Self { behaving, behaving_synced, min_synced, violations, .. } = self;
                let few = (behaving_synced < min_synced).then(|| {
                    format!(
                        "{behaving_synced} of {} that behave synced, {min_synced} must",
                        plural(*behaving, "client")
                    )
                });
                let broken = (*violations > 0).then(|| plural(*violations, "violation"));
                let reasons: Vec<_> = few.into_iter().chain(broken).collect();
                write!(f, "FAILED: {}", reasons.join("; "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Judged = Judged {
        connects: 3,
        subscribing: 12,
        behaving: 10,
        behaving_synced: 10,
        min_synced: 10,
        synced: 11,
        violations: 0,
    };

    #[test]
    fn a_run_passes_if_enough_clients_that_behave_synced_and_no_check_failed() {
        assert_eq!((ALL.verdict(), ALL.to_string().as_str()), (Verdict::Passed, "passed"));
        let few = Judged { behaving_synced: 9, violations: 1, ..ALL };
        let expected = "FAILED: 9 of 10 clients that behave synced, 10 must; 1 violation";
        assert_eq!((few.verdict(), few.to_string().as_str()), (Verdict::Failed, expected));
        assert_eq!(Judged { min_synced: 9, violations: 0, ..few }.verdict(), Verdict::Passed);
    }

    #[test]
    fn a_run_without_a_client_that_synced_judges_nothing() {
        let none = Judged { behaving_synced: 0, synced: 0, ..ALL };
        assert_eq!(none.verdict(), Verdict::Unserved);
        assert_eq!(Judged { violations: 3, ..none }.verdict(), Verdict::Unserved);
        assert_eq!(Judged { min_synced: 0, ..none }.verdict(), Verdict::Unserved, "also if none has to");
        let slow = Judged { behaving: 0, min_synced: 0, ..none };
        assert_eq!(slow.verdict(), Verdict::Unserved, "clients that only misbehave request something too");
        let zombies = Judged { subscribing: 0, ..slow };
        assert_eq!(zombies.verdict(), Verdict::Passed, "zombies do not");
        let dead = Judged { connects: 0, ..zombies };
        assert_eq!((dead.verdict(), dead.to_string().as_str()), (Verdict::Unserved, "NOT SERVED: no client connected"));
    }
}
