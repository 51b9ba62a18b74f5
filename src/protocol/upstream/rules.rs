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
    /// Its silence about a name is a passing trouble (A88, `resource_timer_is_transient_error`).
    pub silence_is_transient: bool,
    /// What it reports as not allowed is given up, although it is held (A88, `fail_on_data_errors`).
    pub fail_on_data_errors: bool,
}

impl Default for ServerRules {
    fn default() -> Self {
        Self {
            node_always: false,
            initial_versions: true,
            empty_list: true,
            hold_deletions: false,
            silence_is_transient: false,
            fail_on_data_errors: false,
        }
    }
}
