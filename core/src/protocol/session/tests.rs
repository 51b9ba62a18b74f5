//! What a session reports to its view, to operators and to the scheduler, over several changes of one thing.

mod explained;
mod figures;
mod held;
mod refusals;
mod rests;
mod summed;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Resource as Wrapper, Status};
use crate::proto::{Any, Request};
use crate::protocol::moment::Moment;
use crate::protocol::view::{Class, Evidence, Leases, Retain, SessionId, Update, View, ViewOptions};
use crate::xds::{BodyStore, Name, Resource, Type, TypeTable};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const ME: SessionId = SessionId(1);

/// A view and one client.
struct World {
    view: View,
    session: Session,
    variant: Variant,
    leases: Leases,
    table: Arc<TypeTable>,
    store: BodyStore,
    now: Moment,
}

impl World {
    fn new(client: Client) -> Self {
        Self::with(client, ViewOptions::default())
    }

    fn with(client: Client, options: ViewOptions) -> Self {
        let options = Arc::new(ViewOptions { reference_hold: Duration::ZERO, ..options });
        let table = Arc::new(TypeTable::new());
        let variant = client.variant;
        let session_options = SessionOptions { nacked_routing_hold: Duration::ZERO, ..SessionOptions::default() };
        let session = Session::new(client, table.clone(), Arc::new(session_options));
        let session = session.with_authorities(Arc::new(["x".to_owned()].into()));
        let (view, leases) = (View::new(table.clone(), options.clone()), Leases::new(options));
        Self { view, session, variant, leases, table, store: BodyStore::default(), now: Moment::START }
    }

    fn plain(variant: Variant) -> Self {
        Self::new(Client::plain(variant))
    }

    fn kind(&self, url: &str) -> Type {
        self.table.resolve(url)
    }

    fn later(&mut self, milliseconds: u64) {
        self.now = self.now + Duration::from_millis(milliseconds);
    }

    /// Gives the session a request, and counts its interest in the view.
    fn request(&mut self, request: Request) -> Option<Ack> {
        let answer = self.session.on_request(request, self.now);
        for change in self.session.take_interest() {
            self.view.change_interest(ME, change, self.now);
        }
        for names in self.view.take_refused_names().into_values() {
            self.session.on_names_refused(&names);
        }
        self.session.on_interest_applied();
        self.publish();
        answer
    }

    /// Makes a request in the client's variant, which subscribes to the names `on` and unsubscribes from `off`. SotW has only the first list.
    fn subscribe(&mut self, url: &str, on: &[&str], off: &[&str]) {
        let request = self.made(url, on, off, "", None);
        self.request(request);
    }

    /// Answers a reply: an ACK, or a NACK with this reason. In SotW the answer repeats the names.
    fn answer(&mut self, url: &str, names: &[&str], nonce: u64, reason: Option<&str>) {
        let on = if self.variant == Variant::Sotw { names } else { &[] };
        let request = self.made(url, on, &[], &nonce.to_string(), reason);
        let quoted = names_quoted_by(&request, 100);
        if let Some(Ack::Nack { nonce, .. }) = self.request(request) {
            self.session.suspect(url, nonce, &quoted, &self.view.snapshot().clone());
        }
    }

    fn made(&self, url: &str, on: &[&str], off: &[&str], nonce: &str, reason: Option<&str>) -> Request {
        let texts = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let error_detail = reason.map(|reason| Status { code: 3, message: reason.into() });
        let (type_url, response_nonce) = (url.to_owned(), nonce.to_owned());
        match self.variant {
            Variant::Sotw => {
                let request = DiscoveryRequest { type_url, response_nonce, error_detail, ..Default::default() };
                Request::Sotw(DiscoveryRequest { resource_names: texts(on), ..request })
            }
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                resource_names_subscribe: texts(on),
                resource_names_unsubscribe: texts(off),
                type_url,
                response_nonce,
                error_detail,
                ..Default::default()
            }),
        }
    }

    fn resource(&self, url: &str, name: &str, content: &str) -> Arc<Resource> {
        self.of_wrapper(url, name, content, |_| {})
    }

    fn of_wrapper(&self, url: &str, name: &str, content: &str, change: impl FnOnce(&mut Wrapper)) -> Arc<Resource> {
        // The body starts with the name, without which a SotW client could not be sent the resource. A field that no type has follows.
        let mut value = vec![0x0a, u8::try_from(name.len()).unwrap()];
        value.extend(name.bytes().chain([0xc2, 0x3e, u8::try_from(content.len()).unwrap()]).chain(content.bytes()));
        let body = Any { type_url: url.into(), value: value.into() };
        let mut wrapper = Wrapper { name: name.into(), resource: Some(body), ..Wrapper::default() };
        change(&mut wrapper);
        Arc::new(Resource::from_wrapper(0, wrapper, &self.kind(url), &self.store).unwrap())
    }

    /// Lets the server send a resource, for `*` and for its name.
    fn set(&mut self, url: &str, name: &str, content: &str) {
        let resource = self.resource(url, name, content);
        self.put(url, resource);
    }

    fn put(&mut self, url: &str, resource: Arc<Resource>) {
        let updates = [Class::Wildcard, Class::Named].map(|class| {
            let (kind, key, resource) = (self.kind(url), resource.name.clone(), resource.clone());
            Update::Upsert { kind, class, key, resource }
        });
        self.apply(updates.into());
    }

    fn remove(&mut self, url: &str, name: &str) {
        let gone =
            |class| Update::Absent { kind: self.kind(url), class, key: name.into(), evidence: Evidence::Reported };
        let updates = [Class::Wildcard, Class::Named].map(gone).into();
        self.apply(updates);
    }

    /// Lets the server send the complete set, each resource with the content `1`.
    fn whole(&mut self, url: &str, names: &[&str]) {
        let resources = names.iter().map(|name| self.resource(url, name, "1")).collect();
        self.apply(vec![Update::FullSet { kind: self.kind(url), resources, retain: Retain::nothing() }]);
    }

    fn apply(&mut self, updates: Vec<Update>) {
        self.view.apply(updates, self.now);
        self.publish();
    }

    fn publish(&mut self) {
        for mark in self.view.publish().0.into_values().flatten() {
            self.session.on_name_changed(&mark);
        }
    }

    fn poll(&mut self) -> Option<Reply> {
        let newest = self.view.snapshot().clone();
        match self.session.poll(&newest, &mut self.leases, self.now) {
            Step::Reply(reply) => Some(*reply),
            Step::Idle(_) => None,
            Step::End(end) => panic!("{end}"),
        }
    }

    /// Takes every reply that is due. Returns the nonce of the last one, if there is any.
    fn take_replies(&mut self) -> Option<u64> {
        std::iter::from_fn(|| self.poll()).last().map(|reply| reply.nonce)
    }
}

fn names(of: &[Name]) -> Vec<&str> {
    of.iter().map(Name::as_str).collect()
}
