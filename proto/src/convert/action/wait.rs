//! `wait`.

use landfall_api::{Awaited, Wait, WaitResult};

use super::http::statuses;
use crate::convert::{ConvertError, Within as _, codec::*};
use crate::v1::{self, wait::End};

wire! { WaitResult = v1::WaitResult { waited_ms } }

impl TryFrom<v1::Wait> for Wait {
    type Error = ConvertError;

    fn try_from(wire: v1::Wait) -> Result<Self, ConvertError> {
        let answer = match wire.end.ok_or_else(|| ConvertError::missing("end"))? {
            End::Time(time) => return Ok(Self::For(span::from("time", Some(time))?)),
            End::Url(wire) => wire.try_into().within("url")?,
            End::Tcp(wire) => wire.try_into().within("tcp")?,
        };
        Ok(Self::Until { answer, interval: span::from("interval", wire.interval)? })
    }
}

impl From<Wait> for v1::Wait {
    fn from(spec: Wait) -> Self {
        match spec {
            Wait::For(time) => Self { end: span::to(time).map(End::Time), interval: None },
            Wait::Until { answer, interval } => Self { end: Some(answer.into()), interval: span::to(interval) },
        }
    }
}

impl From<Awaited> for End {
    fn from(answer: Awaited) -> Self {
        match answer {
            Awaited::Url { url, expect_status, access } => Self::Url(v1::WaitUrl {
                url,
                expect_status: statuses::to(expect_status),
                access: unless_default::to(access),
            }),
            Awaited::Tcp { host, port } => Self::Tcp(v1::WaitTcp { host, port: port.into() }),
        }
    }
}

impl TryFrom<v1::WaitUrl> for Awaited {
    type Error = ConvertError;

    fn try_from(wire: v1::WaitUrl) -> Result<Self, ConvertError> {
        Ok(Self::Url {
            url: text::from("url", wire.url)?,
            expect_status: statuses::from("expect_status", wire.expect_status)?,
            access: unless_default::from("access", wire.access)?,
        })
    }
}

impl TryFrom<v1::WaitTcp> for Awaited {
    type Error = ConvertError;

    fn try_from(wire: v1::WaitTcp) -> Result<Self, ConvertError> {
        let port = u16::try_from(wire.port).ok().filter(|port| *port != 0);
        Ok(Self::Tcp { host: text::from("host", wire.host)?, port: port.ok_or_else(|| ConvertError::missing("port"))? })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_api::ImageAccess;

    use super::*;
    use crate::convert::testing::{refused, survives};

    fn until(answer: Awaited) -> Wait {
        Wait::Until { answer, interval: Duration::from_secs(5) }
    }

    #[test]
    fn every_wait_survives_the_wire() {
        let access = ImageAccess { proxy: Some("http://p:1".into()), ..ImageAccess::default() };
        for spec in [
            Wait::For(Duration::from_millis(1500)),
            until(Awaited::Url { url: "https://h/".into(), expect_status: vec![404], access }),
            until(Awaited::Tcp { host: "fd00::1".into(), port: 22 }),
        ] {
            survives::<v1::Wait, _>(spec);
        }
    }

    #[test]
    fn a_wait_for_nothing_is_refused() {
        fn tcp(host: &str, port: u32) -> Option<End> {
            Some(End::Tcp(v1::WaitTcp { host: host.into(), port }))
        }
        refused::<v1::Wait, _>(
            until(Awaited::Tcp { host: "h".into(), port: 22 }),
            &[
                ("end", |w| w.end = None),
                ("interval", |w| w.interval = None),
                ("time", |w| w.end = Some(End::Time(prost_types::Duration::default()))),
                ("url.url", |w| w.end = Some(End::Url(v1::WaitUrl::default()))),
                ("tcp.host", |w| w.end = tcp("", 1)),
                ("tcp.port", |w| w.end = tcp("h", 65536)),
            ],
        );
    }
}
