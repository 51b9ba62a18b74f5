//! The state on disk.

use crate::config::form::{FilePath, Located, Needed, Setting, Wait, section, words_for};
use crate::state::WhenOlder;

section! {
    /// What the relay has, on disk, so that it can serve after a restart while its servers are away.
    State {
        /// The file. Its folder has to exist.
        ///
        /// It is made for the relay's own user, and may not be a link. A file belongs to one process at a time.
        path: Needed<Located<FilePath>>, written("/var/lib/weir/state");
        /// A file with 32 bytes, or those in base64 or hexadecimal, that encrypt the state. Without it no secrets are written.
        ///
        /// With it, everything that clients receive is encrypted.
        key: Option<Located<FilePath>>, example("state.key");
        /// Time since the servers of a view were last heard, above which when_older applies. Without it there is no limit.
        ///
        /// This is judged when the relay starts.
        max_age: Option<Located<Wait>>, absent("no limit"), example("24h");
        /// What becomes of an older view: serve; not_ready: the relay is not ready because of it; refuse: it is not used.
        when_older: Setting<WhenOlder> = WhenOlder::Serve;
        /// If true, views whose clients have secrets are used although their secrets are not in the file.
        ///
        /// An Envoy without its certificates may refuse connections where one that waits would get none.
        serve_without_secrets: Setting<bool> = false;
    }
}

words_for!(WhenOlder { Serve = "serve", NotReady = "not_ready", Refuse = "refuse" });
