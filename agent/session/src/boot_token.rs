//! Asking for a boot token: for an agent whose command line has none, since its boot medium or signed kernel image is the same for
//! every machine.

use landfall_api::{BOOT_TOKEN_PATH, MacAddr, Problem, SecretText};
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
    /// The machine has no workflow. Ask again later.
    NoWorkflow,
    /// There is none for this machine: a person or a rule approves its key. The reason, in a few words.
    None(String),
}

/// Asks for the token of the machine with this port.
///
/// # Errors
/// [`Problem`] if the coordinator cannot be asked.
pub async fn boot_token(target: &Target, mac: MacAddr, uuid: Option<Uuid>) -> Result<BootToken, Problem> {
    let uuid = uuid.map(|uuid| format!("&uuid={uuid}")).unwrap_or_default();
    let url = format!("{target}{BOOT_TOKEN_PATH}?mac={mac}{uuid}");
    let answer = https_client(target.pins())?.get(&url).send().await.map_err(|e| unreachable(&url, &e).problem)?;
    let status = answer.status();
    let text = answer.text().await.map_err(|e| unreachable(&url, &e).problem)?;
    Ok(match status {
        StatusCode::OK if (1..=MAX_TOKEN).contains(&text.len()) => BootToken::Given(SecretText::new(text)),
        StatusCode::CONFLICT => BootToken::NoWorkflow,
        StatusCode::NOT_FOUND => BootToken::None(text.trim().chars().take(256).collect()),
        other => BootToken::None(format!("the coordinator answered {other}")),
    })
}
