//! The clients: who they are, how they come and go, and how they react.

use weir_core::xds::HeaderName;

use super::*;

impl World {
    /// Adds a client. `node` decides which content the client gets; the sharing key decides which view it joins.
    pub fn add_client(&mut self, profile: Profile, variant: Variant, node: u8, wrappers: bool) -> usize {
        let key = self.unit_of(node);
        let client = client_of(profile, variant, wrappers);
        let (id, session) = self.new_session(client.clone(), node);
        let mut pretend = Pretend::new(id, key, node, profile, client, session);
        pretend.judge.short_memory = self.options.view.tombstone_bytes < 1000;
        if profile == Profile::Envoy {
            pretend.wish(Kind::Cluster).wildcard = true;
            pretend.open(Kind::Cluster, Return::Fresh);
        }
        self.clients.push(pretend);
        self.clients.len() - 1
    }

    pub(super) fn unit_of(&mut self, node: u8) -> u8 {
        self.next_id += 1;
        let encoded = self.apart.encoded_node(node, self.next_id);
        let key = self.rule.key_showing(&encoded, &self.apart.headers(node)).unwrap();
        u8::try_from(self.keys.iter().position(|known| *known == key).unwrap()).unwrap()
    }

    pub(super) fn new_session(&mut self, client: Client, node: u8) -> (SessionId, Session) {
        self.next_id += 1;
        let peer = Arc::new(weir_core::xds::Peer::at("127.0.0.1:1".parse().unwrap()));
        let identity = Identity::of(
            self.rule.clone(),
            weir_core::xds::Permissions::default(),
            peer,
            self.apart.headers(node),
            &self.apart.encoded_node(node, self.next_id),
        )
        .unwrap();
        let session = Session::new(client, table(), self.options.session.clone().into()).with_identity(identity);
        (SessionId(self.next_id), session)
    }

    /// Lets the client send another node on its stream, or the same node in another encoding.
    pub fn change_node(&mut self, at: usize, node: u8) -> Result<(), String> {
        self.next_id += 1;
        if self.apart == Apart::ByHeader && node != self.clients[at].judge.key {
            return self.reconnect(at, node, Return::TrueVersions); // the headers of a stream cannot change
        }
        let encoded = self.apart.encoded_node(node, self.next_id).into();
        let client = &mut self.clients[at];
        let Some(kind) = client.judge.kinds().next().filter(|_| !client.ended) else { return Ok(()) };
        let wish = client.wish(kind).clone();
        let request = match client.variant {
            Variant::Sotw => {
                let wildcard = (wish.wildcard && wish.named_once).then(|| "*".to_owned());
                let resource_names = wish.names.into_iter().chain(wildcard).collect();
                let type_url = kind.url().into();
                Request::Sotw(DiscoveryRequest { node: Some(encoded), resource_names, type_url, ..Default::default() })
            }
            Variant::Delta => {
                let type_url = kind.url().into();
                Request::Delta(DeltaDiscoveryRequest { node: Some(encoded), type_url, ..Default::default() })
            }
        };
        client.requests.push_back(request);
        while self.session_reads(at)? {}
        if node != self.clients[at].judge.key {
            self.coverage.note(Event::NodeChangedInMidStream);
            let state = self.units[usize::from(self.clients[at].key)].view.snapshot().clone();
            let leases = &mut self.units[usize::from(self.clients[at].key)].leases;
            let step = self.clients[at].session.poll(&state, leases, self.now);
            ensure(matches!(step, Step::End(CloseReason::KeyChanged)), || "served on under its old key".into())?;
            self.reconnect(at, node, Return::TrueVersions)?;
        }
        Ok(())
    }

    /// Reconnects the client on a new stream, perhaps as another node.
    pub fn reconnect(&mut self, at: usize, node: u8, how: Return) -> Result<(), String> {
        self.coverage.note_if(node != self.clients[at].judge.key, Event::NodeChanged);
        self.clients[at].session.close();
        self.carry_interest(at)?;
        let (profile, variant) = (self.clients[at].profile, self.clients[at].variant);
        let key = self.unit_of(node);
        let client = client_of(profile, variant, self.clients[at].judge.wrappers);
        let (id, session) = self.new_session(client.clone(), node);
        let pretend = &mut self.clients[at];
        // What was in flight is lost with the stream.
        match how {
            Return::Fresh => pretend.lose_everything(),
            Return::OldVersions => pretend.go_back(),
            Return::TrueVersions | Return::ForeignVersions => {}
        }
        let wishes = pretend.wishes.clone();
        pretend
            .held
            .retain(|(kind, name), _| wishes.get(kind).is_some_and(|wish| wish.wildcard || wish.names.contains(name)));
        pretend.restart(id, key, node, client, session);
        let kinds: Vec<_> =
            wishes.iter().filter(|(_, wish)| wish.wildcard || !wish.names.is_empty()).map(|(kind, _)| *kind).collect();
        kinds.into_iter().for_each(|kind| pretend.open(kind, how));
        match how {
            Return::Fresh => {}
            Return::TrueVersions => self.coverage.note(Event::ReconnectTrueVersions),
            Return::OldVersions => self.coverage.note(Event::ReconnectOldVersions),
            Return::ForeignVersions => self.coverage.note(Event::ReconnectForeignVersions),
        }
        Ok(())
    }

    pub fn process(&mut self, at: usize, reaction: Reaction) -> bool {
        let silent = self.clients[at].silent;
        let reaction = if silent { Reaction::Silence } else { reaction };
        self.clients[at].process(reaction).is_some()
    }
}

/// What tells the control plane which content a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    ByMetadata,
    ByHeader,
}

impl Apart {
    /// Returns the node of a client. The id and the order of maps differ from client to client.
    pub(super) fn encoded_node(self, node: u8, id: u64) -> Vec<u8> {
        let text = |text: String| Value { kind: Some(value::Kind::StringValue(text)) };
        let field = |key: &str, value| Node {
            metadata: Some(Struct { fields: [(key.to_owned(), value)].into() }),
            ..Node::default()
        };
        let named = Node { id: format!("client-{id}"), cluster: "fleet".into(), ..Node::default() };
        let tenant = (self == Self::ByMetadata).then(|| field("tenant", text(node.to_string())));
        let mut parts = [tenant.unwrap_or_default(), field("stage", text("live".into()))];
        parts.rotate_left((id % 2) as usize);
        // Concatenated messages are merged by the reader.
        [named, parts[0].clone(), parts[1].clone()].iter().flat_map(Message::encode_to_vec).collect()
    }

    /// Returns the hashes of the client's headers, which are all that the view learns about them.
    pub(super) fn headers(self, node: u8) -> HeaderHashes {
        let header = |name: &str, hash: String| (HeaderName::parse(name).unwrap(), hash);
        match self {
            Self::ByMetadata => HeaderHashes::default(),
            Self::ByHeader => HeaderHashes::of([header("x-token", format!("hash-{node}"))]),
        }
    }
}

pub(super) fn tenant_of(node: &[u8]) -> Option<String> {
    let metadata = Node::decode(node).unwrap().metadata?;
    match metadata.fields.get("tenant")?.kind.clone()? {
        value::Kind::StringValue(text) => Some(text),
        _ => None,
    }
}

fn client_of(profile: Profile, variant: Variant, wrappers: bool) -> Client {
    Client { grpc: profile == Profile::Grpc, wrappers, ..Client::plain(variant) }
}
