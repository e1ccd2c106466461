//! The unified kernel image (UKI) with a machine's own command line in it, for firmware that boots from HTTP without iPXE.
//!
//! `landfall-image uki` keeps room for the command line, so that the file has the same length for every machine. One that is signed
//! is served as it is: with another command line its signature would be wrong.

use std::io::{self, Cursor, SeekFrom};
use std::path::Path;

use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use crate::arch::Arch;

use super::file::{CHUNK, failed, open, plain, respond as respond_whole};

/// The headers and what is in front of the command line: the stub, and the text for boot menus.
const HEAD: usize = 1 << 20;

/// Where the command line stands in a UKI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At this offset, with room for so many bytes.
    Own { at: usize, room: usize },
    /// It is signed with the rest.
    Signed,
}

/// The response for a GET of the UKI at `path`, with `line` as the kernel's command line.
pub async fn respond(path: &Path, line: &str) -> Response {
    match with_line(path, line).await {
        Ok(response) => response,
        Err(error) => failed(path, &error),
    }
}

async fn with_line(path: &Path, line: &str) -> io::Result<Response> {
    let (mut file, version) = open(path).await?;
    let mut head = vec![0; usize::try_from(version.length).unwrap_or(HEAD).min(HEAD)];
    file.read_exact(&mut head).await?;
    let (at, room) = match place(&head) {
        Some(Place::Own { at, room }) => (at, room),
        Some(Place::Signed) => return Ok(respond_whole(path, &HeaderMap::new()).await),
        None => {
            return Err(io::Error::other("it is no UKI with room for a command line; make it with landfall-image uki"));
        }
    };
    if line.len() > room {
        let what = format!("the command line has {} bytes, and the UKI has room for {room}", line.len());
        return Err(io::Error::other(what));
    }
    head.truncate(at);
    head.extend_from_slice(format!("{line:<room$}").as_bytes());
    file.seek(SeekFrom::Start((at + room) as u64)).await?;
    let body = ReaderStream::with_capacity(Cursor::new(head).chain(file), CHUNK);
    let mut response = plain(StatusCode::OK, "");
    *response.body_mut() = Body::from_stream(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, version.length.into());
    // UEFI 2.10, section 24.7.3.2: by this type the firmware knows a program.
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/efi"));
    Ok(response)
}

/// The processor that a program of EFI is for; `None`: it is none, or for another processor.
///
/// # Errors
/// It cannot be read.
pub fn arch_of(path: &Path) -> io::Result<Option<Arch>> {
    let mut head = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(std::fs::File::open(path)?, 4096), &mut head)?;
    let at = |at: usize| Some(usize::from(u16::from_le_bytes(head.get(at..at.checked_add(2)?)?.try_into().ok()?)));
    let signature = at(0x3c).filter(|start| head.get(*start..start + 4) == Some(b"PE\0\0"));
    // IMAGE_FILE_MACHINE_AMD64, IMAGE_FILE_MACHINE_ARM64.
    Ok(match signature.and_then(|start| at(start + 4)) {
        Some(0x8664) => Some(Arch::X86_64),
        Some(0xaa64) => Some(Arch::Arm64),
        _ => None,
    })
}

/// Reads the headers of an EFI program of 64 bits (PE Format, Microsoft).
fn place(file: &[u8]) -> Option<Place> {
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(file.get(at..at.checked_add(2)?)?.try_into().ok()?)));
    let word = |at: usize| Some(u32::from_le_bytes(file.get(at..at.checked_add(4)?)?.try_into().ok()?) as usize);
    let at = word(0x3c)?;
    let optional = at.checked_add(24)?;
    if file.get(at..at.checked_add(4)?)? != b"PE\0\0" || half(optional)? != 0x20b {
        return None;
    }
    // The fifth data directory has the signatures.
    if word(optional + 108)? > 4 && word(optional + 112 + 4 * 8 + 4)? > 0 {
        return Some(Place::Signed);
    }
    let table = optional + half(at + 20)?;
    let entry =
        (0..half(at + 6)?).map(|n| table + 40 * n).find(|entry| file.get(*entry..entry + 8) == Some(b".cmdline"))?;
    let (at, room) = (word(entry + 20)?, word(entry + 8)?.min(word(entry + 16)?));
    (at.checked_add(room)? <= file.len()).then_some(Place::Own { at, room })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Headers with one section, the command line, of 64 bytes at 0x200; then the rest.
    pub(in crate::http) fn image(signed: bool) -> Vec<u8> {
        let mut file = vec![0; 0x200];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0x3c, &[0x40]);
        put(0x40, b"PE\0\0\x64\x86\x01");
        put(0x54, &[240]);
        put(0x58, &[0x0b, 2]);
        put(0x58 + 108, &[16]);
        put(0x58 + 148, &[u8::from(signed)]);
        put(0x148, b".cmdline\x40\0\0\0\0\0\0\0\x40\0\0\0\0\x02\0\0");
        file.extend_from_slice(format!("{:<64}kernel and initramfs", "as it was made").as_bytes());
        file
    }

    #[test]
    fn a_command_line_stands_where_its_section_says() {
        assert_eq!(place(&image(false)), Some(Place::Own { at: 0x200, room: 64 }));
        assert_eq!(place(&image(true)), Some(Place::Signed));
        assert_eq!(place(b"no program"), None);
        let good = image(false);
        for at in 0..good.len() {
            assert_eq!(place(&good[..at.min(0x200)]), None);
            for value in [0, 0x7f, 0xff] {
                let mut wrong = good.clone();
                wrong[at] = value;
                if let Some(Place::Own { at, room }) = place(&wrong) {
                    assert!(at + room <= wrong.len());
                }
            }
        }
    }
}
