//! `http`.

use landfall_api::{Http, HttpResult, KeepBody, SecretText};

use crate::convert::{ConvertError, Within as _, codec::*, word::*};
use crate::v1::{self, http::Keep};

wire! {
    Http = v1::Http {
        method: word, keep: keep, url: text, headers: headers, body: secret_body, expect_status: statuses,
        access: unless_default, secret,
    }
    HttpResult = v1::HttpResult, checked by length { status: status, body, cut }
}

codec! {
    keep: Option<Keep> => KeepBody,
        |_, wire| match wire {
            None => Ok(KeepBody::Nothing),
            Some(Keep::KeepText(true)) => Ok(KeepBody::Text),
            Some(Keep::KeepText(false)) => Err(ConvertError::missing("keep_text")),
            Some(Keep::KeepAt(pointer)) => text::from("keep_at", pointer).map(KeepBody::At),
        },
        |keep| match keep {
            KeepBody::Nothing => None,
            KeepBody::Text => Some(Keep::KeepText(true)),
            KeepBody::At(pointer) => Some(Keep::KeepAt(pointer)),
        };

    headers: Vec<v1::HttpHeader> => Vec<(String, SecretText)>,
        |field, wire| {
            let header = |wire: v1::HttpHeader| Ok((text::from("name", wire.name)?, SecretText::new(wire.value)));
            wire.into_iter().map(header).collect::<Result<_, _>>().within(field)
        },
        |all| all.into_iter().map(|(name, value)| v1::HttpHeader { name, value: secret::to(value) }).collect();

    /// An empty body is one.
    secret_body: Option<String> => Option<SecretText>,
        |_, wire| Ok(wire.map(SecretText::new)), |body| body.map(SecretText::into_exposed);

    /// An answer's status.
    status: u32 => u16,
        |field, wire| {
            let known = u16::try_from(wire).ok().filter(|status| (100..1000).contains(status));
            known.ok_or_else(|| ConvertError::new(field, "it is not a status of HTTP"))
        },
        |status| status.into();
    statuses: Vec<u32> => Vec<u16>,
        |field, wire| wire.into_iter().map(|one| status::from(field, one)).collect(),
        |all| all.into_iter().map(status::to).collect();
}

fn length(wire: &v1::HttpResult) -> Result<(), ConvertError> {
    let fits = wire.body.len() <= HttpResult::MAX_BODY;
    fits.then_some(()).ok_or_else(|| ConvertError::new("body", "it is longer than what is kept of a body"))
}

#[cfg(test)]
mod tests {
    use landfall_api::{HttpMethod, ImageAccess};

    use super::*;
    use crate::convert::testing::{refused, survives};

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
            survives::<v1::Http, _>(call(keep));
        }
        survives::<v1::HttpResult, _>(HttpResult { status: 201, body: "x".into(), cut: true });
    }

    #[test]
    fn a_call_without_url_method_or_name_is_refused() {
        refused::<v1::Http, _>(
            call(KeepBody::Nothing),
            &[
                ("url", |w| w.url.clear()),
                ("method", |w| w.method = "BREW".into()),
                ("headers.name", |w| w.headers[0].name.clear()),
                ("expect_status", |w| w.expect_status = vec![70_000]),
                ("keep_text", |w| w.keep = Some(Keep::KeepText(false))),
                ("keep_at", |w| w.keep = Some(Keep::KeepAt(String::new()))),
            ],
        );
        refused::<v1::HttpResult, _>(
            HttpResult { status: 200, body: String::new(), cut: false },
            &[("body", |w| w.body = "x".repeat(HttpResult::MAX_BODY + 1)), ("status", |w| w.status = 0)],
        );
    }
}
