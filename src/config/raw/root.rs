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
use crate::config::form::{Located, Needed, NonEmpty, section};

section! {
    /// Configuration of a Weir relay.
    Root {
        /// Where clients connect: gRPC and REST-JSON.
        listen: Needed<NonEmpty<Listen>>;
        /// Where operators connect. Without it there is no admin API.
        admin: Option<Located<Admin>>;
        /// Where probes and scrapers of metrics connect.
        probes: Option<Located<Probes>>;
        /// Control planes, or files in their place.
        upstream: Needed<Upstream>;
        /// Which clients share a view: one cache, and one subscription upstream.
        views: Located<Views>;
        /// How clients are answered.
        clients: Located<Clients>;
        /// Types that are not built in, and changes to built-in ones.
        types: Located<Vec<Located<TypeEntry>>>;
        /// Resources for some networks only. A resource that no rule names is for all.
        access: Located<Vec<Located<AccessEntry>>>;
        /// Who may be which client, and what they may have. Without rules, everybody may be anyone.
        permissions: Located<Vec<Located<PermissionEntry>>>;
        /// Bounds on messages, names and waits.
        limits: Located<Limits>;
        /// Removals that would take much of a set at once are held for a while.
        brakes: Located<Brakes>;
        /// What happens on SIGTERM.
        drain: Located<Drain>;
        /// What happens when this file changes.
        reload: Located<Reload>;
        /// Load reports (LRS) of clients.
        load_reports: Located<LoadReports>;
        /// Clients that poll in JSON over HTTP.
        rest: Located<Rest>;
        /// A file from which the relay serves after a restart. Without it nothing is kept.
        state: Option<Located<State>>;
    }
}
