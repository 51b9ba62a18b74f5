//! `weir check`: whether a configuration is valid, and what it means.

mod against;
mod as_client;
mod far_off;
mod memory;
mod servers;
mod settings;

use std::path::Path;
use std::time::Duration;

pub use self::against::Against;
use self::against::Foretold;
pub use self::as_client::AsClient;
use super::{CANNOT_ASK, FOUND, show};
use crate::config::{Config, Review};
use crate::file_access::{self, LIMIT};
use crate::plural::plural;
use crate::upstream::{FilesOptions, FilesServer, FilesSource, Parser, SourcePlan};

/// How much is shown of a configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shows {
    /// Faults, and the verdict.
    Faults,
    /// The keys that are set, and warnings too.
    #[default]
    Set,
    /// Every key, with its default.
    All,
}

impl Shows {
    /// Returns what the two flags select.
    pub fn of(quiet: bool, all: bool) -> Self {
        match (quiet, all) {
            (true, _) => Self::Faults,
            (false, true) => Self::All,
            (false, false) => Self::Set,
        }
    }
}

/// Checks a file, the files that it names, and the resources in them, for a machine with this much memory, and compares it with a running relay. The
/// last line is the verdict. Returns the exit code: 0, 1 if there are faults, or 2 if the file or the relay could not be read.
pub async fn run(path: &Path, memory: Option<usize>, shows: Shows, against: Against) -> u8 {
    let text = match Config::text_of(path) {
        Ok(text) => text,
        Err(error) => {
            super::error(&error.to_string());
            return CANNOT_ASK;
        }
    };
    let review = Config::review(path, &text, memory);
    let mut found = look_at(&review, shows).await;
    if let (Some(relay), Some(config)) = (against.relay(), &review.config) {
        match against::foretell(&relay, path, &text, config).await {
            Ok(Foretold::Taken(told)) => found.code = found.code.max(shown(&told)),
            Ok(Foretold::Refused(reason)) => found.fault(&reason),
            Err(error) => {
                super::error(&error.to_string());
                found.code = CANNOT_ASK;
            }
        }
    }
    found.code.max(shown(&found.verdict(path)))
}

/// What was found in a file.
#[derive(Debug, Default)]
struct Found {
    faults: usize,
    warnings: usize,
    /// The exit code.
    code: u8,
}

impl Found {
    fn fault(&mut self, fault: &str) {
        super::error(fault);
        self.faults += 1;
        self.code = self.code.max(FOUND);
    }

    fn verdict(&self, path: &Path) -> String {
        let warned = if self.warnings > 0 { format!(", {}", plural(self.warnings, "warning")) } else { String::new() };
        let path = path.display();
        match self.faults {
            0 => format!("{path}: valid{warned}\n"),
            faults => format!("{path}: {}{warned}\n", plural(faults, "fault")),
        }
    }
}

/// Shows a text. Returns the exit code.
fn shown(text: &str) -> u8 {
    match show(text) {
        Ok(()) => 0,
        Err(error) => {
            super::error(&format!("cannot write: {error}"));
            CANNOT_ASK
        }
    }
}

/// Shows the result of a review.
async fn look_at(review: &Review, shows: Shows) -> Found {
    let Review { config, faults, warnings, .. } = review;
    let mut found = Found::default();
    if let Some(config) = config.as_ref().filter(|_| shows != Shows::Faults) {
        let report = servers::report(config) + &settings::report(config, shows) + &memory::report(config);
        found.code = shown(&review.without_values(&report));
    }
    let mut warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    let far_off = config.iter().flat_map(|config| far_off::warnings(&config.in_force));
    warnings.extend(far_off.map(|warning| review.without_values(&warning)));
    warnings.extend(crate::app::system_warnings());
    if shows != Shows::Faults {
        warnings.iter().for_each(|warning| super::warning(warning));
    }
    found.warnings = warnings.len();
    faults.iter().for_each(|fault| found.fault(&fault.to_string()));
    if let Some(config) = config {
        match tokio::time::timeout(LONGEST_LOOK, faults_in_resources(config)).await {
            Ok(faults) => faults.iter().for_each(|fault| found.fault(&review.without_values(fault))),
            Err(_) => {
                let limit = humantime::format_duration(LONGEST_LOOK);
                super::error(&format!("the resource files were not read within {limit}: is their disk there?"));
                found.code = CANNOT_ASK;
            }
        }
    }
    found
}

/// Shows what a configuration means for one client. Returns the exit code: 0 if the client is served, 1 if not, 2 if that cannot be decided.
pub fn run_as(path: &Path, client: &AsClient) -> u8 {
    let parsed = Config::text_of(path).and_then(|text| Config::parse(path, &text));
    let answer = match parsed {
        Ok(config) => client.answer(&config).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match answer.and_then(|(text, is_served)| show(&text).map(|()| is_served).map_err(|error| error.to_string())) {
        Ok(true) => 0,
        Ok(false) => FOUND,
        Err(error) => {
            super::error(&error);
            CANNOT_ASK
        }
    }
}

/// Reads all resource files, as the relay does when it starts.
async fn faults_in_resources(config: &Config) -> Vec<String> {
    let parser = Parser::new(config.views.table.clone(), config.transcoder.clone());
    let mut read: Vec<&FilesOptions> = Vec::new();
    let mut faults = Vec::new();
    for source in &config.upstream.servers {
        let SourcePlan::Files(FilesServer { options, .. }) = source else { continue };
        if !read.contains(&options) {
            read.push(options);
            faults.extend(faults_in(options, parser.clone()).await);
        }
    }
    faults
}

async fn faults_in(options: &FilesOptions, parser: Parser) -> Vec<String> {
    let source = FilesSource::start(options.clone(), parser);
    let mut report = source.report();
    while report.state == "loading" {
        tokio::time::sleep(Duration::from_millis(5)).await;
        report = source.report();
    }
    let folder = std::env::current_dir().map(|folder| format!("{}/", folder.display())).unwrap_or_default();
    // Missing files were reported already, at their place in the configuration. The disk may hang.
    let is_missing = |file: &Path| matches!(file_access::stamp_blocking(file, LIMIT), Ok(None));
    let errors = report.errors.iter().filter(|error| !is_missing(&error.file)).map(ToString::to_string);
    errors.map(|error| error.strip_prefix(&folder).map(str::to_owned).unwrap_or(error)).collect()
}

/// The limit of reading resource files: their disk may hang.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_counts_faults_and_warnings() {
        let verdict = |faults, warnings| Found { faults, warnings, code: 0 }.verdict(Path::new("relay.yaml"));
        assert_eq!(verdict(0, 0), "relay.yaml: valid\n");
        assert_eq!(verdict(0, 1), "relay.yaml: valid, 1 warning\n");
        assert_eq!(verdict(1, 0), "relay.yaml: 1 fault\n");
        assert_eq!(verdict(2, 3), "relay.yaml: 2 faults, 3 warnings\n");
    }

    #[tokio::test]
    async fn faults_decide_the_exit_code_and_warnings_do_not() {
        let folder = std::env::temp_dir().join(format!("weir-check-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("resources")).unwrap();
        let path = folder.join("relay.yaml");
        let code = async |text: &str| {
            std::fs::write(&path, format!("listen: [{{address: '127.0.0.1:0'}}]\n{text}")).unwrap();
            run(&path, None, Shows::Set, Against::none()).await
        };
        assert_eq!(code("upstream: {files: resources}\nlimits: {resource_timer: 1s}\n").await, 0);
        assert_eq!(code("upstream: {files: [resources, none]}\n").await, 1);
        assert_eq!(code("upstream: {fils: resources}\n").await, 1);
        let resource = folder.join("resources/clusters.yaml");
        std::fs::write(
            &resource,
            "resources:\n- {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, nam: a}\n",
        )
        .unwrap();
        assert_eq!(code("upstream: {files: resources}\n").await, 1);
        let config = Config::from_file(&path).unwrap();
        let faults = faults_in_resources(&config).await;
        assert!(
            faults.len() == 1 && faults[0].contains("resources/clusters.yaml:2") && faults[0].contains("nam"),
            "{faults:?}"
        );
        assert_eq!(run(&folder.join("none.yaml"), None, Shows::Faults, Against::none()).await, 2);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
