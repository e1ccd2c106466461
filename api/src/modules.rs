//! What `modules.alias`, `modules.dep` and `modules.softdep` say, as data: by them the agent finds a device's driver, and
//! `landfall-image inspect` says which devices a boot image can drive.
//!
//! Pure parsers: the files are read by the caller. An invalid line is skipped, because the kernel's tools write these
//! files and a boot must not fail because of one entry of ten thousand.

use std::collections::{BTreeMap, BTreeSet};

/// Beside a boot image's `modules.alias`, in its format and compressed with zstd: the aliases of the modules that its kernel has in profile
/// `server` and the image does not have. By them the agent says what a device without a driver lacks.
pub const MISSING_MODULES: &str = "modules.missing.zst";

/// A module's name as the kernel compares it: `-` and `_` are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleName(String);

impl ModuleName {
    /// From a module's name, or from its file's.
    pub fn new(text: &str) -> Self {
        let file = text.rsplit('/').next().unwrap_or(text);
        let stem = file.find(".ko").map_or(file, |at| &file[..at]);
        Self(stem.replace('-', "_"))
    }
    /// The name with underscores.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where a module is and what it cannot be loaded without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Path below the kernel's module directory.
    pub path: String,
    /// What must be loaded before, as `modules.dep` lists it.
    needs: Vec<ModuleName>,
}

/// All three files, joined.
#[derive(Debug, Clone, Default)]
pub struct ModuleIndex {
    modules: BTreeMap<ModuleName, Module>,
    /// Pattern and module, by the pattern's bus (the text before its first `:`); those for which several texts may stand before it,
    /// such as `block-major-9-*`, by none.
    aliases: BTreeMap<String, Vec<(String, ModuleName)>>,
    before: BTreeMap<ModuleName, Vec<ModuleName>>,
    after: BTreeMap<ModuleName, Vec<ModuleName>>,
}

impl ModuleIndex {
    /// Joins the three files' text.
    pub fn parse(dep: &str, alias: &str, softdep: &str) -> Self {
        let mut index = Self::default();
        for line in dep.lines() {
            let Some((path, needs)) = line.split_once(':') else { continue };
            let needs = needs.split_whitespace().map(ModuleName::new).collect();
            index.modules.insert(ModuleName::new(path), Module { path: path.trim().to_owned(), needs });
        }
        for line in alias.lines() {
            let mut words = line.split_whitespace();
            let (Some("alias"), Some(pattern), Some(module)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let pattern = comparable(pattern);
            let bus = pattern.split(':').next().filter(|bus| !bus.contains(['*', '?', '['])).unwrap_or_default();
            let bus = bus.to_owned();
            index.aliases.entry(bus).or_default().push((pattern, ModuleName::new(module)));
        }
        for line in softdep.lines() {
            index.parse_softdep(line);
        }
        index
    }

    fn parse_softdep(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let (Some("softdep"), Some(module)) = (words.next(), words.next()) else { return };
        let module = ModuleName::new(module);
        let mut list = None;
        for word in words {
            match word {
                "pre:" => list = Some(&mut self.before),
                "post:" => list = Some(&mut self.after),
                name => {
                    if let Some(list) = &mut list {
                        list.entry(module.clone()).or_default().push(ModuleName::new(name));
                    }
                }
            }
        }
    }

    /// How many modules there are.
    pub fn count(&self) -> usize {
        self.modules.len()
    }

    /// A module by name.
    pub fn get(&self, name: &ModuleName) -> Option<&Module> {
        self.modules.get(name)
    }

    /// The modules whose aliases match a device's modalias, in the files' order, each once.
    pub fn for_device(&self, modalias: &str) -> Vec<ModuleName> {
        let modalias = comparable(modalias);
        let bus = modalias.split(':').next().unwrap_or_default();
        let mut seen = BTreeSet::new();
        let buses = [Some(bus), Some("").filter(|_| !bus.is_empty())].into_iter().flatten();
        let candidates = buses.filter_map(|bus| self.aliases.get(bus)).flatten();
        candidates
            .filter(|(pattern, module)| glob(pattern.as_bytes(), modalias.as_bytes()) && seen.insert(module.clone()))
            .map(|(_, module)| module.clone())
            .collect()
    }

    /// The modules to load for `name`, in order, ending with `name` itself and what softdep wants after it. Empty if
    /// there is no such module (it is built in, or the boot image does not carry it).
    pub fn load_order(&self, name: &ModuleName) -> Vec<&ModuleName> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        self.visit(name, &mut seen, &mut order);
        order
    }

    fn visit<'a>(&'a self, name: &ModuleName, seen: &mut BTreeSet<ModuleName>, order: &mut Vec<&'a ModuleName>) {
        // `seen` before descending: softdeps may be circular, and a circle is then simply cut.
        let Some((key, module)) = self.modules.get_key_value(name) else {
            // A softdep may name an alias (`crc32c`), which any of several modules provides.
            if seen.insert(name.clone()) {
                for provider in self.for_device(name.as_str()) {
                    self.visit(&provider, seen, order);
                }
            }
            return;
        };
        if !seen.insert(name.clone()) {
            return;
        }
        let before = self.before.get(name).into_iter().flatten();
        // modules.dep lists the deepest dependency last.
        for need in module.needs.iter().rev().chain(before) {
            self.visit(need, seen, order);
        }
        order.push(key);
        for follow in self.after.get(name).into_iter().flatten() {
            self.visit(follow, seen, order);
        }
    }
}

/// Names that are no device's (`fs-ext4`, `crypto-crc32c`) are compared like modules' names; devices' ids as they are.
fn comparable(alias: &str) -> String {
    if alias.contains(':') { alias.to_owned() } else { alias.replace('-', "_") }
}

/// Shell pattern matching as `fnmatch(3)` does it for module aliases: `*`, `?` and `[…]` with ranges and `!`.
///
/// Written here because patterns may contain several `*`: on a mismatch only the last `*` is tried again, so the cost
/// is bounded by pattern × text.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => class(&pattern[p..], text[t]),
            Some(&c) if c == text[t] => Some(1),
            _ => None,
        };
        match (step, star) {
            (Some(width), _) => {
                p += width;
                t += 1;
            }
            (None, Some((at, from))) => {
                star = Some((at, from + 1));
                p = at + 1;
                t = from + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// Matches one byte against the class at the start of `pattern`; its width if it matches.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let close = 1 + pattern.get(1..)?.iter().skip(1).position(|&c| c == b']')? + 1;
    let (negated, body) = match &pattern[1..close] {
        [b'!' | b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut rest = body;
    let mut found = false;
    while let [first, tail @ ..] = rest {
        if let [b'-', last, tail @ ..] = tail {
            found |= (*first..=*last).contains(&byte);
            rest = tail;
        } else {
            found |= *first == byte;
            rest = tail;
        }
    }
    (found != negated).then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEP: &str = "kernel/drivers/net/virtio_net.ko: kernel/net/core/failover.ko kernel/drivers/virtio/virtio.ko\n\
                       kernel/net/core/failover.ko: kernel/drivers/virtio/virtio.ko\n\
                       kernel/drivers/virtio/virtio.ko:\n\
                       kernel/drivers/virtio/virtio-pci.ko.xz: kernel/drivers/virtio/virtio.ko\n\
                       kernel/a.ko:\nkernel/b.ko:\n";
    const ALIAS: &str = "# comment\nalias virtio:d00000001v* virtio_net\n\
                         alias pci:v00001AF4d*sv*sd*bc*sc*i* virtio_pci\nalias pci:v00008086d0000100[Ef]sv* e1000\nbroken\n";

    fn names(list: Vec<&ModuleName>) -> Vec<&str> {
        list.into_iter().map(ModuleName::as_str).collect()
    }

    #[test]
    fn dependencies_are_loaded_before_what_needs_them() {
        let index = ModuleIndex::parse(DEP, ALIAS, "");
        assert_eq!(names(index.load_order(&ModuleName::new("virtio-net"))), ["virtio", "failover", "virtio_net"]);
        assert_eq!(index.get(&ModuleName::new("virtio_pci")).unwrap().path, "kernel/drivers/virtio/virtio-pci.ko.xz");
        assert!(index.load_order(&ModuleName::new("absent")).is_empty());
    }

    #[test]
    fn soft_dependencies_come_before_and_after_and_a_circle_ends() {
        let index =
            ModuleIndex::parse(DEP, ALIAS, "softdep a pre: b post: virtio\nsoftdep b pre: a\nsoftdep nonsense\n");
        assert_eq!(names(index.load_order(&ModuleName::new("a"))), ["b", "a", "virtio"]);
    }

    #[test]
    fn a_device_finds_its_driver_by_alias() {
        let index = ModuleIndex::parse(DEP, ALIAS, "");
        let found = |alias: &str| index.for_device(alias).iter().map(|m| m.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(found("pci:v00001AF4d00001041sv00001AF4sd00001100bc02sc00i00"), ["virtio_pci"]);
        assert_eq!(found("virtio:d00000001v00001AF4"), ["virtio_net"]);
        assert_eq!(found("pci:v00008086d0000100Esv0"), ["e1000"]);
        assert!(found("pci:v00008086d0000100Dsv0").is_empty());
        assert!(found("usb:v1").is_empty());
    }

    #[test]
    fn requests_and_soft_dependencies_may_use_aliases() {
        let alias = "alias crc32c virtio\nalias fs-ext4 b\nalias block-major-9-* a\n";
        let index = ModuleIndex::parse(DEP, alias, "softdep a pre: crc32c\n");
        assert_eq!(names(index.load_order(&ModuleName::new("a"))), ["virtio", "a"]);
        assert_eq!(index.for_device("fs-ext4"), [ModuleName::new("b")]);
        assert_eq!(index.for_device("block-major-9-127"), [ModuleName::new("a")]);
        assert!(index.for_device("block-major-8-127").is_empty());
    }

    #[test]
    fn patterns_match_as_the_shell_would() {
        for (pattern, text, want) in [
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcdef", false),
            ("*", "", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", false),
            ("a**b", "ab", true),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), want, "{pattern} against {text}");
        }
    }

    proptest! {
        #[test]
        fn any_files_parse_and_any_device_is_looked_up(dep in "\\PC*", alias in "\\PC*", soft in "\\PC*", device in "\\PC*") {
            let index = ModuleIndex::parse(&dep, &alias, &soft);
            index.for_device(&device);
        }

        #[test]
        fn any_pattern_against_any_text_ends(pattern in "[a-c*?\\[\\]!-]{0,12}", text in "[a-c]{0,12}") {
            glob(pattern.as_bytes(), text.as_bytes());
        }

        #[test]
        fn a_text_matches_itself_with_any_part_starred(text in "[a-z0-9]{1,20}", cut in 0usize..20) {
            let cut = cut.min(text.len());
            let starred = format!("{}*", &text[..cut]);
            prop_assert!(glob(starred.as_bytes(), text.as_bytes()));
        }
    }
}
