//! Who may be which client, and what they may have.

use weir_core::xds::{KeyField, Network};

use crate::config::form::{Located, Name, Names, Needed, NonEmpty, OneOrMore, Positive, Setting, UserNumber, section};

section! {
    /// What clients of some identities may be, and what they may have. The first rule for a client counts; a client without a rule is
    /// refused.
    PermissionEntry {
        /// The name in messages and logs.
        name: Needed<Name>, written("workloads");
        /// For whom the rule is: any of these.
        identities: Needed<NonEmpty<IdentityEntry>>, written("");
        /// What their nodes may be: permitted values by node field. {name} is what the identity has there, {tenant} whose they are; a * at
        /// the end matches any rest.
        ///
        /// The fields are `id`, `cluster`, `locality.region`, `locality.zone`, `locality.sub_zone` and `metadata.<path>`, each with one
        /// value or a list. What the identity has counts literally. A field that is missing in the node is permitted only as empty text,
        /// metadata not at all.
        node: Located<Names<OneOrMore<Name>>>, written("{cluster: \"{namespace}-*\"}");
        /// Fields of views.key that may have any value.
        ///
        /// Each field of the key must be in `node` or here.
        free: Located<Vec<Located<KeyField>>>, written("[locality.region, metadata.tenant]");
        /// Types that they may request. Without it all.
        ///
        /// A request for another one ends the stream with `PERMISSION_DENIED`, rather than emptying the client.
        types: Option<Located<NonEmpty<Name>>>, absent("all"), example("[envoy.config.cluster.v3.Cluster]");
        /// Names that they may have, of all types but secrets. Without it all.
        ///
        /// Others do not exist for the client. A text that refers to what it has not proved, such as `{tenant}` for a client without one,
        /// names nothing.
        names: Option<Located<NonEmpty<Name>>>, absent("all"), example("[\"{namespace}/*\"]");
        /// Names of secrets that they may have. Without it none.
        ///
        /// No other list gives any.
        secrets: Option<Located<NonEmpty<Name>>>, example("[\"{namespace}/*\"]");
        /// Whose they are, for views.key with tenant. Without it the segment {tenant} of the identity says it, or each identity is a tenant
        /// of its own.
        ///
        /// Of several names in a certificate the one that `identities` matches is the identity. Other texts of the rule refer to the tenant as
        /// `{tenant}`; in a rule for a network only if it is given here, or if the clients are relays.
        tenant: Option<Located<Name>>, absent("the segment {tenant}, or else the identity"), example("\"{namespace}\"");
        /// If they are relays: tenants that they may state for their clients; a * at the end matches any rest.
        ///
        /// Other clients may state none. Needs `tenant` in `views.key`.
        relays_for: Option<Located<NonEmpty<Name>>>, example("[payments, team-*]");
        /// Whether they may ask on these addresses for the status of all clients (CSDS).
        ///
        /// The addresses are those of `listen`; the [client status](admin-api.md#client-status) is that of all views, clients and tenants,
        /// without secrets. The rule must have no `network`.
        client_status: Setting<bool> = false;
        /// How many equal parts they have of what clients share when it becomes scarce.
        ///
        /// Of a tenant with several rules, the first one of a connected client counts. See [shares](limits.md#memory).
        share: Setting<Positive> = 1;
    }
}

section! {
    /// One kind of identity; exactly one key.
    IdentityEntry {
        /// SPIFFE ids; {name} matches one segment, a * at the end any rest.
        ///
        /// For example `spiffe://prod.example/ns/{namespace}/*`. The bundle of their own trust domain has to have verified them.
        spiffe: Option<Located<Name>>, written("\"spiffe://prod.example/ns/{namespace}/*\"");
        /// URIs in a client certificate, by the same patterns.
        ///
        /// The client CA has to have verified the certificate.
        uri: Option<Located<Name>>, example("\"https://id.example/{namespace}/agent\"");
        /// DNS names in a client certificate; {name} matches one label.
        ///
        /// The client CA has to have verified the certificate. There is no `*`.
        dns: Option<Located<Name>>, example("\"{namespace}.agents.example\"");
        /// Processes of this user on a Unix socket.
        uid: Option<Located<UserNumber>>, example("1000");
        /// Processes of this group on a Unix socket.
        gid: Option<Located<UserNumber>>, example("1000");
        /// All clients that connect from this network. It proves nothing, so that such a rule gives no secrets.
        ///
        /// The rule must have no `secrets`.
        network: Option<Located<Network>>, example("10.1.0.0/16");
    }
}
