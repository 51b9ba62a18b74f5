//! `weir check`: whether a configuration is valid, and what it means.

mod as_client;
mod memory;
mod servers;
mod settings;

use std::path::Path;
use std::time::Duration;

pub use self::as_client::AsClient;
use super::{note, show};
use crate::config::{Config, Review};
use crate::upstream::{FilesOptions, FilesServer, FilesSource, Parser, SourcePlan};

/// Checks a file, the files that it names, and the resources in them, for a machine with so much memory. Returns the exit code: 0, or 1 if there are faults.
pub async fn run(path: &Path, memory: Option<usize>) -> u8 {
    let Review { config, faults, warnings, .. } = match Config::review(path, memory) {
        Ok(review) => review,
        Err(error) => {
            note(&error.to_string());
            return FAULTY;
        }
    };
    let mut faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
    if let Some(config) = &config {
        faults.extend(faults_in_resources(config).await);
        if let Err(error) = show(&(servers::report(config) + &settings::report(config) + &memory::report(config))) {
            note(&format!("cannot write: {error}"));
            return FAULTY;
        }
    }
    warnings.iter().for_each(|warning| note(&format!("warning: {warning}")));
    crate::app::system_warnings().iter().for_each(|warning| note(&format!("warning: {warning}")));
    faults.iter().for_each(|fault| note(&format!("error: {fault}")));
    if faults.is_empty() { 0 } else { FAULTY }
}

/// Answers what a configuration means for one client. Returns the exit code: 0 if it is served, 1 if it is not, or if there are faults.
pub fn run_as(path: &Path, client: &AsClient) -> u8 {
    let answer = match Config::from_file(path) {
        Ok(config) => client.answer(&config).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match answer.and_then(|(text, is_served)| show(&text).map(|()| is_served).map_err(|error| error.to_string())) {
        Ok(true) => 0,
        Ok(false) => FAULTY,
        Err(error) => {
            note(&error);
            FAULTY
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
    // Missing files were reported already, at their place in the configuration.
    let errors = report.errors.iter().filter(|error| error.file.exists()).map(ToString::to_string);
    errors.map(|error| error.strip_prefix(&folder).map(str::to_owned).unwrap_or(error)).collect()
}

const FAULTY: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn faults_decide_the_exit_code_and_warnings_do_not() {
        let folder = std::env::temp_dir().join(format!("weir-check-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("resources")).unwrap();
        let path = folder.join("relay.yaml");
        let code = async |text: &str| {
            std::fs::write(&path, format!("listen: [{{address: '127.0.0.1:0'}}]\n{text}")).unwrap();
            run(&path, None).await
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
        assert_eq!(run(&folder.join("none.yaml"), None).await, 1);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
