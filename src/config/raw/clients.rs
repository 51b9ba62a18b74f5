//! Clients: how they share, what they are sent, what they report, how they poll.

use weir_core::xds::KeyField;

use crate::config::form::{Count, Interval, Located, NonEmpty, Positive, Size, Wait, section, words};

section! {
    /// Which clients share a view.
    Views {
        /// Node fields that must be equal for two clients to share a view. Without it all but id and listening_addresses.
        key: Option<Located<NonEmpty<KeyField>>>;
        /// Views at one time; a client that would need one more gets RESOURCE_EXHAUSTED.
        max: Option<Located<Positive>> = 10000;
        /// Views with series of their own in metrics; the others are summed as view="other".
        max_in_metrics: Option<Located<Count>> = 100;
        /// A view without clients and interest is removed after this long.
        idle_timeout: Option<Located<Wait>> = "10m";
        /// If true, a client that sends no node counts as one with an empty node.
        accept_missing_node: Located<bool> = false;
    }
}

section! {
    /// How clients are answered.
    Clients {
        /// control_plane.identifier of the replies.
        control_plane_identifier: Option<Located<String>> = "weir";
        /// If true, the v2 methods and types are served too.
        v2: Located<bool> = false;
        /// What an empty first VHDS request means: the virtual hosts of the client's route configurations, or none.
        vhds_wildcard: Located<VhdsWildcard> = "subscribed_routes";
        /// If true, new gRPC clients are ended with UNAVAILABLE when nothing they want is cached and no server is reachable.
        grpc_fail_fast: Option<Located<bool>> = true;
        /// New connections end after about this long, and their clients connect again: this is what spreads them over relays that were
        /// added behind a balancer. 0s: never.
        max_connection_age: Option<Located<Interval>> = "0s";
    }
}

section! {
    /// Load reports (LRS) of clients that report to `self`.
    LoadReports {
        /// pass_through: an upstream stream for each client; aggregate: one for each view, with the sums; off: no service.
        mode: Located<LoadsMode> = "pass_through";
        /// With aggregate: how long reports are summed while the control plane is away.
        max_outage: Option<Located<Wait>> = "5m";
        /// With aggregate: approximate limit of the sums of one view; reports above it are dropped.
        bytes_per_view: Option<Located<Size>> = "64MiB";
        /// With aggregate: the same for all views together.
        bytes_total: Option<Located<Size>> = "256MiB";
    }
}

section! {
    /// Clients that poll in JSON over HTTP.
    Rest {
        /// If false, polls get 404.
        enabled: Option<Located<bool>> = true;
        /// How long a poll waits for what is unknown, before it gets 503. Less than clients wait.
        timeout: Option<Located<Wait>> = "800ms";
        /// How long a poll that finds nothing new waits for a change, before it gets 304. Less than clients wait.
        long_poll: Option<Located<Wait>> = "0s";
        /// Responses that are cached for other clients that request the same.
        cache_bytes: Option<Located<Size>> = "64MiB";
        /// All responses, cached or in flight; further polls get 503. At least twice cache_bytes; the default is four times.
        response_bytes: Option<Located<Size>> = "256MiB";
    }
}

words! {
    /// What Envoy's empty first VHDS request subscribes to.
    VhdsWildcard { SubscribedRoutes = "subscribed_routes", None = "none" }
}

words! {
    /// What becomes of load reports.
    LoadsMode { PassThrough = "pass_through", Aggregate = "aggregate", Off = "off" }
}
