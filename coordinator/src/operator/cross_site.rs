//! Requests that another site's page makes a browser send: a browser adds an operator's certificate to requests of any
//! page, so requests that change something must come from this coordinator's own pages, or from no page.
//!
//! Programs send neither header and are not held up; a bearer token is never sent by a browser on its own.

use axum::http::{HeaderMap, HeaderName, Uri, header};
use landfall_api::{ErrorCode, Problem};

/// Where the page stands that causes a request, as browsers say it (Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what a browser sends for another site's page.
///
/// # Errors
/// [`Problem`] with code `Forbidden`.
pub(super) fn not_from_another_site(headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let refused = |said: &str| {
        let message = format!("a page of another site caused this request ({said})");
        Err(Problem::new(ErrorCode::Forbidden, message)
            .hint("use the landfall command, or a program that sends neither Origin nor Sec-Fetch-Site"))
    };
    for site in headers.get_all(FETCH_SITE) {
        if site != "same-origin" && site != "none" {
            return refused("Sec-Fetch-Site");
        }
    }
    // HTTP/2 has the host in the address, HTTP/1 in a header.
    let host = uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = host.or_else(|| headers.get(header::HOST).map(|host| host.as_bytes())).unwrap_or_default();
    for origin in headers.get_all(header::ORIGIN) {
        let own = origin.as_bytes().strip_prefix(b"https://").is_some_and(|from| from.eq_ignore_ascii_case(host));
        if !own || host.is_empty() {
            return refused("Origin");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_our_own_pages_may_change_something_in_a_browser() {
        let at = Uri::from_static("/apis/x");
        let whole = Uri::from_static("https://Landfall.lan:7443/apis/x");
        for (uri, name, value, may) in [
            (&at, "accept", "*/*", true),
            (&at, "sec-fetch-site", "same-origin", true),
            (&at, "sec-fetch-site", "none", true),
            (&at, "sec-fetch-site", "cross-site", false),
            (&at, "sec-fetch-site", "same-site", false),
            (&at, "origin", "https://landfall.lan:7443", true),
            (&whole, "origin", "https://landfall.lan:7443", true),
            (&at, "origin", "https://landfall.lan:8443", false),
            (&at, "origin", "http://landfall.lan:7443", false),
            (&whole, "origin", "https://evil.example", false),
            (&at, "origin", "null", false),
            (&at, "origin", "https://", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("landfall.lan:7443"));
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            assert_eq!(not_from_another_site(&headers, uri).is_ok(), may, "{name}: {value}");
        }
    }
}
