//! The texts that have the system's name. Pure.

/// The part before the first dot: what `hostname` prints.
pub(super) fn short(hostname: &str) -> &str {
    hostname.split('.').next().unwrap_or(hostname)
}

/// `/etc/hosts` with this name: the line of 127.0.1.1, where Debian and its kin have it, is replaced, or added behind that of
/// 127.0.0.1. Everything else stays.
pub(super) fn hosts(old: Option<&str>, hostname: &str) -> String {
    let short = short(hostname);
    let names = if short == hostname { short.to_owned() } else { format!("{hostname} {short}") };
    let own = format!("127.0.1.1\t{names}");
    let old = old.unwrap_or("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let is = |line: &&str, address: &str| first(line).as_deref() == Some(address);
    let mut lines: Vec<&str> = old.lines().collect();
    let place = lines.iter().position(|line| is(line, "127.0.1.1"));
    lines.retain(|line| !is(line, "127.0.1.1"));
    let place = place.or_else(|| lines.iter().rposition(|line| is(line, "127.0.0.1")).map(|at| at + 1));
    lines.insert(place.unwrap_or(0).min(lines.len()), &own);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_of_the_own_name_changes() {
        let debian = "127.0.0.1\tlocalhost\n127.0.1.1\tdebian.example debian\n\n# IPv6\n::1 localhost\n";
        let changed = "127.0.0.1\tlocalhost\n127.0.1.1\tnode-17.example.net node-17\n\n# IPv6\n::1 localhost\n";
        assert_eq!(hosts(Some(debian), "node-17.example.net"), changed);
        assert_eq!(hosts(Some(changed), "node-17.example.net"), changed);
        let fedora = "127.0.0.1   localhost localhost.localdomain\n::1         localhost";
        let added = "127.0.0.1   localhost localhost.localdomain\n127.0.1.1\tnode-17\n::1         localhost\n";
        assert_eq!(hosts(Some(fedora), "node-17"), added);
        assert_eq!(hosts(Some(""), "a"), "127.0.1.1\ta\n");
        assert!(hosts(None, "a").starts_with("127.0.0.1\tlocalhost\n127.0.1.1\ta\n::1"));
    }

    #[test]
    fn a_second_line_of_the_old_name_goes_too() {
        let twice = "127.0.1.1 a\n10.0.0.1 b\n127.0.1.1 c\n";
        assert_eq!(hosts(Some(twice), "x"), "127.0.1.1\tx\n10.0.0.1 b\n");
    }
}
