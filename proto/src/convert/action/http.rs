//! `http`.

use landfall_api::{Http, HttpMethod, HttpResult, ImageAccess, KeepBody, SecretText};

use super::super::{ConvertError, Within as _, scalar::text};
use crate::v1::{self, http::Keep};

impl TryFrom<v1::Http> for Http {
    type Error = ConvertError;

    fn try_from(wire: v1::Http) -> Result<Self, ConvertError> {
        let method = HttpMethod::named(&wire.method).ok_or_else(|| ConvertError::missing("method"))?;
        let header = |header: v1::HttpHeader| Ok((text("name", header.name)?, SecretText::new(header.value)));
        let keep = match wire.keep {
            None => KeepBody::Nothing,
            Some(Keep::KeepText(true)) => KeepBody::Text,
            Some(Keep::KeepText(false)) => return Err(ConvertError::missing("keep_text")),
            Some(Keep::KeepAt(pointer)) => KeepBody::At(text("keep_at", pointer)?),
        };
        Ok(Self {
            url: text("url", wire.url)?,
            method,
            headers: wire.headers.into_iter().map(header).collect::<Result<_, _>>().within("headers")?,
            body: wire.body.map(SecretText::new),
            expect_status: wire.expect_status.into_iter().map(status).collect::<Result<_, _>>()?,
            keep,
            access: wire.access.map(ImageAccess::try_from).transpose().within("access")?.unwrap_or_default(),
            secret: wire.secret,
        })
    }
}

impl From<Http> for v1::Http {
    fn from(spec: Http) -> Self {
        let header = |(name, value): (String, SecretText)| v1::HttpHeader { name, value: value.into_exposed() };
        Self {
            url: spec.url,
            method: spec.method.as_str().to_owned(),
            headers: spec.headers.into_iter().map(header).collect(),
            body: spec.body.map(SecretText::into_exposed),
            expect_status: spec.expect_status.into_iter().map(u32::from).collect(),
            keep: match spec.keep {
                KeepBody::Nothing => None,
                KeepBody::Text => Some(Keep::KeepText(true)),
                KeepBody::At(pointer) => Some(Keep::KeepAt(pointer)),
            },
            access: Some(spec.access).filter(|access| *access != ImageAccess::default()).map(v1::ImageAccess::from),
            secret: spec.secret,
        }
    }
}

/// An answer's status.
pub(super) fn status(wire: u32) -> Result<u16, ConvertError> {
    let known = u16::try_from(wire).ok().filter(|status| (100..1000).contains(status));
    known.ok_or_else(|| ConvertError::new("status", "it is not a status of HTTP"))
}

impl TryFrom<v1::HttpResult> for HttpResult {
    type Error = ConvertError;

    fn try_from(wire: v1::HttpResult) -> Result<Self, ConvertError> {
        if wire.body.len() > Self::MAX_BODY {
            return Err(ConvertError::new("body", "it is longer than what is kept of a body"));
        }
        Ok(Self { status: status(wire.status)?, body: wire.body, cut: wire.cut })
    }
}

impl From<HttpResult> for v1::HttpResult {
    fn from(result: HttpResult) -> Self {
        Self { status: result.status.into(), body: result.body, cut: result.cut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(keep: KeepBody) -> Http {
        Http {
            url: "https://h/a".into(),
            method: HttpMethod::Put,
            headers: vec![("Authorization".into(), SecretText::new("Bearer geheim"))],
            body: Some(SecretText::new("geheim")),
            expect_status: vec![201],
            keep,
            access: ImageAccess { proxy: Some("http://p:1".into()), ..ImageAccess::default() },
            secret: true,
        }
    }

    #[test]
    fn a_call_survives_the_wire_and_shows_no_secret() {
        for keep in [KeepBody::Nothing, KeepBody::Text, KeepBody::At("/state".into())] {
            let spec = call(keep);
            assert!(!format!("{spec:?}").contains("geheim"), "{spec:?}");
            assert_eq!(Http::try_from(v1::Http::from(spec.clone())), Ok(spec));
        }
        let result = HttpResult { status: 201, body: "x".into(), cut: true };
        assert_eq!(HttpResult::try_from(v1::HttpResult::from(result.clone())), Ok(result));
    }

    #[test]
    fn a_call_without_url_method_or_name_is_refused() {
        let whole = v1::Http::from(call(KeepBody::Nothing));
        let unnamed = v1::HttpHeader { name: String::new(), value: "x".into() };
        for (wire, field) in [
            (v1::Http { url: String::new(), ..whole.clone() }, "url"),
            (v1::Http { method: "BREW".into(), ..whole.clone() }, "method"),
            (v1::Http { headers: vec![unnamed], ..whole.clone() }, "headers.name"),
            (v1::Http { expect_status: vec![70_000], ..whole.clone() }, "status"),
            (v1::Http { keep: Some(Keep::KeepText(false)), ..whole.clone() }, "keep_text"),
            (v1::Http { keep: Some(Keep::KeepAt(String::new())), ..whole }, "keep_at"),
        ] {
            assert_eq!(Http::try_from(wire).unwrap_err().field(), field);
        }
        let long = v1::HttpResult { status: 200, body: "x".repeat(HttpResult::MAX_BODY + 1), cut: false };
        assert_eq!(HttpResult::try_from(long).unwrap_err().field(), "body");
        assert_eq!(HttpResult::try_from(v1::HttpResult::default()).unwrap_err().field(), "status");
    }
}
