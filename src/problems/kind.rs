//! The kinds of problems, the worst first.

/// Declares the kinds: for each its name in the program, its word, its title, and the alert that goes with it.
macro_rules! kinds {
    ($($kind:ident = $word:literal, $title:literal, $alert:literal;)+) => {
        /// A kind of problem. A section of docs/operations.md begins with its word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum ProblemKind {
            $($kind),+
        }

        impl ProblemKind {
            pub(crate) const ALL: [Self; <[&str]>::len(&[$($word),+])] = [$(Self::$kind),+];

            /// Its name on pages and in metrics.
            pub(crate) fn word(self) -> &'static str {
                match self {
                    $(Self::$kind => $word),+
                }
            }

            pub(crate) fn title(self) -> &'static str {
                match self {
                    $(Self::$kind => $title),+
                }
            }

            /// The alert in deploy/prometheus about the same problem.
            #[cfg(test)]
            pub(crate) fn alert(self) -> &'static str {
                match self {
                    $(Self::$kind => $alert),+
                }
            }
        }
    };
}

kinds! {
    ServerAway = "server_away", "server away", "WeirServerUnreachable";
    Refused = "refused", "refused by a server", "WeirRefused";
    WaitBeyondBound = "wait_beyond_bound", "wait beyond its bound", "WeirWaitBeyondBound";
    Nacks = "nacks", "clients NACK", "WeirClientsNack";
    BrakeHeld = "brake_held", "removals held by brakes", "WeirBrakesHold";
    Dangling = "dangling", "routes to clusters that do not exist", "WeirClustersMissing";
    AuditDiffers = "audit_differs", "a view is not the same for all its clients", "WeirSharedViewDiffers";
    LimitReached = "limit_reached", "limit reached", "WeirLimitReached";
    Laggards = "laggards", "clients leave replies unanswered", "WeirRepliesUnacknowledged";
    CertificateEnding = "certificate_ending", "certificate ends", "WeirCertificateExpires";
    StateNotWritten = "state_not_written", "state file not written", "WeirStateFileFails";
    ReloadFailed = "reload_failed", "configuration not taken", "WeirConfigurationNotTaken";
    LogDropped = "log_dropped", "log lines dropped", "WeirLogLinesDropped";
}

impl ProblemKind {
    /// The section of the documentation that explains it and what to do.
    pub(crate) fn section(self) -> String {
        format!("docs/operations.md#{}", self.word())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::ProblemKind;

    /// For each kind, a test causes it in a relay, and has the kind's word in quotes.
    #[test]
    fn each_kind_has_a_section_an_alert_that_leads_there_and_a_test() {
        let operations = fs::read_to_string("docs/operations.md").unwrap();
        let rules: Value =
            serde_saphyr::from_str(&fs::read_to_string("deploy/prometheus/weir-alerts.yaml").unwrap()).unwrap();
        let rules = rules["groups"][0]["rules"].as_array().unwrap();
        let files = ["problems/views.rs", "problems/process.rs", "audit.rs", "waits.rs", "../process/unread_log.rs"];
        let tests = files.map(|file| fs::read_to_string(format!("tests/relay/{file}")).unwrap()).concat();
        for kind in ProblemKind::ALL {
            let word = kind.word();
            assert!(operations.contains(&format!("\n### {word}\n")), "no section about {word}");
            let rule = rules.iter().find(|rule| rule["alert"] == kind.alert());
            let rule = rule.unwrap_or_else(|| panic!("no alert {}", kind.alert()));
            let leads = rule["annotations"]["runbook_url"].as_str().unwrap_or_default();
            assert!(leads.ends_with(&kind.section()), "{}: {leads}", kind.alert());
            assert!(tests.contains(&format!("\"{word}")), "no test makes {word}");
        }
    }
}
