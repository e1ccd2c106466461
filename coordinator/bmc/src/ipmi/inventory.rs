//! What a BMC says of its computer. What it does not say stays empty.

use std::time::Duration;

use landfall_api::BmcSystem;
use tokio::time::timeout;

use super::fru;
use super::identity;
use super::message::Command;
use super::sign_in::Host;
use crate::error::BmcError;

/// For the FRU; what takes longer stays empty.
const FRU: Duration = Duration::from_secs(30);
/// Bytes of one read: every BMC's buffer has room for them.
const CHUNK: usize = 16;
/// Bytes of an area that are read.
const MAX_AREA: usize = 512;

/// Reads all of it.
pub(super) async fn read(host: &mut Host) -> Result<BmcSystem, BmcError> {
    let mut found = BmcSystem {
        bmc_firmware: identity::firmware(&host.ask(Command::DEVICE_ID, &[]).await?).unwrap_or_default(),
        ..BmcSystem::default()
    };
    found.uuid = optional(host.ask(Command::SYSTEM_GUID, &[]).await)?.and_then(|answer| identity::uuid(&answer));
    // Some give a byte at a time.
    let product = timeout(FRU, product(host)).await;
    if let Some(product) = product.map_or(Ok(None), optional)?.flatten() {
        (found.manufacturer, found.model, found.serial) = (product.manufacturer, product.model, product.serial);
    }
    Ok(found)
}

/// What the BMC does not have is absent.
pub(super) fn optional<T>(read: Result<T, BmcError>) -> Result<Option<T>, BmcError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(BmcError::Answered { .. } | BmcError::Forbidden { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The product of the computer's own FRU (0), or its board where no product is named.
async fn product(host: &mut Host) -> Result<Option<fru::Product>, BmcError> {
    // Its size, and whether it is read by words (34.1).
    if !matches!(host.ask(Command::FRU_AREA, &[0]).await?.as_slice(), [_, _, access, ..] if access & 1 == 0) {
        return Ok(None);
    }
    let header = bytes(host, 0, fru::HEADER).await?;
    let Some((board, product)) = fru::areas(&header) else { return Ok(None) };
    let mut found = None;
    if product != 0 {
        found = fru::product(&area(host, product).await?);
    }
    if board != 0 && found.as_ref().is_none_or(|found| found.serial.is_empty()) {
        found = fru::board(&area(host, board).await?).or(found);
    }
    Ok(found)
}

async fn area(host: &mut Host, at: usize) -> Result<Vec<u8>, BmcError> {
    let start = bytes(host, at, fru::HEADER).await?;
    let length = fru::length(&start).unwrap_or_default().min(MAX_AREA);
    bytes(host, at, length).await
}

/// As many bytes from `at` on as there are, at most `length`.
async fn bytes(host: &mut Host, at: usize, length: usize) -> Result<Vec<u8>, BmcError> {
    let mut found = Vec::new();
    while found.len() < length {
        let [low, high] = u16::try_from(at + found.len()).unwrap_or(u16::MAX).to_le_bytes();
        let count = CHUNK.min(length - found.len());
        let answer = host.ask(Command::FRU_READ, &[0, low, high, count as u8]).await?;
        // How many bytes there are, then they.
        let read = answer.get(1..).unwrap_or_default();
        let read = read.get(..count).unwrap_or(read);
        if read.is_empty() {
            break;
        }
        found.extend_from_slice(read);
    }
    Ok(found)
}
