//! Formats that are known by more than bytes at one place.

/// How much text is looked at.
const TEXT: usize = 4096;
/// No header of a program lies farther from its start.
const MAX_PE: usize = 1 << 16;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

/// A frame that a zstd decoder skips (RFC 8878, section 3.1.2).
pub(super) fn skippable_frame(head: &[u8]) -> bool {
    u32_at(head, 0).is_some_and(|magic| (0x184d_2a50..=0x184d_2a5f).contains(&magic))
}

/// `BZh`, the level, then the magic of a block or of the end.
pub(super) fn bzip2(head: &[u8]) -> bool {
    let block = [&[0x31, 0x41, 0x59, 0x26, 0x53, 0x59], &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90]];
    head.starts_with(b"BZh") && head.get(4..10).is_some_and(|magic| block.iter().any(|known| magic == *known))
}

/// As xz tells it: the usual properties, a dictionary of a power of two, a length that is unknown or below 256 GiB.
pub(super) fn lzma(head: &[u8]) -> bool {
    let dictionary = u32_at(head, 1).is_some_and(|size| size.is_power_of_two() && size >= 4096);
    let length = head.get(5..13).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    head.first() == Some(&0x5d) && dictionary && length.is_some_and(|n| n == u64::MAX || (1..256 << 30).contains(&n))
}

/// The tar of before POSIX has no magic: its checksum decides (the sum of the header's bytes, its own as spaces).
pub(super) fn old_tar(head: &[u8]) -> bool {
    let Some(header) = head.get(..512) else { return false };
    let stated = std::str::from_utf8(&header[148..156]).ok();
    let stated = stated.map(|text| text.trim_matches(['\0', ' '])).and_then(|text| u32::from_str_radix(text, 8).ok());
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let own: u32 = header[148..156].iter().map(|byte| u32::from(*byte)).sum();
    header[0] != 0 && stated == Some(sum - own + 8 * u32::from(b' '))
}

/// A tar whose first file is the description of a virtual machine.
pub(super) fn ova(head: &[u8]) -> bool {
    let name = head.get(..100).and_then(|name| name.split(|byte| *byte == 0).next()).unwrap_or_default();
    let tar = head.get(257..).is_some_and(|rest| rest.starts_with(b"ustar")) || old_tar(head);
    tar && name.to_ascii_lowercase().ends_with(b".ovf")
}

/// Where the header of a PE program is (Microsoft, PE Format: e_lfanew at 0x3c).
fn pe_header(head: &[u8]) -> Option<usize> {
    let at = u32_at(head, 0x3c)? as usize;
    (head.starts_with(b"MZ") && at <= MAX_PE && head.get(at..)?.starts_with(b"PE\0\0")).then_some(at)
}

pub(super) fn pe(head: &[u8]) -> bool {
    pe_header(head).is_some()
}

/// A PE program with a section `.linux`.
pub(super) fn uki(head: &[u8]) -> bool {
    let Some(header) = pe_header(head) else { return false };
    let (Some(count), Some(optional)) = (u16_at(head, header + 6), u16_at(head, header + 20)) else { return false };
    let sections = header + 24 + usize::from(optional);
    (0..usize::from(count))
        .any(|i| head.get(sections + 40 * i..).is_some_and(|section| section.starts_with(b".linux\0")))
}

/// Linux, Documentation/arch/x86/boot.rst and arch/arm64/booting.rst. The first has the boot signature where a disk has
/// it.
pub(super) fn linux_kernel(head: &[u8]) -> bool {
    let has = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    (has(0x202, b"HdrS") && has(0x1fe, &[0x55, 0xaa])) || has(0x38, b"ARM\x64")
}

/// A dictionary in bencode (BEP 3) that begins with one of the keys of a torrent.
pub(super) fn torrent(head: &[u8]) -> bool {
    let keys: [&[u8]; 5] = [b"d8:announce", b"d13:announce-list", b"d7:comment", b"d10:created by", b"d4:info"];
    keys.iter().any(|key| head.starts_with(key))
}

/// Microsoft's FAT specification, section 3.1: a jump, and a plausible description of the volume. The names in its boot
/// sector are optional.
pub(super) fn fat(head: &[u8]) -> bool {
    let jump = matches!(head, [0xeb, _, 0x90, ..] | [0xe9, ..]);
    let bytes = u16_at(head, 11).is_some_and(|n| [512, 1024, 2048, 4096].contains(&n));
    let [Some(cluster), Some(copies), Some(media)] = [13, 16, 21].map(|at| head.get(at).copied()) else { return false };
    let reserved = u16_at(head, 14).is_some_and(|n| n > 0);
    jump && bytes && cluster.is_power_of_two() && reserved && (1..=2).contains(&copies) && media >= 0xf0
}

/// The text without what editors and servers put before it.
fn trimmed(head: &[u8]) -> &[u8] {
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start()
}

fn starts_with_any_case(text: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes())))
}

pub(super) fn html(head: &[u8]) -> bool {
    let words = ["<!doctype html", "<html", "<head", "<body", "<title", "<script", "<h1", "<meta", "<!--"];
    starts_with_any_case(trimmed(&ascii(head)), &words)
}

pub(super) fn xml(head: &[u8]) -> bool {
    let text = ascii(head);
    let text = trimmed(&text);
    starts_with_any_case(text, &["<?xml", "<!doctype"])
        || matches!(text, [b'<', b'a'..=b'z' | b'A'..=b'Z', ..]) && is_text(text)
}

pub(super) fn json(head: &[u8]) -> bool {
    let text = ascii(head);
    let (first, rest) = match trimmed(&text) {
        [first @ (b'{' | b'['), rest @ ..] => (*first, rest.trim_ascii_start()),
        _ => return false,
    };
    let next = match rest {
        [] => true,
        [next, ..] if first == b'{' => matches!(next, b'"' | b'}'),
        [next, ..] => matches!(next, b'"' | b'{' | b'[' | b']' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'),
    };
    next && is_text(&text)
}

pub(super) fn text(head: &[u8]) -> bool {
    is_text(&ascii(head))
}

/// Something is there, and its start has no byte that text does not have. Zeroes may follow a short one.
fn is_text(bytes: &[u8]) -> bool {
    let looked = &bytes[..bytes.len().min(TEXT)];
    let end = looked.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let plain = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b | 0x20..=0x7e | 0x80..);
    let cut_character = |error: std::str::Utf8Error| error.error_len().is_none();
    end > 0
        && looked[..end].iter().all(plain)
        && std::str::from_utf8(&looked[..end]).map_or_else(cut_character, |_| true)
}

/// UTF-16 with its mark, as the ASCII in it; anything else as it is.
fn ascii(head: &[u8]) -> Vec<u8> {
    let start = &head[..head.len().min(2 * TEXT)];
    let units = |rest: &[u8], low: usize| {
        let known = |unit: &[u8]| if unit[1 - low] == 0 { unit[low] } else { b'?' };
        rest.chunks_exact(2).map(known).collect()
    };
    match start {
        [0xff, 0xfe, rest @ ..] => units(rest, 0),
        [0xfe, 0xff, rest @ ..] => units(rest, 1),
        _ => start.to_vec(),
    }
}
