//! Control planes, by lists.

use super::server::{Backoff, Server};
use crate::config::form::{FilePath, Located, Name, Names, NonEmpty, OneOrMore, Wait, section, words};

section! {
    /// Control planes, or files in their place. One of servers, files, bootstrap and bootstrap_from_environment is needed.
    Upstream {
        /// The server list of old-style names and wildcards; the first is the first choice.
        servers: Option<Located<NonEmpty<Server>>>;
        /// Instead of servers: files and folders of resources as the only source, relative to the folder of this file.
        files: Option<Located<OneOrMore<FilePath>>>;
        /// Servers for names of `xdstp://<authority>/`; names of other authorities are not served.
        authorities: Located<Names<Authority>>;
        /// Instead of servers, files and authorities: a gRPC xDS bootstrap file.
        bootstrap: Option<Located<FilePath>>;
        /// As bootstrap, with the file that GRPC_XDS_BOOTSTRAP names, or else the JSON in GRPC_XDS_BOOTSTRAP_CONFIG.
        bootstrap_from_environment: Located<bool> = false;
        /// Authorities whose names mean the same to all clients: all views share one subscription and cache for them.
        shared_authorities: Located<Vec<Located<Name>>>;
        /// FileDescriptorSets (protoc --include_imports --descriptor_set_out) for messages that are not Envoy's.
        descriptors: Located<Vec<Located<FilePath>>>;
        /// When the next server of a list is used.
        fallback: Located<Fallback>;
        /// Waits between attempts to open a stream to a server.
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
        servers: Located<Vec<Located<Server>>>;
        /// If true, fall back as soon as a server is unreachable, even if everything is cached (gRFC A95).
        fallback_on_reachability_only: Located<bool> = false;
    }
}

section! {
    /// When the next server of a list is used.
    Fallback {
        /// How long a server must be unreachable before the next is tried.
        delay: Option<Located<Wait>> = "0s";
        /// After a return, the server is not left again for this long.
        hold_down: Option<Located<Wait>> = "0s";
        /// What happens to resources of the previous server that the fallback server lacks.
        on_missing: Located<OnMissing> = "keep";
    }
}

words! {
    /// What becomes of a resource that only the previous server had.
    OnMissing { Keep = "keep", Delete = "delete" }
}
