//! The top of the file.

use super::access::{AccessEntry, TypeEntry};
use super::brakes::Brakes;
use super::clients::{Clients, LoadReports, Rest, Views};
use super::limits::{Drain, Limits};
use super::listen::Listen;
use super::permissions::PermissionEntry;
use super::state::State;
use super::upstream::Upstream;
use crate::config::form::{AdminAddress, FilePath, HostName, Located, Needed, NonEmpty, section};

section! {
    /// Configuration of a Weir relay.
    Root {
        /// Where clients connect: gRPC and REST-JSON.
        listen: Needed<NonEmpty<Listen>>;
        /// Where operators and probes connect. Without it there is no admin API and there are no metrics.
        admin: Option<Located<Admin>>;
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
        /// Load reports (LRS) of clients.
        load_reports: Located<LoadReports>;
        /// Clients that poll in JSON over HTTP.
        rest: Located<Rest>;
        /// A file from which the relay serves after a restart. Without it nothing is kept.
        state: Option<Located<State>>;
    }
}

section! {
    /// The address and the socket for operators. At least one of them is needed.
    Admin {
        /// Reads: IP address and port; `:19000` is that port on 127.0.0.1.
        address: Option<Located<AdminAddress>>;
        /// Reads and changes: path of a Unix socket for the relay's own user and root.
        socket: Option<Located<FilePath>>;
        /// Names in the Host header under which address may be asked, besides IP addresses and localhost.
        hosts: Option<Located<NonEmpty<HostName>>>;
    }
}
