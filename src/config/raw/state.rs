//! The state on disk.

use crate::config::form::{FilePath, Located, Needed, Wait, section, words};

section! {
    /// What the relay has, on disk, so that it can serve after a restart while its servers are away.
    State {
        /// The file. Its folder has to exist.
        path: Needed<Located<FilePath>>;
        /// A file with 32 bytes, or those in base64 or hexadecimal, that encrypt the state. Without it no secrets are written.
        key: Option<Located<FilePath>>;
        /// For how long the servers of a view may not have been heard before when_older applies. Without it there is no limit.
        max_age: Option<Located<Wait>>;
        /// What becomes of an older view: serve; not_ready: the relay is not ready because of it; refuse: it is not used.
        when_older: Located<WhenOlder> = "serve";
        /// If true, views whose clients have secrets are used although their secrets are not in the file.
        serve_without_secrets: Located<bool> = false;
    }
}

words! {
    /// What becomes of a view whose servers were not heard for longer than the maximum age.
    WhenOlder { Serve = "serve", NotReady = "not_ready", Refuse = "refuse" }
}
