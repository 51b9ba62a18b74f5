//! How one server differs from others. The defaults follow the protocol.

/// Per server, from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerQuirks {
    /// It wants the node in every request (UP-1).
    pub node_in_every_request: bool,
    /// It makes good use of `initial_resource_versions`. Otherwise it is told none, and what it does not send again some time
    /// after a reconnect is gone (UP-16).
    pub supports_initial_resource_versions: bool,
    /// It takes an empty SotW list of names for what it is. Otherwise it is given one name that no resource has (UP-9).
    pub supports_empty_subscription: bool,
    /// What it deletes is kept (XLAT-20).
    pub ignore_deletions: bool,
    /// What it means when the server does not mention a requested name in time.
    pub on_resource_timeout: OnResourceTimeout,
    /// What it reports as not allowed is given up, although it is held (A88, `fail_on_data_errors`).
    pub fail_on_data_errors: bool,
    /// Whether the first answer to `*` holds all that there is.
    pub initial_set: InitialSet,
    /// It says by itself when all of a collection has been told, and until then nobody knows.
    pub signals_completion: bool,
    /// Each type is requested apart, so that an answer for one says nothing of what silence about another means (REST).
    pub per_type_liveness: bool,
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
pub enum OnResourceTimeout {
    /// There is none (XLAT-15).
    #[default]
    Absent,
    /// A passing trouble (A88, `resource_timer_is_transient_error`).
    TransientError,
    /// Nothing: it says so if there is none, and otherwise nobody knows (XLAT-16).
    Unknown,
}

impl Default for ServerQuirks {
    fn default() -> Self {
        Self {
            node_in_every_request: false,
            supports_initial_resource_versions: true,
            supports_empty_subscription: true,
            ignore_deletions: false,
            on_resource_timeout: OnResourceTimeout::Absent,
            fail_on_data_errors: false,
            initial_set: InitialSet::Auto,
            signals_completion: false,
            per_type_liveness: false,
        }
    }
}

/// Stands for whatever of a `*` set was not told yet by a source within the process. No resource has this name.
pub const INCOMPLETE_MARKER: &str = "weir.incomplete";
