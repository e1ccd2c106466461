//! `wait`: for a time, or until a server answers. It touches nothing of the machine.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::Resolver;
use landfall_api::{Awaited, ErrorCode, HttpMethod, Problem, Progress, Wait, WaitResult, message::ActionResult};
use landfall_disk::{Call, CallError};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::{final_failure, http::is_success, installed_root::may_act};
use crate::runner::{Failure, Job};
use crate::thread::on_thread;

/// For one try. A server that takes longer is asked again, in case the one before it has gone meanwhile.
const TRY: Duration = Duration::from_secs(10);
/// How soon a wait notices that it was stopped.
const TICK: Duration = Duration::from_millis(100);

/// Waits.
pub(super) async fn perform(job: Job, spec: Wait) -> Result<ActionResult, Failure> {
    let begun = Instant::now();
    tracing::info!("{spec}");
    job.report.progress(job.action, Progress { stage: spec.to_string(), ..Progress::default() });
    match &spec {
        Wait::For(time) => pause(&job, *time).await?,
        Wait::Until { answer, interval } => until(&job, &spec, answer, *interval).await?,
    }
    let waited_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(ActionResult::Wait(WaitResult { waited_ms }))
}

/// Tries until it is answered. The newest reason is for the error at the timeout; each new one is logged.
async fn until(job: &Job, spec: &Wait, answer: &Awaited, interval: Duration) -> Result<(), Failure> {
    let place = match answer {
        Awaited::Url { url, .. } => url.clone(),
        Awaited::Tcp { host, port } => format!("{host}:{port}"),
    };
    let mut known = String::new();
    loop {
        may_act(job)?;
        let tried = match answer {
            Awaited::Url { .. } => by_url(job, answer.clone()).await?,
            Awaited::Tcp { host, port } => until_stopped(job, by_tcp(host, *port)).await?,
        };
        let Err(reason) = tried else {
            tracing::info!("{place} answers");
            return Ok(());
        };
        if reason != known {
            tracing::info!("{spec}: {reason}");
            job.doing.begin(&format!("wait: {reason}"), &place);
            known = reason;
        }
        pause(job, interval).await?;
    }
}

/// One request; the error inside says why the wait goes on.
async fn by_url(job: &Job, answer: Awaited) -> Result<Result<(), String>, Failure> {
    let Awaited::Url { url, expect_status, access } = answer else { return Ok(Ok(())) };
    let (name, cancel, at) = (format!("action-{}", job.action.action_index), job.cancel.clone(), url.clone());
    let ask = move || {
        let expected = &expect_status;
        let (method, within) = (HttpMethod::Get, Some(TRY));
        let call = Call { method, url: &url, headers: &[], body: None, access: &access, expected, most: 0, within };
        call.make(&cancel).map(|answer| (is_success(expected, answer.status), answer.status))
    };
    let cannot = |e: std::io::Error| {
        let problem = Problem::new(ErrorCode::Internal, format!("cannot start a thread for the action: {e}"));
        Failure { problem, retryable: true }
    };
    match on_thread(&name, ask).await.map_err(cannot)? {
        Ok((true, _)) => Ok(Ok(())),
        Ok((false, status)) => Ok(Err(format!("it answers {status}"))),
        Err(error @ CallError::Unusable { .. }) => {
            let hint = "correct the url or its access in the template";
            Err(final_failure(Problem::new(ErrorCode::InvalidTemplate, error.to_string()).hint(hint).at(at)))
        }
        // The next look at the job finds why it was stopped.
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// One connection, which is closed at once.
async fn by_tcp(host: &str, port: u16) -> Result<(), String> {
    let connect = async {
        let mut reason = format!("{host} has no address");
        for address in addresses(host).await? {
            match TcpStream::connect(SocketAddr::new(address, port)).await {
                Ok(_) => return Ok(()),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(reason)
    };
    timeout(TRY, connect).await.unwrap_or_else(|_| Err(format!("there is no answer after {} s", TRY.as_secs())))
}

/// By the name servers that the network stated last; never getaddrinfo.
async fn addresses(host: &str) -> Result<Vec<IpAddr>, String> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let unknown = |error: &dyn std::fmt::Display| format!("cannot resolve {host}: {error}");
    let resolver = Resolver::builder_tokio().map_err(|e| unknown(&e))?.build().map_err(|e| unknown(&e))?;
    Ok(resolver.lookup_ip(host).await.map_err(|e| unknown(&e))?.iter().collect())
}

/// Waits for so long, and no longer than the job may go on.
async fn pause(job: &Job, time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    loop {
        may_act(job)?;
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Ok(());
        }
        sleep(rest.min(TICK)).await;
    }
}

/// The future's value, unless the job is stopped before.
async fn until_stopped<T>(job: &Job, future: impl Future<Output = T>) -> Result<T, Failure> {
    let mut future = std::pin::pin!(future);
    loop {
        may_act(job)?;
        if let Ok(value) = timeout(TICK, &mut future).await {
            return Ok(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use landfall_api::{ImageAccess, message::ActionKind};

    use super::*;
    use crate::actions::testing;

    /// Ten times what the slowest of these takes.
    const LIMIT: Duration = Duration::from_secs(60);

    fn until(answer: Awaited) -> Wait {
        Wait::Until { answer, interval: Duration::from_millis(20) }
    }

    fn tcp(port: u16) -> Wait {
        until(Awaited::Tcp { host: "127.0.0.1".into(), port })
    }

    async fn waited(job: Job, spec: Wait) -> Result<ActionResult, Failure> {
        timeout(LIMIT, perform(job, spec)).await.expect("the wait ends")
    }

    #[tokio::test]
    async fn a_port_is_waited_for_until_it_is_open() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let spec = tcp(address.port());
        let (job, heard) = testing::heard(ActionKind::Wait(spec.clone()));
        let doing = job.doing.clone();
        let waiting = tokio::spawn(waited(job, spec));
        let why = || doing.name(Problem::new(ErrorCode::Timeout, "over")).message;
        while !why().contains("refused") {
            tokio::task::yield_now().await;
        }
        assert!(why().contains(&format!("on {address}")), "{}", why());
        let _open = TcpListener::bind(address).unwrap();
        assert!(matches!(waiting.await.unwrap(), Ok(ActionResult::Wait(_))));
        assert_eq!(*heard.0.lock().unwrap(), [format!("wait until {address} accepts a connection")]);
    }

    #[tokio::test]
    async fn a_url_is_waited_for_until_its_status_fits() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/ready", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            ["503 Busy", "200 OK", "204 Empty"].map(|status| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = [0; 1024];
                let count = stream.read(&mut head).unwrap();
                write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
                String::from_utf8_lossy(&head[..count]).starts_with("GET /ready")
            })
        });
        let spec = until(Awaited::Url { url, expect_status: vec![204], access: ImageAccess::default() });
        waited(testing::job(ActionKind::Wait(spec.clone())), spec).await.unwrap();
        assert_eq!(server.join().unwrap(), [true; 3]);
    }

    #[tokio::test]
    async fn a_cancel_ends_every_wait_at_once() {
        // It accepts connections, and answers nothing.
        let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let hour = Duration::from_secs(3600);
        let closed = Awaited::Tcp { host: "127.0.0.1".into(), port: 1 };
        for spec in [
            Wait::For(hour),
            Wait::Until { answer: closed, interval: hour },
            until(Awaited::Url { url: url.clone(), expect_status: vec![], access: ImageAccess::default() }),
        ] {
            let (job, heard) = testing::heard(ActionKind::Wait(spec.clone()));
            let cancel = job.cancel.clone();
            let waiting = tokio::spawn(waited(job, spec.clone()));
            while heard.0.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
            assert_eq!(waiting.await.unwrap().unwrap_err().problem.code, ErrorCode::Cancelled, "{spec}");
        }
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_lease() {
        let spec = Wait::For(Duration::from_secs(3600));
        let job = testing::without_lease(testing::job(ActionKind::Wait(spec.clone())));
        assert_eq!(waited(job, spec).await.unwrap_err().problem.code, ErrorCode::LeaseExpired);
    }

    #[tokio::test]
    async fn what_cannot_be_asked_ends_the_wait_for_good() {
        let url = "https://127.0.0.1:1/".to_owned();
        let access = ImageAccess { proxy: Some("socks5://h".into()), ..ImageAccess::default() };
        let spec = until(Awaited::Url { url, expect_status: vec![], access });
        let failure = waited(testing::job(ActionKind::Wait(spec.clone())), spec).await.unwrap_err();
        assert_eq!((failure.problem.code, failure.retryable), (ErrorCode::InvalidTemplate, false));
    }
}
