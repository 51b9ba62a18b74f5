//! How one server wants to be treated, where servers differ. The defaults are what the protocol says.

/// Per server, from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRules {
    /// It wants the node in every request (UP-1).
    pub node_always: bool,
    /// It makes good use of `initial_resource_versions`. Otherwise it is told none, and what it does not send again some time
    /// after a reconnect is gone (UP-16).
    pub initial_versions: bool,
    /// It takes an empty SotW list of names for what it is. Otherwise it is given one name that no resource has (UP-9).
    pub empty_list: bool,
    /// What it deletes is kept (XLAT-20).
    pub hold_deletions: bool,
    pub silence: Silence,
    /// What it reports as not allowed is given up, although it is held (A88, `fail_on_data_errors`).
    pub fail_on_data_errors: bool,
    /// An answer to `*` holds all that there is, unless it says that something is amiss. No protocol has that; a source that is
    /// no server may (FS-4).
    pub whole_at_once: bool,
    /// It says by itself when all of a collection has been told, and until then nobody knows.
    pub says_whole: bool,
    /// Each type is asked for apart, so that an answer for one says nothing of what silence about another means (REST).
    pub by_type: bool,
}

/// What it means that a server says nothing of a name for long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Silence {
    /// There is none (XLAT-15).
    #[default]
    Absence,
    /// A passing trouble (A88, `resource_timer_is_transient_error`).
    Trouble,
    /// Nothing: it says so if there is none, and otherwise nobody knows (XLAT-16).
    Nothing,
}

impl Default for ServerRules {
    fn default() -> Self {
        Self {
            node_always: false,
            initial_versions: true,
            empty_list: true,
            hold_deletions: false,
            silence: Silence::Absence,
            fail_on_data_errors: false,
            whole_at_once: false,
            says_whole: false,
            by_type: false,
        }
    }
}
