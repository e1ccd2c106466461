//! Asking for a boot token: for an agent whose command line has none, since its boot medium or signed kernel image is the same for
//! every machine.

use landfall_api::{BOOT_TOKEN_PATH, ErrorCode, MacAddr, Problem, SecretText};
use reqwest::StatusCode;
use uuid::Uuid;

use crate::phone_home::unreachable;
use crate::{Target, https_client};

/// A longer answer is no token.
const MAX_TOKEN: usize = 1024;

/// What the coordinator answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootToken {
    /// The token.
    Given(SecretText),
    /// The machine has nothing to run now, and why. Ask again later.
    NoWorkflow(String),
    /// There is none for this machine: a person or a rule approves its key. The reason, in a few words.
    None(String),
}

/// Asks for the token of the machine with this port: the first coordinator that answers.
///
/// # Errors
/// [`Problem`] if no coordinator can be asked, or the one that is there cannot answer now.
pub async fn boot_token(target: &Target, mac: MacAddr, uuid: Option<Uuid>) -> Result<BootToken, Problem> {
    let uuid = uuid.map(|uuid| format!("&uuid={uuid}")).unwrap_or_default();
    let client = https_client(target.pins(), target.proxy())?;
    let mut problem = None;
    for place in target.places() {
        let url = format!("{place}{BOOT_TOKEN_PATH}?mac={mac}{uuid}");
        let asked = match client.get(&url).send().await {
            Ok(answer) => answered(answer, url).await,
            Err(error) => {
                // What one says that answers is worth more.
                problem.get_or_insert_with(|| unreachable(&url, &error).problem);
                continue;
            }
        };
        match asked {
            Ok(token) => {
                target.prefer(&place);
                return Ok(token);
            }
            Err(why) => problem = Some(why),
        }
    }
    Err(problem.unwrap_or_else(|| Problem::new(ErrorCode::Internal, "there is no coordinator to ask")))
}

async fn answered(answer: reqwest::Response, url: String) -> Result<BootToken, Problem> {
    let status = answer.status();
    let text = answer.text().await.map_err(|e| unreachable(&url, &e).problem)?;
    Ok(match status {
        StatusCode::OK if (1..=MAX_TOKEN).contains(&text.len()) => BootToken::Given(SecretText::new(text)),
        StatusCode::CONFLICT => BootToken::NoWorkflow(short(&text)),
        StatusCode::NOT_FOUND => BootToken::None(short(&text)),
        busy if busy.is_server_error() || busy == StatusCode::TOO_MANY_REQUESTS => {
            let problem = Problem::new(ErrorCode::SourceUnreachable, format!("the coordinator answered {busy}"));
            return Err(problem.hint("read the coordinator's log for the reason").at(url));
        }
        // One that is older than this route.
        other => BootToken::None(format!("the coordinator answered {other}")),
    })
}

/// For one line of the console.
fn short(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(256).collect()
}
