//! The top of the file.

use super::access::{AccessEntry, TypeEntry};
use super::admin::{Admin, Probes};
use super::brakes::Brakes;
use super::clients::{Clients, LoadReports, Rest, Views};
use super::limits::{Drain, Limits, Reload};
use super::listen::Listen;
use super::permissions::PermissionEntry;
use super::state::State;
use super::upstream::Upstream;
use crate::config::form::Applies::{AtOnce, NewStreams, Restart};
use crate::config::form::{Count, Interval, Located, Needed, NonEmpty, Setting, Wait, seconds, section};

section! {
    /// Configuration of a Weir relay.
    Root {
        /// Where clients connect: gRPC and REST-JSON.
        ///
        /// At least one entry. Each address serves gRPC over HTTP/2, and REST-JSON over HTTP/1.1 and HTTP/2.
        listen: Needed<NonEmpty<Listen>>, applies(Restart), written("");
        /// Where operators connect. Without it there is no admin API.
        ///
        /// `address`, `socket` or both. See [admin API](admin-api.md).
        admin: Option<Located<Admin>>, applies(Restart), written("");
        /// Where probes and scrapers of metrics connect.
        probes: Option<Located<Probes>>, applies(Restart);
        /// Control planes, or files in their place.
        upstream: Needed<Upstream>, applies(NewStreams);
        /// Which clients share a view: one cache, and one subscription upstream.
        views: Located<Views>, applies(NewStreams);
        /// How clients are answered.
        clients: Located<Clients>, applies(NewStreams);
        /// Types that are not built in, and changes to built-in ones.
        types: Located<Vec<Located<TypeEntry>>>, applies(Restart), example("");
        /// Resources for some networks only. A resource that no rule names is for all.
        access: Located<Vec<Located<AccessEntry>>>, applies(NewStreams), example("");
        /// Who may be which client, and what they may have. Without rules, everybody may be anyone.
        permissions: Located<Vec<Located<PermissionEntry>>>, applies(AtOnce), example("");
        /// Bounds on messages, names and waits.
        limits: Located<Limits>;
        /// Removals that would take much of a set at once are held for a while.
        brakes: Located<Brakes>, applies(NewStreams);
        /// What happens on SIGTERM.
        drain: Located<Drain>, applies(AtOnce);
        /// What happens when this file changes.
        reload: Located<Reload>, applies(AtOnce);
        /// Threads on which connections of clients live. Without it, one for each processor. 0: connections share the worker threads with all else.
        ///
        /// Each has a runtime of its own. A new connection goes to the thread with the fewest connections and streams, after its TLS handshake if
        /// it has one, and stays there. At most 256. See [shards](#shards).
        shards: Option<Located<Count>>, applies(Restart), absent("one for each processor, at most 256"), example("4");
        /// If no worker thread gets on for this long, or one of `shards` does not, /healthz fails, and systemd gets no more `WATCHDOG=1`. 0s: never.
        ///
        /// For one of `shards` it is at least 1 s. The thread of load reports counts as one of them. See [watchdog](operations.md#watchdog).
        watchdog: Setting<Interval> = seconds(30), applies(Restart);
        /// The relay is ready this long after its start, even if it could not serve a new client. Without it, the relay waits for as long as it takes.
        ///
        /// See [ready](operations.md#when-a-relay-is-ready).
        ready_after: Option<Located<Wait>>, applies(AtOnce), absent("never"), example("5m");
        /// Load reports (LRS) of clients.
        load_reports: Located<LoadReports>, applies(NewStreams);
        /// Clients that poll in JSON over HTTP.
        rest: Located<Rest>, applies(NewStreams);
        /// A file from which the relay serves after a restart. Without it nothing is kept.
        state: Option<Located<State>>, applies(Restart);
    }
}
