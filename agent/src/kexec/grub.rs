//! The kernels and command lines of a `grub.cfg`. It is a program; what is read of it are its `linux` lines in order, with the
//! variables that plain assignments before them and GRUB's environment block give. Conditions are not judged: the lines that
//! distributions write differ in the kernel, hardly in its command line.

use super::words::{Variables, Word, words};

/// Lines read of one file. Systems with many kernels have dozens.
const MAX_LINES: usize = 256;

/// One `linux` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Linux {
    /// The kernel, as GRUB finds it.
    pub(super) kernel: String,
    /// The command line.
    pub(super) words: Vec<Word>,
}

/// Variables of an environment block (`grubenv`).
pub(super) fn environment(block: &str) -> Variables {
    let lines = block.lines().filter(|line| !line.starts_with('#'));
    let unescaped = |value: &str| value.replace("\\\\", "\\");
    lines.filter_map(|line| line.split_once('=')).map(|(name, value)| (name.to_owned(), unescaped(value))).collect()
}

/// The `linux` lines. `uuid` is that of the file system the configuration is on, for which `probe` asks.
pub(super) fn linux_lines(config: &str, environment: &Variables, uuid: &str) -> Vec<Linux> {
    let mut variables = environment.clone();
    let mut found = Vec::new();
    for line in config.replace("\\\n", " ").lines() {
        let line = words(line, &variables);
        let mut texts = line.iter().map(|word| word.text.as_str());
        match texts.next() {
            Some("set") => {
                if let Some((name, value)) = texts.next().and_then(|word| word.split_once('=')) {
                    // What the environment block says was loaded; the file assigns a default where it says nothing.
                    if !environment.contains_key(name) && line.iter().all(|word| word.whole) {
                        variables.insert(name.to_owned(), value.to_owned());
                    }
                }
            }
            Some("probe") => {
                if let Some(name) = probed(texts) {
                    variables.insert(name.to_owned(), uuid.to_owned());
                }
            }
            Some("linux" | "linux16" | "linuxefi") => {
                if let Some(kernel) = texts.next().map(str::to_owned) {
                    found.push(Linux { kernel, words: line.into_iter().skip(2).collect() });
                }
                if found.len() == MAX_LINES {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// The variable into which `probe` puts a file system's UUID.
fn probed<'w>(mut arguments: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let (mut name, mut uuid) = (None, false);
    while let Some(argument) = arguments.next() {
        match argument {
            "--fs-uuid" | "-u" => uuid = true,
            "--set" | "-s" => name = arguments.next(),
            other => name = name.or(other.strip_prefix("--set=")),
        }
    }
    name.filter(|_| uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(config: &str, environment: &Variables) -> Vec<(String, String)> {
        let text = |line: Linux| {
            let words: Vec<_> = line.words.into_iter().map(|w| w.text).collect();
            (line.kernel, words.join(" "))
        };
        linux_lines(config, environment, "ab-cd").into_iter().map(text).collect()
    }

    fn pair(kernel: &str, line: &str) -> (String, String) {
        (kernel.to_owned(), line.to_owned())
    }

    #[test]
    fn a_debian_configuration_gives_its_lines_in_order() {
        let config = "if [ \"$linux_gfx_mode\" != text ]; then set gfxpayload=keep; fi\n\
            menuentry 'Debian GNU/Linux' --class debian {\n\tsearch --no-floppy --fs-uuid --set=root 1-2\n\
            \techo\t'Loading Linux 6.1.0-35-amd64 ...'\n\
            \tlinux\t/boot/vmlinuz-6.1.0-35-amd64 root=UUID=1-2 ro  quiet $vt_handoff\n\tinitrd\t/boot/initrd.img-6.1.0-35-amd64\n}\n\
            submenu 'Advanced options' {\n menuentry 'recovery' {\n  linux /boot/vmlinuz-6.1.0-35-amd64 root=UUID=1-2 ro single\n }\n}\n";
        let kernel = "/boot/vmlinuz-6.1.0-35-amd64";
        assert_eq!(
            lines(config, &Variables::new()),
            [pair(kernel, "root=UUID=1-2 ro quiet "), pair(kernel, "root=UUID=1-2 ro single")]
        );
    }

    #[test]
    fn the_environment_block_precedes_assignments_and_probe() {
        let config = "probe --set=uuid --fs-uuid $root\nprobe -s label -l $root\nset kernelopts=\"root=x ro\"\nset console='console=ttyS0'\n\
            linux /vmlinuz root=UUID=$uuid $kernelopts $console $label\nset console=late\n";
        assert_eq!(lines(config, &Variables::new()), [pair("/vmlinuz", "root=UUID=ab-cd root=x ro console=ttyS0 ")]);
        let block = environment("# GRUB Environment Block\nkernelopts=root=/dev/mapper/a\\\\b ro\nsaved_entry=0\n####");
        assert_eq!(
            lines(config, &block),
            [pair("/vmlinuz", "root=UUID=ab-cd root=/dev/mapper/a\\b ro console=ttyS0 ")]
        );
    }

    #[test]
    fn variables_that_double_and_endless_lines_are_bounded() {
        let config = format!("set a=xxxxxxxx\n{}linux /k $a\n", "set a=$a$a\n".repeat(40));
        let found = lines(&config, &Variables::new());
        assert!(found[0].1.len() <= 4 << 10, "{} bytes", found[0].1.len());
        assert_eq!(lines(&"linux /k a\n".repeat(1000), &Variables::new()).len(), MAX_LINES);
    }

    #[test]
    fn continued_lines_are_joined_and_lines_without_kernel_ignored() {
        assert_eq!(lines("linuxefi /k a \\\n b\nlinux\n# linux /c\n", &Variables::new()), [pair("/k", "a b")]);
    }
}
