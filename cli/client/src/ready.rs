//! Which of several coordinators is asked: for each new connection, the first of the list that is ready.

use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Error, Response};
use tokio::time::{Instant, timeout_at};

/// For each to say whether it is ready: it tries a write, which may take 5 s. The time to connect includes this, and is longer.
const ANSWER_LIMIT: Duration = Duration::from_secs(6);
/// An earlier one of the list may say so this much later: who asks twice asks the same one, and finds what it has done there.
const HEAD_START: Duration = Duration::from_millis(300);

/// The address of each, in the order of the list, with a client of that address alone, and the URL to ask.
pub(crate) struct Ready {
    pub(crate) places: Vec<(SocketAddr, reqwest::Client)>,
    pub(crate) url: String,
}

impl Resolve for Ready {
    /// Puts the one that is ready first, or one that answers if none is. One that hangs takes connections and answers nothing; one that
    /// has lost its store says so.
    fn resolve(&self, _name: Name) -> Resolving {
        let mut addresses: Vec<_> = self.places.iter().map(|(address, _)| *address).collect();
        let asked = self.places.iter().enumerate().map(|(n, (_, client))| {
            let asked = client.get(&self.url).timeout(ANSWER_LIMIT).send();
            async move { (n, asked.await) }
        });
        let asked: FuturesUnordered<_> = asked.collect();
        Box::pin(async move {
            addresses.rotate_left(first(asked).await);
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The place of the first that is ready; of one that answers if none is; the first place if none answers.
async fn first(mut asked: FuturesUnordered<impl Future<Output = (usize, Result<Response, Error>)>>) -> usize {
    let (mut ready, mut answers) = (None::<(usize, Instant)>, None);
    loop {
        let next = match ready {
            Some((_, until)) => timeout_at(until, asked.next()).await.unwrap_or(None),
            None => asked.next().await,
        };
        match next {
            Some((n, Ok(answer))) if answer.status().is_success() => {
                let until = ready.map_or_else(|| Instant::now() + HEAD_START, |(_, until)| until);
                ready = Some((ready.map_or(n, |(known, _)| known.min(n)), until));
                if n == 0 {
                    break;
                }
            }
            Some((n, Ok(_))) => answers = answers.or(Some(n)),
            Some((_, Err(_))) => {}
            None => break,
        }
    }
    ready.map(|(n, _)| n).or(answers).unwrap_or(0)
}
