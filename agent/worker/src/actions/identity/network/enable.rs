//! What `systemctl enable` makes of a unit: links, as its `[Install]` section states them (systemd.unit(5)). Pure.

use super::choice::ENABLED;

/// Units that belong to one another, at most: those of networkd are four.
const MOST: usize = 16;

/// The links that make `unit` start: each where it is, and where it leads. `read` has a unit's path and text.
pub(super) fn links(unit: &str, read: impl Fn(&str) -> Option<(String, String)>) -> Vec<(String, String)> {
    let mut units = vec![unit.to_owned()];
    let mut links = Vec::new();
    let mut n = 0;
    while let Some(unit) = units.get(n).cloned() {
        n += 1;
        let Some((path, text)) = read(&unit) else { continue };
        for (key, names) in installed(&text) {
            for name in names {
                match key {
                    "WantedBy" => links.push((format!("{ENABLED}/{name}.wants/{unit}"), path.clone())),
                    "RequiredBy" => links.push((format!("{ENABLED}/{name}.requires/{unit}"), path.clone())),
                    "Alias" => links.push((format!("{ENABLED}/{name}"), path.clone())),
                    "Also" if units.len() < MOST && !units.iter().any(|known| known == name) => {
                        units.push(name.to_owned());
                    }
                    _ => {}
                }
            }
        }
    }
    links
}

/// Keys and names of a unit's `[Install]` section. Names that would lead out of their directory, and templates, are left out.
fn installed(text: &str) -> Vec<(&str, Vec<&str>)> {
    let lines = text.lines().map(str::trim).skip_while(|line| *line != "[Install]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once('='));
    let right = |name: &&str| !name.contains(['/', '%', '@']) && !name.starts_with('.');
    lines.map(|(key, names)| (key.trim(), names.split_whitespace().filter(right).collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_belongs_to_a_unit_starts_with_it() {
        let read = |unit: &str| {
            let text = match unit {
                "a.service" => {
                    "[Unit]\nWantedBy=no.target\n[Install]\nWantedBy=multi-user.target ../x\nAlias=dbus-a.service\n\
                    Also=a.socket wait@b.service\nAlso=wait.service\n[Other]\nAlias=no.service\n"
                }
                "a.socket" => "[Install]\nWantedBy=sockets.target\nAlso=a.service\n",
                "wait.service" => "[Install]\nRequiredBy = network-online.target\n",
                _ => return None,
            };
            Some((format!("/usr/lib/systemd/system/{unit}"), text.to_owned()))
        };
        let links = links("a.service", read);
        let paths: Vec<_> = links.iter().map(|(at, _)| at.trim_start_matches("/etc/systemd/system/")).collect();
        let expected = [
            "multi-user.target.wants/a.service", "dbus-a.service", "sockets.target.wants/a.socket",
            "network-online.target.requires/wait.service",
        ];
        assert_eq!(paths, expected);
        assert_eq!(links[3].1, "/usr/lib/systemd/system/wait.service");
    }
}
