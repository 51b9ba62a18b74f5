//! Rules that can be broken on purpose, so that the tests can show that they would notice.
//!
//! Compiled in only with the feature `faults`, which the tests turn on and no build of the program does.

/// One broken rule each, named by what goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// I1: every session pins the state it works on, however many there are.
    LeaseEveryState,
    /// I1, horizon: a delta client that missed removals goes on as if it had not.
    IgnoreHorizon,
    /// What a session keeps is bounded: every nonce that was never answered is remembered.
    KeepEveryNonce,
    /// I2: each response's bodies are kept as copies of their own.
    KeepCopies,
    /// I3: a name nothing is known of is told as absent.
    UnknownIsAbsent,
    /// I3: the first piece of a `*` set is taken for all of it.
    TakePartForWhole,
    /// I3: a full-state answer leaves out what is not known yet, although the client holds it.
    ShrinkByIgnorance,
    /// I3: what a client says it holds is judged against a cold set.
    JudgeStatedWhileCold,
    /// I3: a server's silence takes away what a client holds.
    SilenceIsAbsence,
    /// I3, UP-36: a silence counts by the clock alone, whether or not anybody was there who could have spoken.
    ClockIsLife,
    /// I3: what the server that serves from now on has not said is dropped at once.
    SwitchDeletes,
    /// I3, XLAT-12: a set that has gone quiet for the first time is taken for whole.
    FirstQuietIsTheEnd,
    /// UP-25: what comes and cannot be read is taken for gone.
    BadEntryIsAbsent,
    /// Clients without state wait for more than the first response.
    HeldIsKeptBack,
    /// I3, XLAT-19: a name that was dropped upstream is still served from memory.
    ServeForgottenNames,
    /// I3, UP-24: a name that was only just requested is deleted by its absence from an older answer.
    AbsenceDeletesTheUnanswered,
    /// I4: what is held is dropped when upstream goes away.
    DropOnDisconnect,
    /// I5: an upstream version bump counts as a change.
    VersionsFromUpstream,
    /// I6, never older after newer: messages of a stream that was given up are still taken.
    TakeLateMessages,
    /// I7: removals go before additions.
    RemoveBeforeAdding,
    /// I7: removals are told while the view has not counted what the client requested.
    RemoveBeforeCounted,
    /// I7, ORD-7: merged updates send the latest set at once.
    NoUnion,
    /// I7: of several changes of a name only the last counts, and a state before it seems to have none.
    LastChangeOnly,
    /// A session reads which names changed before it reads the snapshot: one that is published in between has changes that it misses.
    MarksBeforeSnapshot,
    /// I7: clients that warm clusters are not sent endpoints again.
    NoForcedEndpoints,
    /// A route goes out while its cluster still waits for endpoints.
    NoRoutingHold,
    /// The ACK of a new cluster ends the wait for its endpoints, though they are on their way.
    HoldEndsWithAck,
    /// A cluster goes though something leads to it.
    RemoveUnderReference,
    /// A change of routing does not wait for clusters that are on their way.
    RoutingGoesAhead,
    /// I8: the first of several clients to leave a name ends it for the others.
    LeavingEndsItForAll,
    /// I9: the sharing key leaves out what upstream goes by.
    KeyWithoutMetadata,
    /// I9, XLAT-13: what the server sent for `*` is taken as its answer to a name.
    StarAnswersNames,
    /// I9, XLAT-13: `*` and names of one type go over one stream.
    OneStreamForAll,
    /// It goes quiet: an ACK is answered like a question.
    AnswerEveryAck,
    /// SOTW-45: the names of a stale request are dropped.
    DropStaleNames,
    /// UP-14: a new stream does not ask again for what was wanted on the last.
    ForgetNamesOnReconnect,
    /// A rejection makes the relay forget what the client requested.
    NackForgets,
    /// I6: what a server says counts, whether or not it is the active one.
    TakeWordsOfAll,
    /// FB-9: a fallback server is kept, though one above it answers again.
    NeverReturn,
    /// FB-28: an unanswered name is told absent while no server is reachable.
    AbsentWhileDown,
    /// A view task panics when a client requests the name `panic`.
    OwnerPanics,
}

impl Fault {
    /// Those of a single server; [`Self::TakeWordsOfAll`] and what follows it need several.
    pub const ALL: [Self; 28] = [
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
        Self::LeavingEndsItForAll,
        Self::KeyWithoutMetadata,
        Self::StarAnswersNames,
        Self::OneStreamForAll,
        Self::AnswerEveryAck,
        Self::DropStaleNames,
        Self::ForgetNamesOnReconnect,
        Self::NackForgets,
    ];
}

/// The rule that is broken in this instance, normally none.
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
