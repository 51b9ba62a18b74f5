//! Counts the events that the histories should contain. A run without an event proves nothing about it.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    SotwReply,
    DeltaReply,
    UnionReply,
    ReducedReply,
    EmptyFullSet,
    EmptyDeltaReply,
    DeltaRemoval,
    AbsentAnswer,
    ForcedEndpoints,
    RoutingHeld,
    SkippedBecauseVersionsAgree,
    StaleAnswer,
    Nack,
    NackInTheMiddle,
    LeaseRevoked,
    LeaseJoined,
    BehindHorizon,
    UpstreamKilled,
    UpstreamReset,
    LateMessage,
    StateMergedResponses,
    InitialSetInPieces,
    ResourceTimerFired,
    InterestExpired,
    Refetched,
    NodeChanged,
    NodeChangedInMidStream,
    ReconnectTrueVersions,
    ReconnectOldVersions,
    ReconnectForeignVersions,
    ReconnectWhileCold,
    StarAndNameDiffer,
    LeftStarKeepingNames,
    UnsubscribedUnderStar,
    AliasOrMetadataAlone,
    SameBytesNewVersion,
    SotwUpstream,
    DeltaUpstream,
    SecondUpstreamStream,
    Claimed,
    OpenedAgain,
    AskedTwice,
    RequestSplit,
    VersionsLeftOut,
}

impl Event {
    const LAST: Self = Self::VersionsLeftOut;
}

#[derive(Debug, Default)]
pub struct Coverage {
    counts: BTreeMap<Event, u64>,
    pub steps: u64,
    pub replies: u64,
}

impl Coverage {
    pub fn note(&mut self, event: Event) {
        *self.counts.entry(event).or_default() += 1;
    }

    pub fn note_if(&mut self, met: bool, event: Event) {
        if met {
            self.note(event);
        }
    }

    pub fn never_reached(&self) -> Vec<String> {
        let reached: Vec<_> = self.counts.keys().map(|event| format!("{event:?}")).collect();
        every_event().into_iter().filter(|event| !reached.contains(event)).collect()
    }
}

/// Returns the names of all events, read from the source of the enum so that none is forgotten here.
fn every_event() -> Vec<String> {
    let source = include_str!("coverage.rs");
    let body = source.split("pub enum Event {").nth(1).unwrap().split('}').next().unwrap();
    let names: Vec<String> =
        body.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    assert_eq!(names.last().unwrap(), &format!("{:?}", Event::LAST));
    names
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} operations, {} replies", self.steps, self.replies)?;
        self.counts.iter().try_for_each(|(event, count)| writeln!(f, "{count:>10} {event:?}"))
    }
}
