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
    /// Whether the first answer to `*` holds all that there is.
    pub initial_set: InitialSet,
    /// It says by itself when all of a collection has been told, and until then nobody knows.
    pub says_whole: bool,
    /// Each type is asked for apart, so that an answer for one says nothing of what silence about another means (REST).
    pub by_type: bool,
}

/// How a delta server sends a `*` set to whoever has nothing of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InitialSet {
    /// Nobody knows. The first response is given to clients that hold nothing, unless this server was seen to cut its sets.
    #[default]
    Auto,
    /// In one response (FS-4): what is not in it does not exist.
    OneResponse,
    /// In as many as it likes.
    Pieces,
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
            initial_set: InitialSet::Auto,
            says_whole: false,
            by_type: false,
        }
    }
}

/// Stands for whatever of a `*` set was not told yet by a source within the process. No resource has this name.
pub const INCOMPLETE_MARKER: &str = "weir.incomplete";
