//! `weir get`: requests resources from an xDS server once, and prints them.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use prost::Message;
use weir_core::proto::Any;
use weir_core::proto::discovery::{DiscoveryResponse, Resource};
use weir_core::xds::WRAPPER_TYPE;

use super::listening::{Patience, listen};
use super::printer::{Printer, plain};
use super::query_args::{Checked, Output, QueryArgs};
use super::query_state::{NameStatus, QueryState};
use super::xds_client::Client;
use super::{CANNOT_ASK, FOUND, error, note};

/// Requests resources from an xDS server and prints them
///
/// Ends when each requested name is known to exist or not; without names, after --quiet-period without another response. Exit code: 0,
/// 1 if a requested name does not exist, 2 if that is not known.
#[derive(Debug, Args)]
pub struct Get {
    #[command(flatten)]
    asking: QueryArgs,
    /// Longest wait for the requested names
    #[arg(long, value_parser = humantime::parse_duration, default_value = "15s")]
    timeout: Duration,
    /// Without names: silence after a response that ends the set
    #[arg(long, value_parser = humantime::parse_duration, default_value = "500ms")]
    quiet_period: Duration,
}

impl Get {
    /// Prints the resources once and returns the exit code.
    pub async fn run(self) -> ExitCode {
        let Checked { server, question, transcoder } = match self.asking.check() {
            Ok(checked) => checked,
            Err(errors) => {
                errors.iter().for_each(|fault| error(&fault.to_string()));
                return ExitCode::from(CANNOT_ASK);
            }
        };
        let printer = Printer { transcoder, output: self.asking.output, secrets: self.asking.show_secrets };
        let mut client = Client::start(server, QueryState::new(question));
        let patience = Patience { timeout: self.timeout, quiet_period: self.quiet_period };
        let failure = listen(&mut client, patience).await.err();
        let query = client.query();
        let absent = |status: &NameStatus| matches!(status, NameStatus::Absent);
        let trouble = query.statuses().values().any(|status| *status == NameStatus::Trouble);
        let output = self.asking.output;
        let secret =
            query.received().iter().find(|(_, received)| output == Output::Wire && printer.has_secrets(received));
        if let Some((name, _)) = secret.filter(|_| !printer.secrets) {
            error(&format!("{} contains secrets; --show-secrets writes it in this format", plain(name)));
            return ExitCode::from(CANNOT_ASK);
        }
        for (name, status) in query.statuses() {
            match status {
                NameStatus::Absent => error(&format!("{} does not exist", plain(name.as_str()))),
                NameStatus::Trouble => {
                    error(&format!("{} cannot be had: the server reports an error", plain(name.as_str())))
                }
                _ => {}
            }
        }
        // Prints what was received, even after an error.
        let shown = match failure.is_some() && query.received().is_empty() {
            true => Ok(()),
            false => show(query, &printer, &mut io::stdout().lock()),
        };
        if let Some(failure) = &failure {
            error(&failure.to_string());
        } else if query.received().is_empty() && query.is_open_ended() {
            note(&format!("the server has no {} for this node", query.question().kind.name()));
        }
        match shown {
            Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS, // the reader has closed the pipe
            Err(fault) => {
                error(&format!("cannot write: {fault}"));
                ExitCode::from(CANNOT_ASK)
            }
            Ok(()) if failure.is_some() || trouble => ExitCode::from(CANNOT_ASK),
            Ok(()) if query.statuses().values().any(absent) => ExitCode::from(FOUND),
            Ok(()) => ExitCode::SUCCESS,
        }
    }
}

fn show(query: &QueryState, printer: &Printer, out: &mut impl Write) -> io::Result<()> {
    match printer.output {
        Output::Yaml | Output::Text => {
            for (number, (name, received)) in query.received().iter().enumerate() {
                if number > 0 && printer.output == Output::Yaml {
                    writeln!(out, "---")?;
                }
                write!(out, "{}", printer.text(name, received))?;
            }
        }
        Output::Json => {
            let all: Vec<_> =
                query.received().iter().map(|(name, received)| printer.document(name, received)).collect();
            serde_json::to_writer_pretty(&mut *out, &all)?;
            writeln!(out)?;
        }
        Output::Names => {
            for name in query.received().keys() {
                writeln!(out, "{}", plain(name))?;
            }
        }
        Output::Wire => out.write_all(&wire(query))?,
    }
    out.flush()
}

/// Encodes the resources in wrappers, which keep versions, aliases and TTLs.
fn wire(query: &QueryState) -> Vec<u8> {
    let resources = query.received().iter().map(|(name, received)| {
        let wrapper = Resource {
            name: name.clone(),
            version: received.version.clone(),
            aliases: received.aliases.clone(),
            ttl: received.ttl.and_then(|ttl| ttl.try_into().ok()),
            metadata: received.metadata.clone(),
            resource: Some(received.resource.clone()),
            ..Resource::default()
        };
        Any { type_url: format!("type.googleapis.com/{WRAPPER_TYPE}"), value: wrapper.encode_to_vec().into() }
    });
    let type_url = query.question().type_url.clone();
    DiscoveryResponse { type_url, resources: resources.collect(), ..Default::default() }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use weir_core::proto::Response;
    use weir_core::proto::discovery::DeltaDiscoveryResponse;
    use weir_core::protocol::session::Variant;
    use weir_core::xds::TypeTable;

    use super::*;
    use crate::cli::query_state::Question;
    use crate::transcode::Transcoder;

    const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    fn cluster(name: &str) -> Resource {
        let value = [&[0x0a_u8, 1][..], name.as_bytes()].concat().into(); // the name is one byte long
        Resource {
            name: name.into(),
            version: "7".into(),
            aliases: vec!["x".into()],
            ttl: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
            resource: Some(Any { type_url: CDS.into(), value }),
            ..Resource::default()
        }
    }

    fn shown(output: Output, resources: Vec<Resource>) -> Vec<u8> {
        let kind = TypeTable::new().resolve(CDS);
        let question = Question { kind, type_url: CDS.into(), names: Vec::new(), node: bytes::Bytes::new() };
        let mut query = QueryState::new(question);
        query.open(Variant::Delta);
        query.apply(Response::Delta(DeltaDiscoveryResponse { resources, ..DeltaDiscoveryResponse::default() }));
        let printer = Printer { transcoder: Transcoder::envoy(), output, secrets: false };
        let mut out = Vec::new();
        show(&query, &printer, &mut out).unwrap();
        out
    }

    #[test]
    fn several_resources_are_documents_of_one_stream_or_one_list() {
        let text = |output| String::from_utf8(shown(output, vec![cluster("b"), cluster("a")])).unwrap();
        let yaml = text(Output::Yaml);
        let documents: Vec<_> =
            yaml.split("---\n").map(|document| document.lines().next().unwrap_or_default()).collect();
        assert_eq!(documents, ["name: a", "name: b"]);
        assert!(!text(Output::Text).contains("---") && text(Output::Text).matches("# ").count() == 2);
        let list: serde_json::Value = serde_json::from_str(&text(Output::Json)).unwrap();
        assert_eq!((list.as_array().unwrap().len(), &list[1]["name"]), (2, &"b".into()));
        assert_eq!(text(Output::Names), "a\nb\n");
        assert_eq!((shown(Output::Yaml, vec![]), shown(Output::Json, vec![])), (Vec::new(), b"[]\n".to_vec()));
    }

    #[test]
    fn a_file_that_is_made_of_a_query_has_all_that_travels_beside_its_resources() {
        let response = DiscoveryResponse::decode(&*shown(Output::Wire, vec![cluster("a")])).unwrap();
        assert_eq!((response.type_url.as_str(), response.resources.len()), (CDS, 1));
        assert_eq!(Resource::decode(response.resources[0].value.clone()).unwrap(), cluster("a"));
    }
}
