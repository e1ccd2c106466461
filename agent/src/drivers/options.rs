//! Options of modules on the kernel's command line, `usb_storage.delay_use=5`: the kernel itself takes only those of drivers
//! that are built into it, and leaves the rest to the program that loads modules.

use std::path::Path;

use landfall_api::ModuleName;

use crate::cmdline::words;

/// Options of modules whose own default is wrong here, before those of the command line. The module for bonds makes one by itself,
/// `bond0`, which is of another mode than the one that is asked for under this name.
const DEFAULTS: [(&str, &str); 1] = [("bonding", "max_bonds=0")];

/// The options of the module in this file, as `finit_module` takes them.
pub(super) fn options(file: &Path, command_line: &str) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default();
    let of_it = words(command_line).filter_map(|word| {
        let (module, option) = word.split_once('.')?;
        (is_same(module, name) && !option.is_empty()).then(|| quoted(option))
    });
    let defaults = DEFAULTS.iter().filter(|(module, _)| is_same(module, name)).map(|(_, option)| (*option).to_owned());
    defaults.chain(of_it).collect::<Vec<_>>().join(" ")
}

/// Blocklists of modules: modprobe's, the kernel's and dracut's.
const BLOCKLISTS: [&str; 3] = ["modprobe.blacklist=", "module_blacklist=", "rd.driver.blacklist="];

/// Whether the command line keeps a module from being loaded because a device fits it. Another module that needs it still gets it, as
/// with modprobe.
pub(super) fn is_blocked(module: &ModuleName, command_line: &str) -> bool {
    words(command_line).any(|word| {
        let list = BLOCKLISTS.iter().find_map(|key| word.strip_prefix(key)).unwrap_or_default();
        list.split(',').any(|name| !name.is_empty() && is_same(name, module.as_str()))
    })
}

/// As for the kernel, `-` and `_` are equal in a module's name.
fn is_same(a: &str, b: &str) -> bool {
    let plain = |c| if c == '-' { '_' } else { c };
    a.chars().map(plain).eq(b.chars().map(plain))
}

/// A value with blanks, whose quotes were dropped, gets them again.
fn quoted(option: &str) -> String {
    match option.split_once('=') {
        Some((key, value)) if value.contains(char::is_whitespace) => format!("{key}=\"{value}\""),
        _ => option.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_blocklist_blocks_the_modules_it_names() {
        let line = "modprobe.blacklist=ice,usb-net module_blacklist=nouveau rd.driver.blacklist=ast, quiet ice.x=1";
        let blocked = |name: &str| is_blocked(&ModuleName::new(name), line);
        assert!(["ice", "usb_net", "nouveau", "ast"].into_iter().all(blocked));
        assert!(!["ic", "x", "quiet", "i40e", ""].into_iter().any(blocked));
    }

    #[test]
    fn a_module_gets_its_own_options_and_no_others() {
        let line = "quiet usb-storage.delay_use=7 usb_storage.quirks=1:2:u nvme.x=1 usb_storage. mod.a=\"b c\" mod.on";
        let of = |file: &str| options(Path::new(file), line);
        assert_eq!(of("/lib/modules/6/usb-storage.ko.zst"), "delay_use=7 quirks=1:2:u");
        assert_eq!(of("nvme.ko"), "x=1");
        assert_eq!(of("mod.ko.xz"), "a=\"b c\" on");
        assert_eq!(of("bonding.ko.zst"), "max_bonds=0");
        assert_eq!((of("usb.ko"), of("storage.ko")), (String::new(), String::new()));
    }
}
