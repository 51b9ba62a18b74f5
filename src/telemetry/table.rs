//! Every metric: its name, kind and labels, what it means, and since which version it is there.

use super::metric::metrics;

metrics! {
    // The relay.
    /// Version of the running program; always 1
    BUILD_INFO: Gauge = "weir_build_info" ["version"], "0.2.0";
    /// Views
    VIEWS: Gauge = "weir_views" [], "0.2.0";
    /// Times that a view was left out of an exposition, because it did not answer within a second
    ///
    /// Its series, and its part of sums, are missing.
    METRICS_VIEWS_LEFT_OUT: Counter = "weir_metrics_views_left_out_total" [], "0.2.0";
    /// Views ended by an internal error (a bug)
    ///
    /// Their clients reconnect to a new view.
    VIEW_PANICS: Counter = "weir_view_panics_total" [], "0.2.0";
    /// Problems that there are now, by kind
    ///
    /// `weir problems` lists them. See [problems](operations.md#problems).
    PROBLEMS: Gauge = "weir_problems" ["kind"], "0.2.0";
    /// Log lines that were dropped, because the log was not read, or could not be written
    ///
    /// See [logs](operations.md#logs).
    LOG_LINES_DROPPED: Counter = "weir_log_lines_dropped_total" [], "0.2.0";
    /// Values of a field of the sharing key over all views
    ///
    /// The one with the most values splits the fleet most.
    KEY_FIELD_VALUES: Highest = "weir_key_field_values" ["field"], "0.2.0";

    // Brakes.
    /// Removals that brakes hold now
    ///
    /// See [brakes](operations.md#when-a-brake-holds).
    BRAKE_HELD_REMOVALS: Gauge = "weir_brake_held_removals" ["type"], "0.2.0";
    /// Times that a brake of a set has engaged
    ///
    /// One push to many views counts for each.
    BRAKES_ENGAGED: Counter = "weir_brakes_engaged_total" ["type"], "0.2.0";
    /// Held removals that were let go, or that their server took back
    ///
    /// The reason is `agreed`, `grace`, `empty_grace` or `operator`; `recovered` for those taken back.
    BRAKE_REMOVALS_RELEASED: Counter = "weir_brake_removals_released_total" ["type", "reason"], "0.2.0";

    // Audits.
    /// Audits of views that have ended, by result
    ///
    /// `equal`: a client that the control plane is not shown is given the same as its view; `differs`; `unfinished`: not known. See
    /// [audits](upstream.md#audits).
    AUDITS: Counter = "weir_audits_total" ["result"], "0.2.0";
    /// Views of which a client is given something else, by their last audit
    ///
    /// `weir problems` has the resource, and the node fields that `views.key` may lack.
    AUDIT_VIEWS_DIFFERING: Gauge = "weir_audit_views_differing" [], "0.2.0";
    /// About how many bytes audits have received from control planes
    AUDIT_RECEIVED_BYTES: Counter = "weir_audit_received_bytes_total" [], "0.2.0";

    // Connections and streams of clients.
    /// Open connections of clients
    ///
    /// Those whose requests are rejected included.
    CLIENT_CONNECTIONS: Gauge = "weir_client_connections" [], "0.2.0";
    /// Connections that reached their maximum age, and whose clients had to connect again
    ///
    /// See `clients.max_connection_age`.
    CLIENT_CONNECTIONS_AGED: Counter = "weir_client_connections_aged_total" [], "0.2.0";
    /// Connections closed for their PROXY header, or for having none
    ///
    /// A [balancer's](configuration.md#balancers) was `missing`, `invalid` or `late`, or another peer sent one (`untrusted`).
    PROXY_HEADERS_REFUSED: Counter = "weir_proxy_headers_refused_total" ["reason"], "0.2.0";
    /// Times that a limit was reached, by its key
    ///
    /// See [limits](limits.md).
    LIMIT_REACHED: Counter = "weir_limit_reached_total" ["limit"], "0.2.0";
    /// Client streams accepted
    ///
    /// The variant is `sotw` (also for each `Fetch`) or `delta`.
    CLIENT_STREAMS_ACCEPTED: Counter = "weir_client_streams_accepted_total" ["variant"], "0.2.0";
    /// Client streams rejected
    ///
    /// The reason is `no_node`, `bad_node`, `too_many_views`, `too_many_views_of_connection`, `too_many_views_of_identity`, `denied`,
    /// `configuration_changed` or `stopping`.
    CLIENT_STREAMS_REJECTED: Counter = "weir_client_streams_rejected_total" ["reason"], "0.2.0";
    /// Open client streams
    CLIENT_STREAMS_OPEN: Gauge = "weir_client_streams_open" ["view"], "0.2.0";
    /// Client streams blocked until a resource set is complete
    CLIENT_STREAMS_BLOCKED: Gauge = "weir_client_streams_blocked" ["view"], "0.2.0";
    /// Client streams that request more absent names than limits.absent_names_per_stream
    ///
    /// These names do not cause fallback.
    CLIENT_STREAMS_OVER_ABSENT_LIMIT: Gauge = "weir_client_streams_over_absent_limit" ["view"], "0.2.0";
    /// Requested names that are malformed, of another type, or of an authority without servers
    CLIENT_NAMES_REJECTED: Counter = "weir_client_names_rejected_total" [], "0.2.0";
    /// Approximate memory of initial_resource_versions that are not judged yet
    ///
    /// `limits.stated_versions_bytes` bounds it.
    STATED_VERSIONS_BYTES: Gauge = "weir_stated_versions_bytes" [], "0.2.0";

    // Replies to clients, and their answers.
    /// Large replies that wait for their turn, of 256 KiB or more each
    ///
    /// Eight for each core are sent at a time. Small ones go first, and those that bring a client what it lacks go before changes.
    CLIENT_REPLIES_WAITING: Gauge = "weir_client_replies_waiting" [], "0.2.0";
    /// Replies that were compressed, each once for all clients that are sent it
    ///
    /// See [compressed replies](compatibility.md#compressed-replies).
    CLIENT_REPLIES_COMPRESSED: Counter = "weir_client_replies_compressed_total" [], "0.2.0";
    /// Bytes that clients were not sent because their replies were compressed
    CLIENT_REPLY_BYTES_SAVED: Counter = "weir_client_reply_bytes_saved_total" [], "0.2.0";
    /// Replies that clients were sent
    ///
    /// Polls included.
    CLIENT_REPLIES: Counter = "weir_client_replies_total" ["type"], "0.2.0";
    /// Bytes of the replies that clients were sent
    ///
    /// Without those of HTTP/2 and TLS.
    CLIENT_REPLY_BYTES: Counter = "weir_client_reply_bytes_total" ["type"], "0.2.0";
    /// Calls that wrote bytes to sockets of clients
    ///
    /// Below TLS, so that what HTTP/2 and TLS write by themselves is in it too. One call may carry several replies, and a large reply takes several
    CLIENT_WRITES: Counter = "weir_client_writes_total" [], "0.3.0";
    /// From the receipt of the oldest change in a reply, or of the request that it answers, until the reply was sent
    ///
    /// Sent means handed to the transport. `reply="change"`: from the change, which came from a server. `reply="first"`: from the request,
    /// for first replies and after a reconnect; their resources may be old. A reply with both counts in both. See [lag](#lag).
    CLIENT_REPLY_SENT_LAG_SECONDS: Histogram = "weir_client_reply_sent_lag_seconds" ["type", "reply"], "0.2.0";
    /// From the receipt of the oldest change in a reply, or of the request that it answers, until the client ACKed it
    ///
    /// A NACK does not count.
    CLIENT_REPLY_ACKED_LAG_SECONDS: Histogram = "weir_client_reply_acked_lag_seconds" ["type", "reply"], "0.2.0";
    /// Client streams that have left a reply unanswered for longer than so many seconds
    ///
    /// `seconds` is 10 or 60. They subscribe to the type of the reply, and have answered neither it nor a later one.
    CLIENT_STREAMS_UNANSWERED: Gauge = "weir_client_streams_unanswered" ["type", "seconds"], "0.2.0";
    /// Replies that clients ACKed
    CLIENT_ACKS: Counter = "weir_client_acks_total" ["type"], "0.2.0";
    /// Responses that clients NACKed
    CLIENT_NACKS: Counter = "weir_client_nacks_total" ["type"], "0.2.0";
    /// Client streams that NACKed a version and accepted nothing newer
    ///
    /// See [`/nacks`](admin-api.md#nacks).
    CLIENT_STREAMS_NACKING: Gauge = "weir_client_streams_nacking" ["type"], "0.2.0";

    // Cached resources.
    /// Cached resources
    RESOURCES: Gauge = "weir_resources" ["view"], "0.2.0";
    /// Cached resources that were loaded from the state file and that no server has confirmed
    RESOURCES_FROM_DISK: Gauge = "weir_resources_from_disk" ["view"], "0.2.0";
    /// Cached resources of a type; those of several views count for each
    TYPE_RESOURCES: Gauge = "weir_type_resources" ["type"], "0.2.0";
    /// Bytes of the cached resources of a type; those of several views count for each
    ///
    /// `weir_cached_bytes` counts each body once.
    TYPE_RESOURCE_BYTES: Gauge = "weir_type_resource_bytes" ["type"], "0.2.0";
    /// Bytes of all cached resources, each body once
    ///
    /// Those that servers sent; see `limits.cached_bytes`.
    CACHED_BYTES: Gauge = "weir_cached_bytes" [], "0.2.0";

    // Memory.
    /// Memory that the relay may use; 0 if the system does not say how much there is
    ///
    /// See `limits.memory`.
    MEMORY_BUDGET_BYTES: Gauge = "weir_memory_budget_bytes" [], "0.2.0";
    /// Memory that is charged: to clients, or to what they have in common
    ///
    /// By the [costs](sizing.md#memory) of what they hold; the bytes of resources are in common.
    MEMORY_CHARGED_BYTES: Gauge = "weir_memory_charged_bytes" ["to"], "0.2.0";
    /// All memory that is charged, the program's own included, without what the kernel keeps
    ///
    /// Compare with `weir_memory_live_bytes`.
    MEMORY_BOOK_BYTES: Gauge = "weir_memory_book_bytes" [], "0.2.0";
    /// Memory that the allocator has given out; 0 if it does not tell
    MEMORY_LIVE_BYTES: Gauge = "weir_memory_live_bytes" [], "0.2.0";
    /// By how much charges are corrected when it is decided who gets more
    ///
    /// Live to charged bytes, over the last minute, from 0.8 to 1.5.
    MEMORY_CORRECTION: FloatGauge = "weir_memory_correction_ratio" [], "0.2.0";
    /// Client streams that were ended for others, for want of memory or of views
    MEMORY_STREAMS_ENDED: Counter = "weir_memory_streams_ended_total" [], "0.2.0";

    // The state file.
    /// Writes to the state file
    ///
    /// Metrics of the [file](warm-start.md) exist if `state` is configured.
    STATE_WRITES: Counter = "weir_state_writes_total" [], "0.2.0";
    /// Attempts to open or write the state file that failed
    ///
    /// The log has the reason. An attempt that hangs counts every 5 s.
    STATE_FAILURES: Counter = "weir_state_failures_total" [], "0.2.0";
    /// Unix time at which the state file last had everything that clients were given
    STATE_CURRENT_TIMESTAMP_SECONDS: FloatGauge = "weir_state_current_timestamp_seconds" [], "0.2.0";
    /// Views loaded from the state file
    STATE_VIEWS_LOADED: Counter = "weir_state_views_loaded_total" [], "0.2.0";
    /// Resources loaded from the state file
    STATE_RESOURCES_LOADED: Counter = "weir_state_resources_loaded_total" [], "0.2.0";

    // Removals, and references to clusters.
    /// Memory of the removals that are remembered for clients that are behind
    ///
    /// `limits.removal_history_bytes` bounds it.
    REMOVAL_HISTORY_BYTES: Gauge = "weir_removal_history_bytes" ["view"], "0.2.0";
    /// Removals forgotten because of their age or because all took too much; clients that were not sent them are behind
    ///
    /// The reason is `age` or `bytes`. See [clients that are behind](limits.md#views).
    REMOVALS_FORGOTTEN: Counter = "weir_removals_forgotten_total" ["view", "reason"], "0.2.0";
    /// Clusters that routing refers to and that do not exist
    ///
    /// `/dangling` lists them.
    CLUSTERS_MISSING: Gauge = "weir_clusters_missing" ["view"], "0.2.0";
    /// Clusters removed while routing referred to them, after limits.reference_hold
    CLUSTERS_REMOVED_IN_USE: Counter = "weir_clusters_removed_in_use_total" ["view"], "0.2.0";
    /// Clusters that a routing change waited for and that did not arrive in time
    ///
    /// The change was sent.
    CLUSTER_WAITS_TIMED_OUT: Counter = "weir_cluster_waits_timed_out_total" ["view"], "0.2.0";
    /// Resources too large to find the clusters that they refer to
    RESOURCES_NOT_SCANNED: Counter = "weir_resources_not_scanned_total" ["view"], "0.2.0";

    // What waits.
    /// For how long the oldest wait of a kind has lasted; its clock stands while the control plane is away
    ///
    /// See [what waits](operations.md#what-waits).
    OLDEST_WAIT_SECONDS: FloatGauge = "weir_oldest_wait_seconds" ["wait"], "0.2.0";
    /// Waits that lasted more than 1 s longer than they may
    ///
    /// Each counts once, when `/metrics` or `/waits` first sees it.
    WAITS_BEYOND_BOUND: Counter = "weir_waits_beyond_bound_total" ["wait"], "0.2.0";

    // Load reports.
    /// Load reports dropped, in whole or in part
    LOAD_REPORTS_DROPPED: Counter = "weir_load_reports_dropped_total" [], "0.2.0";
    /// Approximate memory of load reports that wait for a control plane
    LOAD_REPORTS_BUFFERED_BYTES: Gauge = "weir_load_reports_buffered_bytes" [], "0.2.0";

    // The configuration file, and resource files.
    /// Whether the configuration file was valid when it was last read
    ///
    /// `/config` has the reason.
    CONFIG_LAST_RELOAD_SUCCESSFUL: Gauge = "weir_config_last_reload_successful" [], "0.2.0";
    /// Unix time at which the configuration in use was read
    CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS: FloatGauge = "weir_config_last_reload_success_timestamp_seconds" [], "0.2.0";
    /// Times the configuration file was read again
    ///
    /// The result is `taken` or `failed`.
    CONFIG_RELOADS: Counter = "weir_config_reloads_total" ["result"], "0.2.0";
    /// Keys whose change in the configuration file needs a restart
    CONFIG_PENDING_KEYS: Gauge = "weir_config_pending_keys" [], "0.2.0";
    /// SHA-256 of the configuration file in use
    CONFIG_HASH: Gauge = "weir_config_hash" ["sha256"], "0.2.0";
    /// Resource files of a file source
    RESOURCE_FILES: Gauge = "weir_resource_files" ["source"], "0.2.0";
    /// Errors in the resource files of a file source
    ///
    /// `/files` has the texts.
    RESOURCE_FILE_ERRORS: Gauge = "weir_resource_file_errors" ["source"], "0.2.0";

    // TLS towards clients.
    /// Unix time at which a certificate of a listener, or of its chain, expires
    ///
    /// The first one of a chain counts. `certificate` is its file.
    TLS_CERTIFICATE_EXPIRES_TIMESTAMP_SECONDS: Highest = "weir_tls_certificate_expires_timestamp_seconds" ["listener", "certificate"], "0.2.0";
    /// Times that changed TLS files of a listener could not be used
    ///
    /// The log has file and reason.
    TLS_RELOAD_FAILURES: Counter = "weir_tls_reload_failures_total" ["listener"], "0.2.0";
    /// 1 if TLS files of a listener cannot be used as they are, and earlier versions are in use
    TLS_FILES_OUTDATED: Gauge = "weir_tls_files_outdated" ["listener"], "0.2.0";
    /// TLS handshakes that failed
    ///
    /// The reason is `no_certificate`, `expired`, `revoked`, `not_trusted`, `refused_by_client` (mostly because it does not trust the
    /// listener's certificate), `not_tls`, `timeout`, `too_many_of_address` or `other`. The log has some of them with the client.
    TLS_HANDSHAKES_FAILED: Counter = "weir_tls_handshakes_failed_total" ["listener", "reason"], "0.2.0";

    // Ladders.
    /// 1 for the active server of the ladder, 0 for the others
    LADDER_ACTIVE: Gauge = "weir_ladder_active" ["view", "authority", "server"], "0.2.0";
    /// 1 for the state of the ladder, 0 for the others
    ///
    /// `idle`, `trying`, `active`, `cached` or `down`; see [failover](failover.md).
    LADDER_STATE: Gauge = "weir_ladder_state" ["view", "authority", "state"], "0.2.0";
    /// Unix time of the last state change of the ladder
    ///
    /// The view `other` has none.
    LADDER_STATE_TIMESTAMP_SECONDS: Highest = "weir_ladder_state_timestamp_seconds" ["view", "authority"], "0.2.0";
    /// Switches of the ladder to the next server (fallback) and back up (return)
    LADDER_SWITCHES: Counter = "weir_ladder_switches_total" ["view", "authority", "direction"], "0.2.0";

    // Streams to servers, by view.
    /// Upstream streams in use, connected or not
    UPSTREAM_STREAMS: Gauge = "weir_upstream_streams" ["view", "server"], "0.2.0";
    /// Connected upstream streams
    UPSTREAM_STREAMS_CONNECTED: Gauge = "weir_upstream_streams_connected" ["view", "server"], "0.2.0";
    /// Upstream streams opened
    ///
    /// All but the first are reconnects.
    UPSTREAM_STREAMS_OPENED: Counter = "weir_upstream_streams_opened_total" ["view", "server"], "0.2.0";
    /// Upstream streams that ended or could not be opened
    UPSTREAM_STREAMS_CLOSED: Counter = "weir_upstream_streams_closed_total" ["view", "server"], "0.2.0";
    /// Responses of the server
    ///
    /// For files, each version of them counts.
    UPSTREAM_RESPONSES: Counter = "weir_upstream_responses_total" ["view", "server"], "0.2.0";
    /// Unix time of the last response of the server
    ///
    /// For files, that of their last version. The view `other` has none.
    UPSTREAM_LAST_RESPONSE_TIMESTAMP_SECONDS: Highest = "weir_upstream_last_response_timestamp_seconds" ["view", "server"], "0.2.0";
    /// Responses of the server that the relay NACKed
    ///
    /// A response of which only some entries were rejected counts too.
    UPSTREAM_NACKS: Counter = "weir_upstream_nacks_total" ["view", "server"], "0.2.0";

    // Servers, over all views.
    /// Upstream streams opened, over all views that ever were
    SERVER_STREAMS_OPENED: Counter = "weir_server_streams_opened_total" ["server"], "0.2.0";
    /// Upstream streams that ended or could not be opened, over all views that ever were
    SERVER_STREAMS_CLOSED: Counter = "weir_server_streams_closed_total" ["server"], "0.2.0";
    /// Responses of the server, over all views that ever were
    SERVER_RESPONSES: Counter = "weir_server_responses_total" ["server"], "0.2.0";
    /// Responses of the server that the relay NACKed, over all views that ever were
    SERVER_NACKS: Counter = "weir_server_nacks_total" ["server"], "0.2.0";
    /// Liveness calls that the server did not answer
    ///
    /// See [failover](failover.md#is-the-server-there).
    UPSTREAM_LIVENESS_CALLS_UNANSWERED: Counter = "weir_upstream_liveness_calls_unanswered_total" ["server"], "0.2.0";
    /// Open connections to the server, which streams share
    ///
    /// Of views and load reports; see [upstream](upstream.md#connections).
    UPSTREAM_CONNECTIONS: Gauge = "weir_upstream_connections" ["server"], "0.2.0";
    /// Resources of the server that the relay rejected; each version of a name counts once per subscription
    ///
    /// `/upstreams` and the log have names and reasons.
    UPSTREAM_RESOURCES_REJECTED: Counter = "weir_upstream_resources_rejected_total" ["server", "type"], "0.2.0";

    // Traces.
    /// Spans that the collector of traces accepted
    ///
    /// See [tracing](tracing.md).
    TRACE_SPANS_EXPORTED: Counter = "weir_trace_spans_exported_total" [], "0.2.0";
    /// Spans that were not exported, by reason
    ///
    /// `queue_full` (the collector is slow), `export_failed` or `too_many_open` (of 256 open changes, this was the oldest).
    TRACE_SPANS_DROPPED: Counter = "weir_trace_spans_dropped_total" ["reason"], "0.2.0";

    // The runtime.
    /// Time that a worker of the runtime has spent on tasks; its rate is how busy the worker is, 1 at most
    WORKER_BUSY_SECONDS: FloatCounter = "weir_worker_busy_seconds_total" ["worker"], "0.2.0";
    /// Times that a worker of the runtime has not got on for 5 s
    ///
    /// A task blocks it; the log names the worker. See [watchdog](operations.md#watchdog).
    WORKER_STALLS: Counter = "weir_worker_stalls_total" ["worker"], "0.2.0";
    /// Worker threads of the runtime
    ///
    /// As many as the processors that the process may use, by the quota of its container too.
    WORKERS: Gauge = "weir_workers" [], "0.2.0";
    /// Tasks that have not ended
    TASKS: Gauge = "weir_tasks" [], "0.2.0";
    /// Tasks in the queue that all workers share; the queues of the workers are not counted
    ///
    /// They are not available.
    TASKS_QUEUED: Gauge = "weir_tasks_queued" [], "0.2.0";
    /// How late a task that is due every 10 ms was run; a timer alone may take 1 ms
    TASK_LATENESS_SECONDS: Histogram = "weir_task_lateness_seconds" [], "0.2.0";
    /// Connections of clients that live on a thread of `shards`
    ///
    /// A new one goes to the thread that has the fewest connections and streams together
    SHARD_CONNECTIONS: Gauge = "weir_shard_connections" ["shard"], "0.3.0";
    /// Streams of the connections that live on a thread of `shards`
    SHARD_STREAMS: Gauge = "weir_shard_streams" ["shard"], "0.3.0";
    /// Times that a thread of `shards` came round 50 ms late or more; a timer shows it
    ///
    /// The timer is due after 10 ms while the thread is busy or was late, and after up to 320 ms while it has little to do. The thread of load reports
    /// has the highest number. If a thread of connections is late often, it gets no new ones. See [shards](configuration.md#shards)
    SHARD_LATE_ROUNDS: Counter = "weir_shard_late_rounds_total" ["shard"], "0.3.0";
    /// Processor time that one poll of a connection, or of a task of its streams, took from a thread of `shards`
    ///
    /// One of 64 polls is measured, none of load reports. A long one holds up the other connections of the thread
    SHARD_POLL_SECONDS: Histogram = "weir_shard_poll_seconds" ["shard"], "0.3.0";

    // The process, on Linux, under the names that Prometheus' own client libraries use.
    /// Total user and system CPU time spent in seconds
    PROCESS_CPU_SECONDS: FloatCounter = "process_cpu_seconds_total" [], "0.2.0";
    /// Start time of the process since unix epoch in seconds
    PROCESS_START_TIME_SECONDS: FloatGauge = "process_start_time_seconds" [], "0.2.0";
    /// Resident memory size in bytes
    PROCESS_RESIDENT_MEMORY_BYTES: Gauge = "process_resident_memory_bytes" [], "0.2.0";
    /// Virtual memory size in bytes
    PROCESS_VIRTUAL_MEMORY_BYTES: Gauge = "process_virtual_memory_bytes" [], "0.2.0";
    /// Number of OS threads in the process
    PROCESS_THREADS: Gauge = "process_threads" [], "0.2.0";
    /// Number of open file descriptors
    PROCESS_OPEN_FDS: Gauge = "process_open_fds" [], "0.2.0";
    /// Maximum number of open file descriptors
    PROCESS_MAX_FDS: Gauge = "process_max_fds" [], "0.2.0";
}
