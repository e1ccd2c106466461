//! `wait`.

use landfall_api::{Awaited, ImageAccess, Wait, WaitResult};

use super::{
    super::{
        ConvertError, Within as _,
        scalar::{duration, duration_to_wire, text},
    },
    http::status,
};
use crate::v1::{self, wait::End};

impl TryFrom<v1::Wait> for Wait {
    type Error = ConvertError;

    fn try_from(wire: v1::Wait) -> Result<Self, ConvertError> {
        let answer = match wire.end.ok_or_else(|| ConvertError::missing("end"))? {
            End::Time(time) => return Ok(Self::For(duration("time", Some(time))?)),
            End::Url(wire) => wire.try_into().within("url")?,
            End::Tcp(wire) => wire.try_into().within("tcp")?,
        };
        Ok(Self::Until { answer, interval: duration("interval", wire.interval)? })
    }
}

impl From<Wait> for v1::Wait {
    fn from(spec: Wait) -> Self {
        let (end, interval) = match spec {
            Wait::For(time) => (End::Time(duration_to_wire(time)), None),
            Wait::Until { answer: Awaited::Url { url, expect_status, access }, interval } => {
                let access = Some(access).filter(|access| *access != ImageAccess::default());
                let expect_status = expect_status.into_iter().map(u32::from).collect();
                (End::Url(v1::WaitUrl { url, expect_status, access: access.map(Into::into) }), Some(interval))
            }
            Wait::Until { answer: Awaited::Tcp { host, port }, interval } => {
                (End::Tcp(v1::WaitTcp { host, port: port.into() }), Some(interval))
            }
        };
        Self { end: Some(end), interval: interval.map(duration_to_wire) }
    }
}

impl TryFrom<v1::WaitUrl> for Awaited {
    type Error = ConvertError;

    fn try_from(wire: v1::WaitUrl) -> Result<Self, ConvertError> {
        Ok(Self::Url {
            url: text("url", wire.url)?,
            expect_status: wire.expect_status.into_iter().map(status).collect::<Result<_, _>>()?,
            access: wire.access.map(ImageAccess::try_from).transpose().within("access")?.unwrap_or_default(),
        })
    }
}

impl TryFrom<v1::WaitTcp> for Awaited {
    type Error = ConvertError;

    fn try_from(wire: v1::WaitTcp) -> Result<Self, ConvertError> {
        let port = u16::try_from(wire.port).ok().filter(|port| *port != 0);
        Ok(Self::Tcp { host: text("host", wire.host)?, port: port.ok_or_else(|| ConvertError::missing("port"))? })
    }
}

impl From<v1::WaitResult> for WaitResult {
    fn from(wire: v1::WaitResult) -> Self {
        Self { waited_ms: wire.waited_ms }
    }
}

impl From<WaitResult> for v1::WaitResult {
    fn from(result: WaitResult) -> Self {
        Self { waited_ms: result.waited_ms }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
            assert_eq!(Wait::try_from(v1::Wait::from(spec.clone())), Ok(spec));
        }
        let result = WaitResult { waited_ms: 1500 };
        assert_eq!(WaitResult::from(v1::WaitResult::from(result.clone())), result);
    }

    #[test]
    fn a_wait_for_nothing_is_refused() {
        let whole = v1::Wait::from(until(Awaited::Tcp { host: "h".into(), port: 22 }));
        let tcp = |host: &str, port| Some(End::Tcp(v1::WaitTcp { host: host.into(), port }));
        for (wire, field) in [
            (v1::Wait { end: None, ..whole.clone() }, "end"),
            (v1::Wait { interval: None, ..whole.clone() }, "interval"),
            (v1::Wait { end: Some(End::Time(prost_types::Duration::default())), ..whole.clone() }, "time"),
            (v1::Wait { end: Some(End::Url(v1::WaitUrl::default())), ..whole.clone() }, "url.url"),
            (v1::Wait { end: tcp("", 1), ..whole.clone() }, "tcp.host"),
            (v1::Wait { end: tcp("h", 65536), ..whole.clone() }, "tcp.port"),
        ] {
            assert_eq!(Wait::try_from(wire).unwrap_err().field(), field);
        }
    }
}
