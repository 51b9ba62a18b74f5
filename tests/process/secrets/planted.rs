//! The secrets: which are planted, in which resources, and how tests search for them.

use super::*;

pub(super) const PASSWORD: &str = "uri-Pass/word@77";
pub(super) const ENVIRONMENT: &str = "environment-Value-91";
pub(super) const OF_CLUSTER: &str = "cluster-Key-66";
pub(super) const OF_STRUCT: &str = "struct-Hush-55";
pub(super) const GENERIC: &str = "open sesame forty-seven";
pub(super) const TICKET: &str = "ticket-Key-22 of thirty-two bytes";
pub(super) const OF_CLIENT: &str = "client-Auth-33";
pub(super) const OF_COLLECTOR: &str = "collector-Auth-88";
pub(super) const OF_SERVER: &str = "server-Header-55";
pub(super) const OF_VARIABLE: &str = "variable-Header-66";
pub(super) const OF_STATE: [u8; 32] = *b"state-Key-44-state-Key-44-state-";

/// What must not be shown, each with a description.
pub(super) struct Secrets(pub(super) Vec<(&'static str, Vec<u8>)>);

impl Secrets {
    /// Adds the encodings in which secrets often appear.
    pub(super) fn of(all: &[(&'static str, &[u8])]) -> Self {
        let forms = |&(what, secret): &(&'static str, &[u8])| {
            let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            // The last letters of base64 depend on the bytes that follow.
            let base64 = STANDARD.encode(&secret[..secret.len() / 3 * 3]);
            [secret.to_vec(), hex.into_bytes(), base64.into_bytes()].map(|form| (what, form))
        };
        Self(all.iter().flat_map(forms).collect())
    }

    /// Checks that a surface contains the expected text, and no secret.
    pub(super) fn are_not_in(&self, surface: &str, shown: &[u8], expected: &str) {
        assert!(has(shown, expected.as_bytes()), "{surface} lacks {expected:?}: {}", beginning(shown));
        if let Some(what) = self.found_in(shown) {
            panic!("{surface} shows a secret ({what}): {}", beginning(shown));
        }
    }

    pub(super) fn found_in(&self, shown: &[u8]) -> Option<&'static str> {
        self.0.iter().find(|(_, secret)| has(shown, secret)).map(|(what, _)| *what)
    }
}

pub(super) fn has(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() && !text.is_empty() || !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

pub(super) fn beginning(shown: &[u8]) -> String {
    String::from_utf8_lossy(&shown[..shown.len().min(20_000)]).into_owned()
}

/// Returns a line of a key that no other key has.
pub(super) fn line_of(key: &str) -> &str {
    key.lines().nth(1).unwrap()
}

pub(super) fn token() -> String {
    let until = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + Duration::from_secs(3600);
    let claims = format!(r#"{{"exp": {}, "sub": "the relay of this test"}}"#, until.as_secs());
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{}", part(r#"{"alg": "none"}"#), part(&claims), part("signature of the token"))
}

pub(super) fn made(kind: &str, json: Value) -> Any {
    let (_, name) = kind.split_once('/').unwrap();
    let value = Transcoder::envoy().from_json(name, &json, Strictness::Strict).unwrap();
    Any { type_url: kind.into(), value }
}

/// Returns the control plane's resources by type: secrets, and other resources that contain secrets.
pub(super) fn resources(inline_key: &str) -> BTreeMap<&'static str, Vec<(&'static str, Any)>> {
    let cluster = json!({ "name": "shop", "type": "EDS", "transportSocket": { "name": "tls", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "commonTlsContext": { "tlsCertificates": [{
            "certificateChain": { "inlineString": "for-all" },
            "privateKey": { "inlineBytes": STANDARD.encode(OF_CLUSTER) } }] } } } });
    let filter = json!({ "@type": "type.googleapis.com/xds.type.v3.TypedStruct",
        "typeUrl": "type.googleapis.com/acme.Login", "value": { "client_secret": OF_STRUCT } });
    let listener =
        json!({ "name": "door", "filterChains": [{ "filters": [{ "name": "login", "typedConfig": filter }] }] });
    let secrets = [
        (
            "cert-of-web",
            json!({ "name": "cert-of-web", "tlsCertificate": {
            "certificateChain": { "inlineString": "for-all" }, "privateKey": { "inlineString": inline_key } } }),
        ),
        ("words", json!({ "name": "words", "genericSecret": { "secret": { "inlineString": GENERIC } } })),
        (
            "tickets",
            json!({ "name": "tickets", "sessionTicketKeys": { "keys": [{ "inlineBytes": STANDARD.encode(TICKET) }] } }),
        ),
    ];
    BTreeMap::from([
        (CDS, vec![("shop", made(CDS, cluster))]),
        (LDS, vec![("door", made(LDS, listener))]),
        (SDS, secrets.map(|(name, json)| (name, made(SDS, json))).to_vec()),
    ])
}
