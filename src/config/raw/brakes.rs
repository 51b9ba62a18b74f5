//! Brakes: removals that are held.

use crate::config::form::{
    Located, Name, NonEmpty, Pause, Percent, Positive, Setting, Wait, minutes, seconds, section,
};

section! {
    /// Removals that would take much of a set at once are held for a while.
    Brakes {
        /// If false, every removal passes at once.
        enabled: Setting<bool> = true;
        /// Full names of the types with brakes: full-state types alone. Without it Listener, Cluster and ScopedRouteConfiguration.
        ///
        /// v2 types follow their successors.
        types: Option<Located<NonEmpty<Name>>>, absent("Listener, Cluster, ScopedRouteConfiguration"),
            example("[envoy.config.cluster.v3.Cluster]");
        /// Percentage of a set that may leave it within the window; removals beyond it, and of at least count, are held.
        // A tenth or a fifth of a fleet's clusters may be removed in one change, for example with a namespace or a zone. If half or a third of them
        // is removed, a control plane has lost a part of its sources.
        share: Setting<Percent> = 30;
        /// Fewer removals than this within the window are never held, unless the set would be empty.
        // Small fleets change by large shares. Up to nine removals look like a change that a person makes.
        count: Setting<Positive> = 10;
        /// The time over which removals are counted, net of additions.
        ///
        /// They are counted against the size of the set at its start.
        // Longer than a rollout takes from its first step to its last.
        window: Setting<Pause> = minutes(10);
        /// How long a removal is held.
        ///
        /// Time in which the server is away does not count.
        // Long enough for an alert to reach an operator, and short enough that intended changes are not delayed by much.
        grace: Setting<Pause> = minutes(5);
        /// How long removals are held that would leave the set empty. At least grace.
        empty_grace: Setting<Pause> = minutes(15);
        /// A later opening or poll of the same server ends the grace of what it has removed at least this long ago.
        ///
        /// Not if the set would be empty.
        // A server that restarts again and again, or that fills its set from its own sources, sends the rest earlier than this.
        agree_after: Setting<Wait> = minutes(1);
        /// How long removals in the first 15 s after an outage of their server are held, however few they are. 0s: not at all.
        ///
        /// The same counts for what a server takes away from a shown client that has left (`views.node`). Held are removals of listeners, clusters and
        /// scoped routes, and of the last usable host of a cluster. The next statement about the name ends the hold.
        // After a restart Consul sends half a configuration, and the rest four seconds later.
        after_outage: Setting<Wait> = seconds(10);
    }
}
