//! The page `/` for browsers: one file with its style and its script, which reads `/live` and the JSON pages.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::answer::response;

/// Whether the client prefers HTML. Browsers ask for it by name, while other programs accept anything.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|accept| accept.as_bytes().windows(HTML.len()).any(|part| part == HTML))
}

pub(super) fn page() -> Response {
    let mut response = response(StatusCode::OK, "text/html; charset=utf-8", Bytes::from_static(PAGE.as_bytes()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The browser runs only the script in the file, and loads only from this address: names of clients and resources may contain anything.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let [style, script] = ["style", "script"].map(|tag| hash_of(content(PAGE, tag)));
    let policy = format!(
        "default-src 'none'; style-src '{style}'; script-src '{script}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// Returns the content of the only element with this tag.
fn content<'a>(page: &'a str, tag: &str) -> &'a str {
    let begin = page.split_once(&format!("<{tag}>")).map_or("", |(_, rest)| rest);
    begin.split_once(&format!("</{tag}>")).map_or("", |(content, _)| content)
}

fn hash_of(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

const PAGE: &str = include_str!("page.html");
const HTML: &[u8] = b"text/html";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_the_page_and_others_the_index() {
        let accepts = |accept: &'static str| {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            is_wanted(&headers)
        };
        assert!(accepts("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(!accepts("*/*") && !accepts("application/json") && !is_wanted(&HeaderMap::new()));
    }

    #[test]
    fn the_page_is_one_file_that_needs_nothing_else() {
        for tag in ["style", "script"] {
            assert_eq!(PAGE.matches(&format!("<{tag}")).count(), 1, "the policy has the hash of one {tag}");
            assert!(!content(PAGE, tag).trim().is_empty(), "{tag}");
        }
        let lower = PAGE.to_lowercase();
        for foreign in
            ["http://", "https://", "src=", "@import", "innerhtml", "outerhtml", "insertadjacenthtml", "eval("]
        {
            let found = lower.lines().find(|line| line.contains(foreign) && !line.contains("www.w3.org/2000/svg"));
            assert_eq!(found, None, "{foreign}");
        }
        assert!(!lower.contains(" style=") && !lower.contains(" onclick="), "the policy forbids both");
    }

    #[test]
    fn the_policy_has_the_hashes_of_the_file() {
        assert_eq!(hash_of(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        let policy = page().headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        assert!(policy.contains(&hash_of(content(PAGE, "script"))) && policy.contains("default-src 'none'"));
    }
}
