use super::*;
use crate::proto::discovery::DiscoveryRequest;

const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

fn request(url: &str, names: &[&str]) -> Request {
    let resource_names = names.iter().map(ToString::to_string).collect();
    Request::Sotw(DiscoveryRequest { type_url: url.into(), resource_names, ..Default::default() })
}

/// What is requested during a poll cannot be answered by that poll: its silence proves nothing.
#[test]
fn a_request_waits_if_its_type_is_being_polled_and_its_names_are_others() {
    let (refresh_delay, request_timeout) = (Duration::from_secs(5), Duration::from_secs(1));
    let server = RestServer { at: AdsServer::undialed(), refresh_delay, request_timeout };
    let connector = RestConnector::new(server, Arc::new(Transcoder::envoy), Arc::default());
    let mut polls = Polls::new(PollSchedule { refresh: refresh_delay, failures: 3 });
    assert_eq!(connector.take(&mut polls, request(EDS, &["a"])), None, "it is polled for at once");
    assert_eq!(polls.due(Instant::now()).len(), 1);
    assert_eq!(connector.take(&mut polls, request(EDS, &["a"])), None, "which is being polled for");
    assert_eq!(connector.take(&mut polls, request(EDS, &["a", "b"])), Some(EDS.into()));
    assert_eq!(connector.take(&mut polls, request("type.googleapis.com/own.Type", &["a"])), None, "it has no path");
}
