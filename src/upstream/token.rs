//! Tokens sent with a stream: JSON Web Tokens from files, read again each time (gRFC A97).

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use tonic::Code;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

use crate::known_files::KnownFiles;

/// Why there is no valid token. Without one, no stream can be opened (BOOT-7).
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error("cannot read the token in {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("there is no JSON web token in {}", .0.display())]
    NoToken(PathBuf),
    #[error("the token in {} does not say when it expires", .0.display())]
    NoExpiry(PathBuf),
    #[error("the token in {} has expired, or does so within {} s", .0.display(), MARGIN.as_secs())]
    Expired(PathBuf),
}

impl TokenError {
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::NoExpiry(_) => Code::Unauthenticated,
            _ => Code::Unavailable,
        }
    }
}

/// Returns the metadata of a stream: one header for each token. If the disk hangs for longer than the limit, the last token is used as long as it
/// is valid.
pub(super) async fn metadata(
    files: &[PathBuf],
    known: &KnownFiles,
    limit: Duration,
) -> Result<MetadataMap, TokenError> {
    let mut metadata = MetadataMap::new();
    for path in files {
        let failed = |source| TokenError::Read { path: path.clone(), source };
        let content = known.read(path, limit).await.map_err(failed)?;
        let text =
            std::str::from_utf8(&content).map_err(|error| failed(io::Error::new(ErrorKind::InvalidData, error)))?;
        metadata.append("authorization", bearer(path, text.trim(), SystemTime::now())?);
    }
    Ok(metadata)
}

fn bearer(path: &Path, token: &str, now: SystemTime) -> Result<MetadataValue<Ascii>, TokenError> {
    let no_token = || TokenError::NoToken(path.into());
    let claims = claims(token).ok_or_else(no_token)?;
    let expires = claims.exp.ok_or_else(|| TokenError::NoExpiry(path.into()))?;
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if (now + MARGIN).as_secs_f64() >= expires {
        return Err(TokenError::Expired(path.into()));
    }
    let mut value: MetadataValue<Ascii> = format!("{BEARER}{token}").parse().map_err(|_| no_token())?;
    value.set_sensitive(true);
    Ok(value)
}

#[derive(Deserialize)]
struct Claims {
    /// Seconds since 1970, perhaps with a fraction.
    exp: Option<f64>,
}

/// Parses the claims. The server checks the signature.
fn claims(token: &str) -> Option<Claims> {
    let [_, claims, _] = token.split('.').collect::<Vec<_>>().try_into().ok()?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&claims).ok()
}

/// The prefix of a token in its header.
pub(super) const BEARER: &str = "Bearer ";
/// A token that expires within this time could expire on the way.
const MARGIN: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_access::tests::Pipe;

    const NOW: u64 = 1_800_000_000;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    fn read(token: &str) -> Result<MetadataValue<Ascii>, TokenError> {
        bearer(Path::new("t"), token, SystemTime::UNIX_EPOCH + Duration::from_secs(NOW))
    }

    #[test]
    fn boot_7_a_token_counts_as_expired_thirty_seconds_before_it_is() {
        let valid = token(&format!(r#"{{"exp": {}}}"#, NOW + 31));
        let header = read(&valid).unwrap();
        assert_eq!(header.to_str().unwrap(), format!("Bearer {valid}"));
        assert!(header.is_sensitive());
        for exp in [NOW + 30, NOW, NOW - 1] {
            let error = read(&token(&format!(r#"{{"exp": {exp}}}"#))).unwrap_err();
            assert!(matches!(error, TokenError::Expired(_)) && error.code() == Code::Unavailable, "{exp}");
        }
    }

    #[test]
    fn boot_7_what_is_no_token_and_what_never_expires_differ() {
        let error = read(&token("{}")).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            (Code::Unauthenticated, "the token in t does not say when it expires")
        );
        for text in ["", "opaque", "a.b", "a.!.c", "a.e30.c.d", &token("[]"), &token(r#"{"exp": "soon"}"#)] {
            assert!(matches!(read(text), Err(TokenError::NoToken(_))), "{text}");
        }
    }

    #[tokio::test]
    async fn boot_6_each_token_has_a_header_of_its_own_and_one_that_cannot_be_used_stops_all_of_them() {
        let folder = std::env::temp_dir().join(format!("weir-tokens-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let soon = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + Duration::from_secs(3600);
        let write = |name: &str, expires: u64| {
            let token = token(&format!(r#"{{"exp": {expires}, "of": "{name}"}}"#));
            std::fs::write(folder.join(name), format!("{token}\n")).unwrap();
            (folder.join(name), format!("Bearer {token}"))
        };
        let (one, two, late) = (write("one", soon.as_secs()), write("two", soon.as_secs()), write("late", 1));
        let (known, limit) = (KnownFiles::default(), Duration::from_secs(60));
        let sent = metadata(&[one.0.clone(), two.0], &known, limit).await.unwrap();
        let sent: Vec<_> = sent.get_all("authorization").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(sent, [one.1, two.1]);
        assert!(matches!(metadata(&[one.0.clone(), late.0], &known, limit).await, Err(TokenError::Expired(_))));
        let missing = metadata(&[folder.join("none"), one.0], &known, limit).await.unwrap_err();
        assert!(matches!(missing, TokenError::Read { .. }) && missing.code() == Code::Unavailable);
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// A stream with an expired token would be refused, with a less helpful error.
    #[tokio::test]
    async fn while_the_file_hangs_the_last_token_is_used_for_as_long_as_it_is_valid() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        for is_valid in [true, false] {
            let path = std::env::temp_dir().join(format!("weir-hung-token-{is_valid}-{}", std::process::id()));
            let valid = token(&format!(r#"{{"exp": {}}}"#, now + 3600));
            std::fs::write(&path, &valid).unwrap();
            let (known, limit) = (KnownFiles::default(), Duration::from_secs(60));
            if !is_valid {
                std::fs::write(&path, token(r#"{"exp": 1}"#)).unwrap();
            }
            let first = metadata(std::slice::from_ref(&path), &known, limit).await;
            assert_eq!(first.is_ok(), is_valid);
            let pipe = Pipe::at(path.clone());
            match metadata(std::slice::from_ref(&path), &known, Duration::ZERO).await {
                Ok(sent) => {
                    let header = sent.get("authorization").unwrap().to_str().unwrap().to_owned();
                    assert_eq!((is_valid, header), (true, format!("Bearer {valid}")));
                }
                Err(error) => assert!(!is_valid && matches!(error, TokenError::Expired(_)), "{error}"),
            }
            drop(pipe);
        }
    }
}
