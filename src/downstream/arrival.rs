//! From an accepted socket to a client that is known: whose address it is, TLS, what the client has proved, and who judges it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::xds::{Owner, Peer, PeerProof};

use super::accept::Accepted;
use super::client_address::{AddressError, AddressSource};
use super::client_socket::ClientSocket;
use super::client_stream::ClientStream;
use super::connection::{self, ConnectionTimeouts};
use super::connections::{ConnectionPlace, Connections, ends};
use super::drain::Drain;
use super::handshake::secure;
use super::handshakes::{HandshakeLimits, Handshakes};
use super::judged_clients::{Judge, JudgedClients};
use super::service::Service;
use super::slot::Status;
use super::socket::Socket;
use crate::log_pace::LogPace;
use crate::memory::{GroupMembership, costs};
use crate::relay::deliveries::ThreadCounter;
use crate::relay::{Newest, ViewQuota};
use crate::tls::{ClientChain, ListenerTls};

/// Finds out who new clients are. A reload of the configuration does not replace it.
pub(super) struct Arrivals {
    service: Arc<Newest<Service>>,
    connections: Arc<Connections>,
    handshakes: Handshakes,
    judged: Arc<JudgedClients>,
    drain: Drain,
    proxy_faults: LogPace,
    /// Calls that wrote bytes to sockets.
    writes: Arc<ThreadCounter>,
}

impl Arrivals {
    pub(super) fn new(
        service: Arc<Newest<Service>>,
        connections: Arc<Connections>,
        handshakes: HandshakeLimits,
        drain: Drain,
    ) -> Self {
        let (limits, writes) = {
            let service = service.get();
            let counters = service.views().counters();
            (counters.limits.clone(), counters.client_writes.clone())
        };
        Self {
            service,
            connections,
            handshakes: Handshakes::new(handshakes, limits),
            judged: Arc::default(),
            drain,
            proxy_faults: LogPace::once_a_minute(),
            writes,
        }
    }

    pub(super) fn set_handshakes(&self, limits: HandshakeLimits) {
        self.handshakes.set_limits(limits);
    }

    /// Returns the clients that were judged.
    pub(super) fn judged_clients(&self) -> &Arc<JudgedClients> {
        &self.judged
    }

    /// Finds out who the client is. Returns `None` if the connection must be closed.
    pub(super) async fn arrive(
        &self,
        accepted: Accepted,
        tls: Option<Arc<ListenerTls>>,
    ) -> Option<(ClientStream, Arc<Peer>, Arc<ConnectionPlace>)> {
        let Accepted { mut socket, address, spare, options } = accepted;
        socket.prepare();
        let (source, patience) = (AddressSource::of(&options, address), ConnectionTimeouts::default());
        let Some(place) = self.connections.admit(source.known(), spare) else {
            log_crowded(address);
            return None;
        };
        let mut peer = Peer { connection: place.number(), address, proven: socket.process() };
        let mut of_first_bytes = patience;
        if tls.is_some() {
            of_first_bytes.first_word = patience.first_word.min(self.handshakes.timeout());
        }
        if !connection::has_spoken(&socket, &peer, &mut self.drain.clone(), of_first_bytes, &place).await {
            return None;
        }
        peer.address = self.find_address(source, &mut socket, &place, patience.first_word).await?;
        let socket = ClientSocket::new(socket, self.writes.clone());
        let (stream, chain) = match &tls {
            None => (ClientStream::Plain(socket), None),
            Some(tls) => {
                let handshake = self.service.get().views().memory().handshake();
                let (stream, chain) = self.secure(socket, tls, &mut peer, &place).await?;
                drop(handshake); // from here on the connection has a charge of its own
                (stream, Some(chain))
            }
        };
        if !self.count_identity(&peer, &place) {
            return None;
        }
        place.charge(costs::CONNECTION + if tls.is_some() { costs::TLS } else { 0 });
        let peer = Arc::new(peer);
        if let Some(judge) = self.judge(&peer, chain) {
            place.set_judged(self.judged.enter(judge));
        }
        place.set_age_limit(self.service.get().age_limit());
        Some((stream, peer, place))
    }

    /// Finds out whose connection it is. Returns `None` if it must be closed.
    async fn find_address(
        &self,
        source: AddressSource,
        socket: &mut Socket,
        place: &ConnectionPlace,
        limit: Duration,
    ) -> Option<Option<SocketAddr>> {
        let mut drain = self.drain.clone();
        let found = tokio::select! {
            biased;
            found = source.find(socket, limit) => found,
            end = ends(place, &mut drain) => Err(AddressError::Ended(end)),
        };
        let address = found.map_err(|error| self.log_unknown(source, &error)).ok()?;
        if source.known() != address && place.count_address(address).is_err() {
            log_crowded(address);
            return None;
        }
        Some(address)
    }

    /// Reports that it is not known whose connection it is.
    fn log_unknown(&self, source: AddressSource, error: &AddressError) {
        let peer = source.peer().map(tracing::field::display);
        let Some(fault) = error.fault() else { return tracing::debug!(peer, %error, "connection closed") };
        self.service.get().views().counters().proxy_faults.found(fault);
        if let Some(unlogged) = self.proxy_faults.line(Instant::now()) {
            tracing::warn!(peer, %error, unlogged, "connection closed: PROXY header expected from balancers alone");
        }
    }

    /// Does the TLS handshake, and notes in `peer` what the client's certificate proves.
    async fn secure(
        &self,
        socket: ClientSocket,
        tls: &Arc<ListenerTls>,
        peer: &mut Peer,
        place: &ConnectionPlace,
    ) -> Option<(ClientStream, ClientChain)> {
        let mut drain = self.drain.clone();
        let secured = tokio::select! {
            secured = secure(socket, peer, tls, &self.handshakes) => secured?,
            end = ends(place, &mut drain) => {
                tracing::debug!(%peer, ?end, "connection closed within the TLS handshake");
                return None;
            }
        };
        peer.proven = secured.names.map(PeerProof::Certificate);
        Some((ClientStream::Tls(Box::new(secured.stream)), secured.chain))
    }

    /// Counts the connection, and the views that it makes, for the identity of its client. Returns false if it must be closed.
    fn count_identity(&self, peer: &Peer, place: &ConnectionPlace) -> bool {
        let identity = peer.identity();
        place.set_quota(Arc::new(self.quota(peer, identity.as_deref())));
        let counted = place.count_identity(identity.as_deref());
        if counted.is_err() {
            tracing::debug!(%peer, "too many connections of one identity; closing it");
        }
        counted.is_ok()
    }

    /// Returns the quota of the client's views, with the memory account of the connection.
    fn quota(&self, peer: &Peer, identity: Option<&str>) -> ViewQuota {
        let service = self.service.get();
        let views = service.views();
        let Owner { tenant, share, is_relay } = views.permissions().current().owner_of(peer);
        let address = peer.ip().filter(|_| identity.is_none());
        let belonging = GroupMembership { tenant, identity: identity.map(Arc::from), address, share };
        views.quota(identity).charged_to(views.memory().connect(belonging), is_relay)
    }

    /// Returns a function that judges whether the client may stay, if a change of TLS or of the rules of permissions can end it.
    fn judge(&self, peer: &Arc<Peer>, chain: Option<ClientChain>) -> Option<Judge> {
        let (permissions, peer) = (self.service.get().views().permissions().clone(), peer.clone());
        let (judged, has_rules) = (permissions.judged_now(), !permissions.current().rules().is_empty());
        if chain.is_none() && !has_rules {
            return None;
        }
        Some(Box::new(move || {
            if !permissions.still_treat(&peer, &judged) {
                return Err(Status::unavailable("the rule of permissions for this client has changed; reconnect"));
            }
            let Some(chain) = &chain else { return Ok(None) };
            let standing = chain.judge().map_err(|rejection| Status::unauthenticated(rejection.to_string()))?;
            let proven = standing.names.map(PeerProof::Certificate);
            if proven != peer.proven && !permissions.current().treat_as(&peer, &Peer { proven, ..Peer::clone(&peer) }) {
                return Err(Status::unavailable("what counts of this client's certificate has changed; reconnect"));
            }
            Ok(standing.until)
        }))
    }
}

fn log_crowded(address: Option<SocketAddr>) {
    let peer = address.map(tracing::field::display);
    tracing::debug!(peer, "too many connections from one address; closing it");
}
