//! Who may be which client, and what they may have.

use weir_core::xds::{KeyField, Network};

use crate::config::form::{Located, Name, Names, Needed, NonEmpty, OneOrMore, UserNumber, section};

section! {
    /// What clients of some identities may be, and what they may have. The first rule for a client counts; one for whom there is none is refused.
    PermissionEntry {
        /// The name in messages and logs.
        name: Needed<Name>;
        /// For whom the rule is: any of these.
        identities: Needed<NonEmpty<IdentityEntry>>;
        /// What their nodes may be: permitted values by node field. {name} is what the identity has there, {tenant} whose they are; a * at the end matches any rest.
        node: Located<Names<OneOrMore<Name>>>;
        /// Fields of views.key that may have any value.
        free: Located<Vec<Located<KeyField>>>;
        /// Types that they may request. Without it all.
        types: Option<Located<NonEmpty<Name>>>;
        /// Names that they may have, of all types but secrets. Without it all.
        names: Option<Located<NonEmpty<Name>>>;
        /// Names of secrets that they may have. Without it none.
        secrets: Option<Located<NonEmpty<Name>>>;
        /// Whose they are, for views.key with tenant. Without it the segment {tenant} of the identity says it, or each identity is a tenant of its own.
        tenant: Option<Located<Name>>;
        /// If they are relays: tenants that they may state for their clients; a * at the end matches any rest.
        relays_for: Option<Located<NonEmpty<Name>>>;
        /// Whether they may ask on these addresses for the status of all clients (CSDS).
        client_status: Option<Located<bool>> = false;
    }
}

section! {
    /// One kind of identity; exactly one key.
    IdentityEntry {
        /// SPIFFE ids; {name} matches one segment, a * at the end any rest.
        spiffe: Option<Located<Name>>;
        /// URIs in a client certificate, by the same patterns.
        uri: Option<Located<Name>>;
        /// DNS names in a client certificate; {name} matches one label.
        dns: Option<Located<Name>>;
        /// Processes of this user on a Unix socket.
        uid: Option<Located<UserNumber>>;
        /// Processes of this group on a Unix socket.
        gid: Option<Located<UserNumber>>;
        /// All clients that connect from this network. It proves nothing, so that such a rule gives no secrets.
        network: Option<Located<Network>>;
    }
}
