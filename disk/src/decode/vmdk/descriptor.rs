//! The text in a VMDK that describes it.

use super::header::Refusal;

/// Checks that the text describes one streamOptimized disk of so many sectors that needs no other file.
pub(super) fn check(text: &[u8], capacity: u64) -> Result<(), Refusal> {
    let bad = |reason: String| Err(Refusal::Bad(reason));
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    // A file name in it may be in any encoding.
    let text = String::from_utf8_lossy(&text[..end]);
    if !text.starts_with("# Disk DescriptorFile") {
        return bad("it has no VMDK descriptor where its header says".into());
    }
    match value(&text, "createType") {
        Some("streamOptimized") => {}
        Some(kind) => return Err(Refusal::Kind(format!("it is a VMDK of the kind {kind}, not streamOptimized"))),
        None => return bad("its VMDK descriptor states no createType".into()),
    }
    match value(&text, "parentCID") {
        Some(id) if id.eq_ignore_ascii_case("ffffffff") => {}
        Some(_) => return Err(Refusal::Kind("it has only what differs from another disk (its parentCID)".into())),
        None => return bad("its VMDK descriptor states no parentCID".into()),
    }
    let access = ["RW ", "RDONLY ", "NOACCESS "];
    let extents: Vec<&str> =
        text.lines().map(str::trim).filter(|line| access.iter().any(|a| line.starts_with(a))).collect();
    let [extent] = extents[..] else {
        return Err(Refusal::Kind(format!("it is a VMDK of {} extents, and one is supported", extents.len())));
    };
    let words: Vec<&str> = extent.split_whitespace().collect();
    let [_, sectors, "SPARSE", ..] = words[..] else {
        return Err(Refusal::Kind(format!("its extent is not sparse: {extent:?}")));
    };
    if sectors.parse() != Ok(capacity) {
        return bad(format!("its descriptor states {sectors} sectors, and its header {capacity}"));
    }
    Ok(())
}

/// The value of `name=value`, without its quotation marks.
fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let of_line = |line: &'t str| {
        let (key, value) = line.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    };
    text.lines().find_map(of_line)
}
