//! Brakes: removals that are held.

use crate::config::form::{Located, Name, NonEmpty, Pause, Percent, Positive, Wait, section};

section! {
    /// Removals that would take much of a set at once are held for a while.
    Brakes {
        /// If false, every removal passes at once.
        enabled: Option<Located<bool>> = true;
        /// Full names of the types with brakes: full-state types alone. Without it Listener, Cluster and ScopedRouteConfiguration.
        types: Option<Located<NonEmpty<Name>>>;
        /// Percentage of a set that may leave it within the window; removals beyond it, and of at least count, are held.
        share: Option<Located<Percent>> = 30;
        /// Fewer removals than this within the window are never held, unless the set would be empty.
        count: Option<Located<Positive>> = 10;
        /// The time over which removals are counted, net of additions.
        window: Option<Located<Pause>> = "10m";
        /// How long a removal is held.
        grace: Option<Located<Pause>> = "5m";
        /// How long removals are held that would leave the set empty. At least grace.
        empty_grace: Option<Located<Pause>> = "15m";
        /// A later opening or poll of the same server ends the grace of what it has removed at least this long ago.
        agree_after: Option<Located<Wait>> = "1m";
    }
}
