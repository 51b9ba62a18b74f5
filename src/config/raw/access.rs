//! Types, and who may have what.

use weir_core::xds::Network;

use crate::config::form::{FieldNumber, Located, Name, Needed, NonEmpty, section};

section! {
    /// A type that is not built in, or changes to one that is.
    TypeEntry {
        /// The message's full name, such as example.com.v1.Quota.
        name: Needed<Name>, written("example.com.v1.Quota");
        /// Number of the field with the resource's name; 0 if there is none. Types that are not built in: 1 by default.
        name_field: Option<Located<FieldNumber>>, absent("1"), example("1");
        /// If true, a SotW response lists everything, and what it lacks is deleted.
        full_state: Option<Located<bool>>, absent("false"), example("false");
        /// If true, a first request without names is a wildcard.
        legacy_wildcard: Option<Located<bool>>, absent("false"), example("false");
        /// A built-in type; both are sent at the same place of the order. Without it last.
        order_with: Option<Located<Name>>, absent("last"), example("envoy.config.route.v3.RouteConfiguration");
    }
}

section! {
    /// Resources that only clients of some networks get.
    AccessEntry {
        /// Types that the rule is about, built in or listed under types.
        ///
        /// At least one.
        types: Needed<NonEmpty<Name>>, written("[envoy.extensions.transport_sockets.tls.v3.Secret]");
        /// Names; a * at the end matches any rest. Without it all names.
        ///
        /// At least one, if given, such as `payments/*`; a `*` elsewhere is an error. `xdstp:` names are in their canonical form.
        names: Option<Located<NonEmpty<Name>>>, absent("all names"), example("[payments/*, root]");
        /// Networks and addresses of the clients that get them.
        ///
        /// At least one: `10.1.0.0/16`, `fd00::/8`, or a single address. Compared with the address of the client's connection.
        allow_from: Needed<NonEmpty<Network>>, written("[10.1.0.0/16, 10.2.0.7]");
    }
}
