//! Control planes, by lists.

use super::server::{Backoff, Server};
use crate::config::form::{
    FilePath, Located, Name, Names, NonEmpty, OneOrMore, Setting, Wait, seconds, section, words,
};

section! {
    /// Control planes, or files in their place. One of servers, files, bootstrap and bootstrap_from_environment is needed.
    Upstream {
        /// The server list of old-style names and wildcards; the first is the first choice.
        ///
        /// See [servers](#servers).
        servers: Option<Located<NonEmpty<Server>>>, written("");
        /// Instead of servers: files and folders of resources as the only source, relative to the folder of this file.
        ///
        /// See [files](files.md).
        files: Option<Located<OneOrMore<FilePath>>>, example("resources");
        /// Servers for names of `xdstp://<authority>/`; names of other authorities are not served.
        ///
        /// For a name of another authority, gRPC clients and relays get an error, Envoys no reply. See [authorities](#authorities).
        authorities: Located<Names<Authority>>, example("endpoints.example");
        /// Instead of servers, files and authorities: a gRPC xDS bootstrap file.
        ///
        /// See [gRPC bootstrap files](#grpc-bootstrap-files).
        bootstrap: Option<Located<FilePath>>, example("bootstrap.json");
        /// As bootstrap, with the file that GRPC_XDS_BOOTSTRAP names, or else the JSON in GRPC_XDS_BOOTSTRAP_CONFIG.
        bootstrap_from_environment: Setting<bool> = false, example("true");
        /// Authorities whose names mean the same to all clients: all views share one subscription and cache for them.
        ///
        /// Only for control planes that ignore the node for these names.
        shared_authorities: Located<Vec<Located<Name>>>, example("[endpoints.example]");
        /// FileDescriptorSets (protoc --include_imports --descriptor_set_out) for messages that are not Envoy's.
        ///
        /// One in each file. YAML, JSON, text and REST need them; binary files and gRPC do not.
        descriptors: Located<Vec<Located<FilePath>>>, example("[messages.binpb]");
        /// When the next server of a list is used.
        ///
        /// See [fallback](#fallback).
        fallback: Located<Fallback>;
        /// Waits between attempts to open a stream to a server.
        ///
        /// See [backoff](#backoff).
        backoff: Located<Backoff>;
    }
}

impl Upstream {
    /// Returns the servers of all lists.
    pub(in crate::config) fn all_servers(&self) -> impl Iterator<Item = &Located<Server>> {
        let top = self.servers.iter().flat_map(|servers| &servers.0);
        top.chain(self.authorities.0.values().flat_map(|authority| authority.servers.iter()))
    }
}

section! {
    /// Servers for the names of one authority.
    Authority {
        /// The server list of this authority. Without it that of upstream.servers.
        ///
        /// The same if the list is empty. See [servers](#servers).
        servers: Located<Vec<Located<Server>>>, example("[{uri: \"http://127.0.0.1:18012\"}]");
        /// If true, fall back as soon as a server is unreachable, even if everything is cached (gRFC A95).
        ///
        /// For data of little value when stale, such as endpoints.
        fallback_on_reachability_only: Setting<bool> = false;
    }
}

section! {
    /// When the next server of a list is used.
    Fallback {
        /// How long a server must be unreachable before the next is tried.
        delay: Setting<Wait> = seconds(0);
        /// After a return, the server is not left again for this long.
        hold_down: Setting<Wait> = seconds(0);
        /// What happens to resources of the previous server that the fallback server lacks.
        ///
        /// `keep`: they stay until that server, or one above it, removes them. `delete`: they are removed.
        on_missing: Setting<OnMissing> = OnMissing::Keep;
    }
}

words! {
    /// What becomes of a resource that only the previous server had.
    OnMissing { Keep = "keep", Delete = "delete" }
}
