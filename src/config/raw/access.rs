//! Types, and who may have what.

use weir_core::xds::Network;

use crate::config::form::{FieldNumber, Located, Name, Needed, NonEmpty, section};

section! {
    /// A type that is not built in, or changes to one that is.
    TypeEntry {
        /// The message's full name, such as example.com.v1.Quota.
        name: Needed<Name>;
        /// Number of the field with the resource's name; 0 if there is none. Types that are not built in: 1 by default.
        name_field: Option<Located<FieldNumber>>;
        /// If true, a SotW response lists everything, and what it lacks is deleted.
        full_state: Option<Located<bool>>;
        /// If true, a first request without names is a wildcard.
        legacy_wildcard: Option<Located<bool>>;
        /// A built-in type; both are sent at the same place of the order. Without it last.
        order_with: Option<Located<Name>>;
    }
}

section! {
    /// Resources that only clients of some networks get.
    AccessEntry {
        /// Types that the rule is about, built in or listed under types.
        types: Needed<NonEmpty<Name>>;
        /// Names; a * at the end matches any rest. Without it all names.
        names: Option<Located<NonEmpty<Name>>>;
        /// Networks and addresses of the clients that get them.
        allow_from: Needed<NonEmpty<Network>>;
    }
}
