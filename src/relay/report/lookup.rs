//! What `/resources` shows.

use serde::Serialize;

/// What a view knows of a name, as `*` or as the name itself brought it.
#[derive(Debug, Serialize)]
pub struct LookupReport {
    /// The hash of the sharing key.
    pub view: String,
    pub subscription: &'static str,
    /// here, gone (known not to exist), expired (its time was over, and nobody has said more), or error (something is wrong with it,
    /// and nothing else is known).
    pub state: &'static str,
    /// What delta clients see as its version.
    pub version: Option<String>,
    /// Who gave what is here.
    pub server: Option<String>,
    /// For how long it has been what it is, and of that server.
    pub state_seconds: u64,
    /// What was last reported wrong with it.
    pub error: Option<String>,
}
