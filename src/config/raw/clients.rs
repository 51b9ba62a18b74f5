//! Clients: how they share, what they are sent, what they report, how they poll.

use weir_core::protocol::session::{OnRefusedType, SessionOptions};

use super::key_entry::KeyEntry;
use crate::compression::Compression;
use crate::config::form::{
    Count, Interval, Located, NonEmpty, Positive, Setting, Size, Wait, mib, millis, minutes, seconds, section, words,
    words_for,
};

section! {
    /// Which clients share a view.
    Views {
        /// Node fields that must be equal for two clients to share a view. Without it all but id and listening_addresses.
        ///
        /// See [fields of the key](#fields-of-the-key).
        key: Option<Located<NonEmpty<KeyEntry>>>, absent("all of the node but id and listening_addresses"),
            written("[cluster, locality.region, metadata.tenant]");
        /// The key that fits a control plane, in place of key.
        ///
        /// `weir check` shows what it stands for. See [presets](upstream.md#presets).
        preset: Option<Located<PresetName>>, absent("none"), example("envoy-gateway");
        /// What the control plane is shown for a view: key (a node made of the key), or member (the node of one of its clients).
        ///
        /// `member` is for a control plane that looks the proxy up by its node, as Istiod does. See [one view, one client
        /// shown](upstream.md#showing-a-client).
        node: Setting<ViewNode> = ViewNode::Key;
        /// Views at one time.
        ///
        /// See [limits](limits.md#views).
        max: Setting<Positive> = 10_000;
        /// Views with series of their own in metrics; the others are summed as view="other".
        ///
        /// See [metrics](metrics.md).
        max_in_metrics: Setting<Count> = 100;
        /// A view without clients and interest is removed after this long.
        ///
        /// Its cache is empty and its upstream streams are closed before that, when `limits.linger` has passed.
        idle_timeout: Setting<Wait> = minutes(10);
        /// If true, a client that sends no node counts as one with an empty node.
        ///
        /// If false, its stream ends with `INVALID_ARGUMENT`.
        accept_missing_node: Setting<bool> = false;
        /// Checks of whether clients that share a view would be given the same by the control plane.
        ///
        /// See [audit](#audit).
        audit: Located<Audit>;
    }
}

section! {
    /// Checks of whether clients that share a view would be given the same by the control plane.
    Audit {
        /// Each view with several clients is checked once in this time, with one that the control plane is not shown; 0s: never.
        ///
        /// See [audits](upstream.md#audits).
        interval: Setting<Interval> = seconds(0);
    }
}

section! {
    /// How clients are answered.
    Clients {
        /// control_plane.identifier of the replies.
        control_plane_identifier: Setting<String> = "weir";
        /// If true, the v2 methods and types are served too.
        v2: Setting<bool> = false;
        /// What is compressed of replies to clients that accept gzip: off, auto (where enough of them are sent the same), or always.
        ///
        /// See [compressed replies](compatibility.md#compressed-replies).
        compression: Setting<Compression> = Compression::Off;
        /// What an empty first VHDS request means: the virtual hosts of the client's route configurations, or none.
        ///
        /// Only route configurations that the client subscribes to count. Envoy sends such a request.
        vhds_wildcard: Setting<VhdsWildcard> = VhdsWildcard::SubscribedRoutes;
        /// If true, new gRPC clients are ended with UNAVAILABLE when nothing they want is cached and no server is reachable.
        ///
        /// New are clients, and relays, that have had no reply. They then turn to the next server of their own list.
        grpc_fail_fast: Setting<bool> = SessionOptions::default().grpc_fail_fast;
        /// What becomes of an aggregated stream whose client requests a type that the control plane refuses: it goes on (ignore), or
        /// ends with the control plane's status (end).
        ///
        /// With `end` an Envoy loses all its types. Streams of relays never end so. See [types that a server
        /// refuses](upstream.md#types-that-a-server-refuses).
        on_refused_type: Setting<OnRefusedType> = SessionOptions::default().on_refused_type;
        /// New connections end after about this long, and their clients connect again: this is what spreads them over relays that were
        /// added behind a balancer. 0s: never.
        ///
        /// 10 % more or less: each stream ends after a reply, with `UNAVAILABLE`. See [scaling](deploy.md#scaling).
        max_connection_age: Setting<Interval> = seconds(0);
    }
}

section! {
    /// Load reports (LRS) of clients that report to `self`.
    LoadReports {
        /// pass_through: an upstream stream for each client; aggregate: one for each view, with the sums; off: no service.
        mode: Setting<LoadsMode> = LoadsMode::PassThrough;
        /// With pass_through: streams of all clients that are passed on.
        ///
        /// See [load reporting](load-reporting.md#limits).
        streams: Setting<Positive> = 10_000;
        /// With pass_through: the same of one connection. 0: no limit.
        streams_per_connection: Setting<Count> = 100;
        /// With aggregate: how long reports are summed while the control plane is away.
        max_outage: Setting<Wait> = minutes(5);
        /// With aggregate: approximate limit of the sums of one view; reports above it are dropped.
        bytes_per_view: Setting<Size> = mib(64);
        /// With aggregate: the same for all views together.
        bytes_total: Option<Located<Size>>, absent("6% of `limits.memory`"), example("256MiB");
    }
}

section! {
    /// Clients that poll in JSON over HTTP.
    Rest {
        /// If false, polls get 404.
        enabled: Setting<bool> = true;
        /// How long a poll waits for what is unknown, before it gets 503. Less than clients wait.
        ///
        /// An Envoy waits 1 s by default.
        // Shorter than Envoy's default timeout (REST-6). Longer than a set needs to settle after its first response, so that the first poll of a view
        // gets a response.
        timeout: Setting<Wait> = millis(800);
        /// How long a poll that finds nothing new waits for a change, before it gets 304. Less than clients wait.
        long_poll: Setting<Wait> = seconds(0);
        /// Responses that are cached for other clients that request the same.
        cache_bytes: Option<Located<Size>>, absent("64MiB, and at most 2% of `limits.memory`"), example("64MiB");
        /// All responses, cached or in flight; further polls get 503. At least twice cache_bytes; the default is four times.
        response_bytes: Option<Located<Size>>, absent("four times `cache_bytes`"), example("256MiB");
    }
}

words_for!(OnRefusedType { Ignore = "ignore", End = "end" });
words_for!(Compression { Off = "off", Auto = "auto", Always = "always" });

words! {
    /// The control planes and proxies that there is a key for.
    PresetName {
        IstioGateway = "istio-gateway",
        EnvoyGateway = "envoy-gateway",
        GoControlPlane = "go-control-plane",
        JavaControlPlane = "java-control-plane",
        IstioProxy = "istio-proxy",
        Consul = "consul",
    }
}

words! {
    /// What Envoy's empty first VHDS request subscribes to.
    VhdsWildcard { SubscribedRoutes = "subscribed_routes", None = "none" }
}

words! {
    /// Whose node the control plane is shown.
    ViewNode { Key = "key", Member = "member" }
}

words! {
    /// What becomes of load reports.
    LoadsMode { PassThrough = "pass_through", Aggregate = "aggregate", Off = "off" }
}
