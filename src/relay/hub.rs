//! Names of an authority that all views share. Each view subscribes at a hub within the process, and the hub subscribes upstream once for all views
//! (NAME-20).
//!
//! The hub is a view like those of the clients, with one key for all. To a view it is one more server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use weir_core::proto::discovery::{
    DeltaDiscoveryResponse, Resource as Wrapper, ResourceError, ResourceName, Status, resource::CacheControl,
};
use weir_core::proto::{Any, Response};
use weir_core::protocol::session::{Reply, Step, Variant};
use weir_core::protocol::upstream::ResponseMessage;
use weir_core::protocol::view::{Completeness, NamedError};
use weir_core::xds::{Authority, Name, Peer, Resource, Type};

use super::admission::AdmissionError;
use super::key_headers::KeyHeaders;
use super::link::{Connector, Link, LinkEvent, LinkReport};
use super::session_handle::{SessionGuard, SessionHandle};
use super::views::{ClientInfo, Views, open_session};

/// Opens streams to the hub.
#[derive(Clone)]
pub(crate) struct HubConnector {
    hub: Arc<Views>,
}

impl HubConnector {
    pub(crate) fn new(hub: Arc<Views>) -> Self {
        Self { hub }
    }

    async fn keep_open(self, link: Link) {
        while let Some(end) = self.open_once(&link).await {
            let (reason, answered) = match end {
                Ended::Refused(rejected) => (rejected.to_string(), false),
                Ended::ByHub(reason) => (reason, true),
            };
            let event = LinkEvent::Ended { reason, answered, is_lost: false, status: None };
            if report(&link, event).await.is_none() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns `None` once no receiver is left.
    async fn open_once(&self, link: &Link) -> Option<Ended> {
        let (sender, mut requests) = mpsc::channel(16);
        report(link, LinkEvent::Opened { variant: Variant::Delta, requests: sender, life: Arc::default() }).await?;
        let first = requests.recv().await?;
        let peer = Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 0).into()));
        let client = ClientInfo {
            variant: Variant::Delta,
            only: None,
            is_stream: true,
            peer,
            headers: KeyHeaders::default(), // all views share what the hub has
            quota: Arc::default(),
        };
        let session = match open_session(&self.hub, &first, client).await {
            Ok(handle) => SessionGuard::new(handle),
            Err(rejected) => return Some(Ended::Refused(rejected)),
        };
        session.handle_request(first).await;
        let mut sent = SentState::default();
        loop {
            tokio::select! {
                request = requests.recv() => drop(session.handle_request(request?).await),
                said = next(&session, &mut sent) => match said {
                    HubEvent::Response(response) => {
                        let read = link.read(ResponseMessage::Decoded(Response::Delta(response))).await;
                        match read {
                            Ok(event) => report(link, event).await?,
                            Err(error) => return Some(Ended::ByHub(error.to_string())),
                        }
                    }
                    HubEvent::Event(event) => report(link, event).await?,
                    HubEvent::End(end) => return Some(Ended::ByHub(end)),
                },
            }
        }
    }
}

impl Connector for HubConnector {
    fn start(&self, link: Link) -> JoinHandle<()> {
        tokio::spawn(self.clone().keep_open(link))
    }

    fn describe(&self) -> String {
        "what all views share".into()
    }

    fn is_hub(&self) -> bool {
        true
    }

    fn variant(&self) -> Option<Variant> {
        Some(Variant::Delta)
    }
}

enum Ended {
    Refused(AdmissionError),
    ByHub(String),
}

enum HubEvent {
    Response(DeltaDiscoveryResponse),
    Event(LinkEvent),
    End(String),
}

/// What a stream of the hub has reported beside replies.
#[derive(Default)]
struct SentState {
    /// The completeness last reported for each collection.
    completeness_by_name: BTreeMap<(Type, Name), Completeness>,
    /// Authorities without a reachable server.
    outages: Arc<BTreeSet<Authority>>,
}

/// Waits for the next event that the hub has to send.
async fn next(handle: &SessionHandle, sent: &mut SentState) -> HubEvent {
    let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    std::future::poll_fn(|cx| {
        loop {
            match handle.poll(cx.waker()) {
                Step::Reply(reply) => {
                    return Poll::Ready(HubEvent::Response(response(*reply)));
                }
                Step::End(end) => return Poll::Ready(HubEvent::End(end.to_string())),
                Step::Idle(until) => {
                    let newest = handle.newest();
                    // The completeness of each collection whose members were all sent to the client.
                    let completeness_by_name = handle.look(|session| session.report().sent_completeness(&newest));
                    sent.completeness_by_name.retain(|glob, _| completeness_by_name.contains_key(glob));
                    let news = completeness_by_name
                        .into_iter()
                        .find(|(glob, completeness)| sent.completeness_by_name.get(glob) != Some(completeness));
                    if let Some(((kind, glob), completeness)) = news {
                        let type_url = kind.name().to_owned();
                        sent.completeness_by_name.insert((kind, glob.clone()), completeness);
                        return Poll::Ready(HubEvent::Event(LinkEvent::Progress { type_url, glob, completeness }));
                    }
                    let outages = handle.newest().down.clone();
                    if outages != sent.outages {
                        sent.outages = outages.clone();
                        let authorities = (*outages).clone();
                        return Poll::Ready(HubEvent::Event(LinkEvent::Outage { authorities }));
                    }
                    let Some(until) = until else { return Poll::Pending };
                    sleep.as_mut().reset(handle.clock().instant(until));
                    std::task::ready!(sleep.as_mut().poll(cx));
                }
            }
        }
    })
    .await
}

/// Converts a reply to the response that a server would send. Bodies are shared, not copied.
fn response(reply: Reply) -> DeltaDiscoveryResponse {
    let ttl = |at: usize| reply.ttls.iter().find(|(of, _)| *of == at).map(|(_, ttl)| *ttl);
    let sent = reply.resources.iter().enumerate().map(|(at, resource)| wrapper(resource, &reply.spelling, ttl(at)));
    let alive = reply.heartbeats.iter().map(|beat| Wrapper {
        name: beat.name.to_string(),
        version: beat.version.to_string(),
        ttl: duration(Some(beat.ttl)),
        ..Wrapper::default()
    });
    let unresolved = reply.unresolved.iter().map(|alias| Wrapper {
        name: alias.to_string(),
        aliases: vec![alias.to_string()],
        ..Wrapper::default()
    });
    let error = |(name, error): &(Name, Arc<NamedError>)| ResourceError {
        resource_name: Some(ResourceName { name: name.to_string(), dynamic_parameter_constraints: None }),
        error_detail: Some(Status { code: error.code, message: error.message.clone() }),
    };
    DeltaDiscoveryResponse {
        resources: sent.chain(alive).chain(unresolved).collect(),
        type_url: reply.spelling.to_string(),
        nonce: reply.nonce.to_string(),
        removed_resources: reply.removed.iter().map(ToString::to_string).collect(),
        removed_resource_names: reply.constrained.iter().map(|(name, with)| constrained(name, with)).collect(),
        resource_errors: reply.errors.iter().map(error).collect(),
        ..DeltaDiscoveryResponse::default()
    }
}

fn wrapper(resource: &Resource, url: &str, ttl: Option<Duration>) -> Wrapper {
    let named = |constraints: &Bytes| constrained(&resource.name, constraints);
    let resource_name = resource.constraints().map(named);
    Wrapper {
        name: if resource_name.is_some() { String::new() } else { resource.name.to_string() },
        resource_name,
        version: resource.full.to_string(),
        resource: Some(Any {
            type_url: resource.body.type_url().unwrap_or(url).to_owned(),
            value: resource.body.bytes().clone(),
        }),
        aliases: resource.aliases().iter().map(ToString::to_string).collect(),
        ttl: duration(ttl),
        cache_control: resource.do_not_cache().then_some(CacheControl { do_not_cache: true }),
        metadata: resource.metadata().cloned(),
    }
}

fn constrained(name: &Name, constraints: &Bytes) -> ResourceName {
    ResourceName { name: name.to_string(), dynamic_parameter_constraints: Some(constraints.clone()) }
}

fn duration(ttl: Option<Duration>) -> Option<prost_types::Duration> {
    ttl.and_then(|ttl| ttl.try_into().ok())
}

/// Returns `None` if no receiver is left.
async fn report(link: &Link, event: LinkEvent) -> Option<()> {
    link.reports.send(LinkReport { id: link.id, event }).await.ok()
}

/// The pause before a stream that the hub ended is opened again.
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use weir_core::protocol::session::{Heartbeat, ReplyLag};
    use weir_core::protocol::view::Revision;
    use weir_core::xds::{BodyStore, SetVersion, TypeTable};

    use super::*;

    const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    const SECOND: Duration = Duration::from_secs(1);

    fn resource(kind: &Type, name: &str, change: impl FnOnce(&mut Wrapper)) -> Arc<Resource> {
        let any = Any { type_url: CDS.into(), value: Bytes::from_static(b"\x1a\x04body") };
        let mut wrapper = Wrapper { name: name.into(), resource: Some(any), ..Wrapper::default() };
        change(&mut wrapper);
        Arc::new(Resource::from_wrapper(0, wrapper, kind, &BodyStore::default()).unwrap())
    }

    /// Otherwise facts that a server states about a shared resource would be lost between the hub and the views.
    #[test]
    fn name_20_a_resource_is_for_the_views_what_it_is_for_the_hub() {
        let kind = TypeTable::new().resolve(CDS);
        let constraints = Bytes::from_static(b"\x0a\x00");
        let resources = [
            resource(&kind, "plain", |_| {}),
            resource(&kind, "aliases", |wrapper| wrapper.aliases = vec!["x".into(), "y".into()]),
            resource(&kind, "metadata", |wrapper| wrapper.metadata = Some(Bytes::from_static(b"\x0a\x00"))),
            resource(&kind, "constraints", |wrapper| {
                wrapper.resource_name = Some(constrained(&"constraints".into(), &constraints));
            }),
            resource(&kind, "once", |wrapper| wrapper.cache_control = Some(CacheControl { do_not_cache: true })),
        ];
        let error = Arc::new(NamedError { code: 5, message: "not here".into() });
        let reply = Reply {
            kind: kind.clone(),
            spelling: CDS.into(),
            nonce: 9,
            version: SetVersion::default(),
            resources: resources.iter().cloned().collect(),
            spellings: Vec::new(),
            ttls: vec![(1, 60 * SECOND)],
            heartbeats: vec![Heartbeat { name: "beats".into(), version: resources[0].full, ttl: 7 * SECOND }],
            removed: vec!["removed".into()],
            constrained: vec![("was constrained".into(), constraints.clone())],
            unresolved: vec!["alias".into()],
            errors: vec![("wrong".into(), error)],
            set_mark: None,
            revision: Revision::ZERO,
            wrappers: true,
            lag: ReplyLag::default(),
            begins_wait: None,
            progress: None,
            awaits_endpoints: false,
        };
        let response = response(reply);
        assert_eq!((response.type_url.as_str(), response.nonce.as_str()), (CDS, "9"));
        let (sent, others) = response.resources.split_at(resources.len());
        for (at, (resource, wrapper)) in resources.iter().zip(sent).enumerate() {
            assert_eq!(wrapper.version, resource.full.to_string());
            let read = Resource::from_wrapper(0, wrapper.clone(), &kind, &BodyStore::default()).unwrap();
            let ttl = (at == 1).then_some(60 * SECOND);
            assert!(read.is_same(&resource.with_ttl(ttl)), "{read:?}");
            assert_eq!(read.body.bytes(), resource.body.bytes());
        }
        let [beat, unresolved] = others else { panic!("{others:?}") };
        assert_eq!((beat.name.as_str(), &beat.version), ("beats", &resources[0].full.to_string()));
        assert_eq!((beat.ttl, beat.resource.is_none()), (duration(Some(7 * SECOND)), true));
        assert_eq!((unresolved.name.as_str(), &unresolved.aliases[..]), ("alias", &["alias".to_owned()][..]));
        assert_eq!(response.removed_resources, ["removed"]);
        assert_eq!(response.removed_resource_names, [constrained(&"was constrained".into(), &constraints)]);
        let [error] = &response.resource_errors[..] else { panic!("{response:?}") };
        assert_eq!(error.resource_name.as_ref().unwrap().name, "wrong");
        let detail = error.error_detail.as_ref().unwrap();
        assert_eq!((detail.code, detail.message.as_str()), (5, "not here"));
    }
}
