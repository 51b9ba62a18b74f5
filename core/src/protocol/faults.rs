//! Rules that tests break on purpose, to show that they notice.
//!
//! Compiled in only with the feature `faults`, which tests enable and the program does not.

/// Each value breaks one rule, and is named after what goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// I1: every session pins the state that it works on, without a limit.
    LeaseEveryState,
    /// I1, horizon: a delta client that missed removals goes on as if it had not missed any.
    IgnoreHorizon,
    /// Session state is bounded: every nonce without an ACK or NACK is remembered.
    KeepEveryNonce,
    /// I2: each response keeps copies of its bodies.
    KeepCopies,
    /// I3: an unknown name is reported as absent.
    UnknownIsAbsent,
    /// I3: the first response of a `*` set counts as the complete set.
    TakePartForWhole,
    /// I3: a full-state reply leaves out names that are unknown although the client holds them.
    ShrinkByIgnorance,
    /// I3: the versions that a client states are compared with a cold set.
    JudgeStatedWhileCold,
    /// I3: a server's silence removes what a client holds.
    SilenceIsAbsence,
    /// I3, UP-36: a silence counts by the clock alone, whether or not the server was alive.
    ClockIsLife,
    /// I3: resources that the new active server has not sent yet are dropped at once.
    SwitchDeletes,
    /// I3, XLAT-12: a set that is quiet for the first time counts as complete.
    FirstQuietIsTheEnd,
    /// UP-25: an entry that cannot be read counts as absent.
    BadEntryIsAbsent,
    /// Clients without state wait for more than the first response of a set.
    CachedIsKeptBack,
    /// I3, XLAT-19: a name that was dropped upstream is still served from the cache.
    ServeForgottenNames,
    /// I3, UP-24: a name that was only just requested is deleted because a response to an older request lacks it.
    AbsenceDeletesTheUnanswered,
    /// I4: the cache is dropped when the upstream stream ends.
    DropOnDisconnect,
    /// I5: an upstream version bump counts as a change.
    VersionsFromUpstream,
    /// I6, never older after newer: messages of an abandoned stream are still accepted.
    TakeLateMessages,
    /// I7: removals go before additions.
    RemoveBeforeAdding,
    /// I7: removals are sent before the view has counted what the client requested.
    RemoveBeforeCounted,
    /// I7, ORD-7: merged updates send the latest set at once.
    NoUnion,
    /// I7: only the last of several changes of a name is remembered, so an earlier state seems unchanged.
    LastChangeOnly,
    /// A session reads which names changed before it reads the snapshot. It misses the changes of a snapshot that is published in between.
    MarksBeforeSnapshot,
    /// I7: clients that warm clusters are not sent endpoints again.
    NoForcedEndpoints,
    /// A route goes out while its cluster still waits for endpoints.
    NoRoutingHold,
    /// The total time of a routing hold goes on for later holds, so that in the end nothing is held any more.
    HoldTimeGoesOn,
    /// The ACK of a new cluster ends the wait for its endpoints, although they are on their way.
    HoldEndsWithAck,
    /// A cluster is removed although a route refers to it.
    RemoveUnderReference,
    /// A change of routing does not wait for clusters that are on their way.
    RoutingGoesAhead,
    /// I8: when the first of several clients unsubscribes from a name, the name is dropped for all of them.
    LeavingEndsItForAll,
    /// I9: the sharing key leaves out node fields that the server uses.
    KeyWithoutMetadata,
    /// I9: the sharing key leaves out a header that the server uses.
    KeyWithoutHeaders,
    /// I9, XLAT-13: what the server sent for `*` counts as its reply to a name.
    StarAnswersNames,
    /// I9, XLAT-13: `*` and names of one type go over one stream.
    OneStreamForAll,
    /// Streams become quiet: an ACK is answered like a new request.
    AnswerEveryAck,
    /// KEY-11: a type of the table under another prefix is another type, so that a spelling evades what is decided by type.
    SpellingIsAnotherType,
    /// A client is sent the table's URL of a type, and not its own spelling.
    TableUrlForClients,
    /// DELTA-2: an ACK carries a change of subscription.
    AckCarriesChange,
    /// An unknown type is requested on the stream of other types before it was tried.
    TypesJoinUntried,
    /// SOTW-45: the names of a stale request are dropped.
    DropStaleNames,
    /// UP-14: a new stream does not request again what was wanted on the last.
    ForgetNamesOnReconnect,
    /// A rejection makes the relay forget what the client requested.
    NackForgets,
    /// I6: updates of every server count, active or not.
    AcceptEvidenceOfAll,
    /// FB-9: a fallback server stays active although one above it responds again.
    NeverReturn,
    /// FB-28: an unanswered name is reported as absent while no server is reachable.
    AbsentWhileDown,
    /// I3: what was loaded from disk is sent to clients that may hold something newer.
    DiskOverridesClients,
    /// What was loaded from disk counts as complete.
    DiskIsComplete,
    /// A listener is added while the client still has the one whose address it takes.
    AddBesideRemoved,
    /// Each response that removes resources is judged by itself, so that many small removals can empty a set.
    BrakeForgetsDrip,
    /// A server agrees with a removal by stating it again on the same opening.
    BrakeAgreesWithItself,
    /// Each further removal makes everything that is held wait from the beginning.
    BrakeStartsOver,
    /// What a server takes away in its first words after an outage counts at once.
    AfterOutageBelievesAll,
    /// What a server says again after an outage is held from the beginning.
    AfterOutageStartsOver,
    /// When a stream ends, what is held of it waits on as if the server were there.
    AfterOutageOutlivesStream,
    /// A view task panics when a client requests the name `panic`.
    OwnerPanics,
    /// XLAT-12: no server is asked for the end of a set, so that only silence shows it.
    EndIsNotAsked,
    /// XLAT-12: a relay does not count as a client that needs the end of a set.
    RelayNeedsNoEnd,
    /// ORD-5: removals wait for all routing that a client subscribes to, whether or not it holds any, and without end.
    RemovalsWaitForAllRouting,
    /// DELTA-21: the first reply to an empty set is sent after all removals.
    EmptySetWaits,
    /// I4: a set that the end of a stream has cut short waits for its quiet during the whole outage.
    CutSetWaits,
    /// ORD-1: routing and removals wait for an answer to each name, whenever it was requested.
    LateNamesHoldUpOrder,
    /// XLAT-20: an ignored deletion does not count as an answer, so silence removes what should be kept.
    IgnoredDeletionIsNoAnswer,
    /// A claim for which there is no room is forgotten.
    DropClaimsWithoutRoom,
    /// I3: a stream that fails makes unconfirmed what another stream has stated to the server.
    FailureDoubtsOtherStreams,
    /// UP-15: a server ignores stated versions, and what it does not send again counts as confirmed.
    RepeatingConfirmsAll,
    /// I3: a silent relay counts as a silent control plane.
    SilentRelayIsSilentServer,
    /// XLAT-12: any response after the first one marks the server as one that sends its sets in pieces.
    ChangeIsPiece,
    /// The client that has come last is shown next, of the clients of a view.
    YoungestMemberIsNext,
    /// What a server takes away from a client that has left counts at once for all other clients.
    DepartedMemberRemoves,
}

impl Fault {
    /// Faults of waits and of evidence, which the random histories of `core/tests/whole` find.
    pub const OF_THE_WHOLE: [Self; 12] = [
        Self::EndIsNotAsked,
        Self::RelayNeedsNoEnd,
        Self::RemovalsWaitForAllRouting,
        Self::EmptySetWaits,
        Self::CutSetWaits,
        Self::LateNamesHoldUpOrder,
        Self::IgnoredDeletionIsNoAnswer,
        Self::DropClaimsWithoutRoom,
        Self::FailureDoubtsOtherStreams,
        Self::RepeatingConfirmsAll,
        Self::SilentRelayIsSilentServer,
        Self::ChangeIsPiece,
    ];
    /// Faults that the random histories of `core/tests/model` find, with a single server. Other tests plant the others.
    pub const ALL: [Self; 30] = [
        Self::LeaseEveryState,
        Self::IgnoreHorizon,
        Self::KeepEveryNonce,
        Self::KeepCopies,
        Self::UnknownIsAbsent,
        Self::TakePartForWhole,
        Self::ShrinkByIgnorance,
        Self::JudgeStatedWhileCold,
        Self::ServeForgottenNames,
        Self::AbsenceDeletesTheUnanswered,
        Self::DropOnDisconnect,
        Self::VersionsFromUpstream,
        Self::TakeLateMessages,
        Self::RemoveBeforeAdding,
        Self::RemoveBeforeCounted,
        Self::NoUnion,
        Self::LastChangeOnly,
        Self::MarksBeforeSnapshot,
        Self::NoForcedEndpoints,
        Self::NoRoutingHold,
        Self::HoldTimeGoesOn,
        Self::LeavingEndsItForAll,
        Self::KeyWithoutMetadata,
        Self::KeyWithoutHeaders,
        Self::StarAnswersNames,
        Self::OneStreamForAll,
        Self::AnswerEveryAck,
        Self::DropStaleNames,
        Self::ForgetNamesOnReconnect,
        Self::NackForgets,
    ];
}

/// The rule that is broken in this instance. The program breaks none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    #[cfg(feature = "faults")]
    planted: Option<Fault>,
}

impl Faults {
    /// No rule is broken.
    #[cfg(feature = "faults")]
    pub const NONE: Self = Self { planted: None };

    /// No rule is broken.
    #[cfg(not(feature = "faults"))]
    pub const NONE: Self = Self {};

    /// Breaks one rule.
    #[cfg(feature = "faults")]
    pub fn planted(fault: Fault) -> Self {
        Self { planted: Some(fault) }
    }

    /// Whether this rule is broken.
    #[cfg(feature = "faults")]
    pub fn has(self, fault: Fault) -> bool {
        self.planted == Some(fault)
    }

    /// Whether this rule is broken.
    #[cfg(not(feature = "faults"))]
    pub const fn has(self, _: Fault) -> bool {
        false
    }
}
