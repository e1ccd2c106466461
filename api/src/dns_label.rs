//! DNS labels: what documents, actions and branches are named by.

/// What a name that is no DNS label should be.
pub(crate) const LABEL_HINT: &str = "use 1 to 63 lower-case letters, digits and \"-\", with no \"-\" at either end";

/// Whether `text` is a DNS label: 1 to 63 of lower-case letters, digits and `-`, beginning and ending with no `-`.
pub fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}
