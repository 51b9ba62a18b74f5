//! The kinds of waits. docs/operations.md has the same table.

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKind {
    /// A server's answer for a requested name.
    Name,
    /// The end of the first silence about a type. After it, all that the server has of the type was sent, or is not to be expected.
    Set,
    /// Quiet, so that a set which comes in pieces is served.
    Quiet,
    /// The answer to the question where a set ends.
    End,
    /// A new opening of a stream, to request again what clients hold.
    Reopening,
    /// The answer for what was requested a second time.
    SecondSilence,
    /// That nothing refers to a removed cluster.
    Removal,
    /// Clusters to which a change of routing refers.
    Change,
    /// That a later statement agrees with a removal that a brake holds.
    Brake,
    /// That a server which was away says more of what it has just taken away.
    AfterOutage,
    /// A server that may be active.
    Ladder,
    /// A client's answer to the last reply of a type.
    Ack,
    /// The endpoints of clusters that a client was sent.
    RoutingHold,
    /// A set of clusters that is complete enough for a client.
    Clusters,
    /// Routing that a client holds and of which too little is known, before anything is removed.
    Routing,
    /// A client that has NACKed its routing, before clusters are removed.
    NackedRouting,
}

/// The documented facts of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitRow {
    /// Its name in reports and metrics.
    pub name: &'static str,
    /// What waits, and for what.
    pub what: &'static str,
    /// How long at most.
    pub bound: &'static str,
    /// The option that sets the bound; empty if it is fixed.
    pub key: &'static str,
}

impl WaitKind {
    /// All kinds, in the order of their rows.
    pub const ALL: [Self; 16] = [
        Self::Name,
        Self::Set,
        Self::Quiet,
        Self::End,
        Self::Reopening,
        Self::SecondSilence,
        Self::Removal,
        Self::Change,
        Self::Brake,
        Self::AfterOutage,
        Self::Ladder,
        Self::Ack,
        Self::RoutingHold,
        Self::Clusters,
        Self::Routing,
        Self::NackedRouting,
    ];

    /// Returns its name in reports and metrics.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns what is documented of it.
    pub fn row(self) -> WaitRow {
        let (name, what, bound, key) = match self {
            Self::Name => (
                "name",
                "A requested name, for the server's answer",
                "the resource timer; twice that with `resource_timer_is_transient_error`",
                "limits.resource_timer",
            ),
            Self::Set => (
                "set",
                "What is requested of a type, for the end of the server's first silence",
                "the resource timer from the request; 35 s from the first response, if that is longer",
                "limits.resource_timer",
            ),
            Self::Quiet => (
                "quiet",
                "A set that comes in pieces, for quiet before clients are served from it",
                "500 ms after the last new content",
                "",
            ),
            Self::End => (
                "end",
                "A set, for the answer to the question where it ends",
                "the resource timer; then `set`, `reopening` and `second_silence` as without the question",
                "limits.resource_timer",
            ),
            Self::Reopening => (
                "reopening",
                "A second request, for the next opening of the stream",
                "16 resource timers after the last opening for such a request",
                "limits.resource_timer",
            ),
            Self::SecondSilence => (
                "second_silence",
                "What was requested a second time, for the server's answer",
                "the second silence; up to 11 times that while the server sends new content",
                "limits.second_silence",
            ),
            Self::Removal => (
                "removal",
                "A removed cluster or its endpoints, until nothing refers to it",
                "the reference hold and 1 s; twice the hold if a change of routing has waited meanwhile, or longer if for room",
                "limits.reference_hold",
            ),
            Self::Change => (
                "change",
                "A change of routing, for clusters that do not exist yet, or for which there is no room",
                "1 s; the timeout for clusters if one has no room",
                "limits.clusters_timeout",
            ),
            Self::Brake => (
                "brake",
                "A removal or change that a brake holds, for a later statement that agrees",
                "the grace; `brakes.empty_grace` if the set would be empty",
                "brakes.grace",
            ),
            Self::AfterOutage => (
                "after_outage",
                "What a server takes away in its first 15 s after an outage, for its next word on the name",
                "the time for that",
                "brakes.after_outage",
            ),
            Self::Ladder => (
                "ladder",
                "A ladder, for a timer before it moves; or for a server that is reachable, without a bound",
                "the delay, and the hold-down after a return if that is longer",
                "upstream.fallback.delay",
            ),
            Self::Ack => ("ack", "A change for one client, for its answer to the last reply of the type", "500 ms", ""),
            Self::RoutingHold => (
                "routing_hold",
                "A change of routing for one client, until it was sent the endpoints of new clusters",
                "2 s",
                "",
            ),
            Self::Clusters => (
                "clusters",
                "Routing for one client, for a set of clusters that is complete enough for it",
                "the timeout for clusters",
                "limits.clusters_timeout",
            ),
            Self::Routing => (
                "routing",
                "Removals for one client, for routing that it holds something of and of which too little is known",
                "the timeout for clusters",
                "limits.clusters_timeout",
            ),
            Self::NackedRouting => (
                "nacked_routing",
                "Removals of clusters for one client, which has NACKed its routing",
                "the reference hold; 60 s, if that is shorter",
                "limits.reference_hold",
            ),
        };
        WaitRow { name, what, bound, key }
    }
}
