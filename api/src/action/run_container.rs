//! `runContainer`: its fields, what is sent to the agent, and what comes of it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::kind::{ActionInfo, Declaration, Download};
use super::program::{ExecVariable, MAX_WORDS, variables, with_secrets, word_fault};
use super::rules::{Rules, is_directory, plain_text};
use crate::{AccessSpec, DiskId, DiskSelector, DurationSpec, ImageAccess, ImageSourceError, issue::join};

/// Runs the program of an OCI image, which is unpacked into memory, and waits for its end. Exit code 0 is success. It finds what is
/// named here, and nothing else of the machine.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunContainerSpec {
    /// The image by digest: `oci://registry/repository@sha256:…`.
    pub image: String,
    /// How its registry is asked.
    pub access: Option<AccessSpec>,
    /// The program and its first arguments, one item each, in place of the image's entry point and its arguments; no shell reads them.
    /// Default: the image's.
    pub command: Option<Vec<String>>,
    /// Arguments in place of the image's. Default: the image's; none where `command` is stated.
    pub args: Option<Vec<String>>,
    /// Variables of its environment, beside those of the image. A value may hold secrets: the program's output is cleared of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory in which it starts, an absolute path of the image; made where it is missing. Default: the image's, else `/`.
    pub directory: Option<String>,
    /// Who it is: a number or a name of the image's `/etc/passwd`; with a group, `user:group`. Default: the image's, else root.
    pub user: Option<String>,
    /// Which network it sees. Default: `none`.
    #[serde(default, skip_serializing_if = "ContainerNetwork::is_none")]
    pub network: ContainerNetwork,
    /// What root may do in it beside what root always may there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<ContainerCapability>,
    /// Disks that it may read and write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<ContainerDevice>,
    /// Directories of the installed system that it finds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ContainerMount>,
    /// Which disk has the installed system of `mounts`. Default: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// Which network a container sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ContainerNetwork {
    /// One of its own, with nothing but a loopback interface.
    #[default]
    None,
    /// The machine's, with the agent's name servers.
    Host,
}

impl ContainerNetwork {
    // Serde gives a reference.
    #[expect(clippy::trivially_copy_pass_by_ref)]
    const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

words! {
    /// A capability of Linux that a container does not have by default, and with which it still finds nothing that is not named.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    ContainerCapability {
        /// Lock memory.
        IpcLock = "IPC_LOCK",
        /// Set the immutable and append-only flags of files.
        LinuxImmutable = "LINUX_IMMUTABLE",
        /// Configure network interfaces: those of the machine with `network: host`.
        NetAdmin = "NET_ADMIN",
        /// Send and receive raw packets, such as those of ping.
        NetRaw = "NET_RAW",
        /// Set priorities of processes.
        SysNice = "SYS_NICE",
        /// Trace other processes of the container.
        SysPtrace = "SYS_PTRACE",
        /// Read the kernel's log.
        Syslog = "SYSLOG",
    }
}

/// One disk in a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerDevice {
    /// Which disk.
    pub disk: DiskSelector,
    /// Its name there: `/dev/` and letters. Its partitions have the same name with their number behind it.
    pub path: String,
}

/// One directory of the installed system in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerMount {
    /// An absolute path of the installed system; `/` is all of it.
    pub from: String,
    /// Where the container finds it: an absolute path, made where it is missing.
    pub to: String,
    /// Whether it can only be read. Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// `runContainer` as an agent is sent it: every secret in place.
#[derive(Debug, Clone, PartialEq)]
pub struct RunContainer {
    /// `oci:` or `oci+http:`, by the digest of its manifest.
    pub image: String,
    /// How its registry is asked.
    pub access: ImageAccess,
    /// In place of the image's entry point and arguments; never empty.
    pub command: Option<Vec<String>>,
    /// In place of the image's arguments.
    pub args: Option<Vec<String>>,
    /// Variables beside the image's.
    pub variables: Vec<ExecVariable>,
    /// Where it starts; `None`: as the image says.
    pub directory: Option<String>,
    /// Who it is; `None`: as the image says.
    pub user: Option<String>,
    /// Which network it sees.
    pub network: ContainerNetwork,
    /// What root may do beside the usual.
    pub capabilities: Vec<ContainerCapability>,
    /// Disks that it may write.
    pub devices: Vec<ContainerDevice>,
    /// Directories of the installed system.
    pub mounts: Vec<ContainerMount>,
    /// Which disk has that system; `None`: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// What came of a `runContainer`: the program ended with exit code 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunContainerResult {
    /// The disks that it could write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskId>,
}

/// More disks than a machine has in one enclosure; and mounts.
const MAX_NAMED: usize = 64;
/// What a container has below /dev by itself. (Names that end with a digit are partitions'.)
const OWN_DEVICES: [&str; 15] = [
    "console", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
    "urandom", "zero",
];
/// Directories that the kernel fills.
const KERNELS: [&str; 3] = ["/dev", "/proc", "/sys"];

impl RunContainerSpec {
    /// What an agent is sent. `pinned`: the same action before any secret was put in; a variable that differs holds one.
    ///
    /// # Errors
    /// [`ImageSourceError`]: `access` cannot be used.
    pub fn resolved(self, pinned: &Self) -> Result<RunContainer, ImageSourceError> {
        let Self { image, access, command, args, env, directory, user, network, capabilities, devices, mounts, disk } =
            self;
        let access = access.map(ImageAccess::try_from).transpose()?.unwrap_or_default();
        let variables = with_secrets(env, &pinned.env);
        Ok(RunContainer {
            image,
            access,
            command,
            args,
            variables,
            directory,
            user,
            network,
            capabilities,
            devices,
            mounts,
            disk,
        })
    }
}

impl Declaration for RunContainerSpec {
    const INFO: ActionInfo = ActionInfo {
        // What a program did before it failed is unknown.
        attempts: 1,
        tools: true,
        means_written_disk: true,
        no_branch: Some(
            "a container may take all memory, and its disks must be free; remove its branch, so that it runs alone",
        ),
        secrets: &["env", "access.authorization"],
        ..ActionInfo::new(
            "Runs the program of an OCI image in a container, with the disks and directories that it names.",
            DurationSpec::from_secs(3600),
            8,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        rules.oci_image(spec, path);
        let urls: Vec<&str> = spec.get("image").and_then(Value::as_str).into_iter().collect();
        rules.access(spec.get("access"), &urls, &join(path, "access"));
        words(spec, path, rules);
        variables(spec, path, "write a file into the image, and read it in the program", rules);
        if let Some(directory) = plain_text(spec, "directory").filter(|directory| !is_directory(directory)) {
            let message = format!("{directory:?} is not an absolute path without \"..\"");
            rules.say(join(path, "directory"), message, "write a path such as /work");
        }
        if let Some(user) = plain_text(spec, "user").filter(|user| !is_user(user)) {
            let message = format!("{user:?} is not a user");
            rules.say(join(path, "user"), message, "write a number or a name, and after a colon a group: 1000:1000");
        }
        devices(spec, path, rules);
        mounts(spec, path, rules);
    }

    /// Without mounts no installed system is looked for.
    fn means_written_disk(spec: &Map<String, Value>) -> bool {
        spec.get("mounts").and_then(Value::as_array).is_some_and(|mounts| !mounts.is_empty())
    }

    fn downloads(&self) -> Vec<Download> {
        vec![Download { urls: vec![self.image.clone()], access: self.access.clone().unwrap_or_default() }]
    }
}

fn words(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    for field in ["command", "args"] {
        let Some(words) = spec.get(field).and_then(Value::as_array) else { continue };
        let at = join(path, field);
        let first = words.first().map(|first| first.as_str().is_some_and(|text| text.trim().is_empty()));
        if field == "command" && first.unwrap_or(true) {
            rules.say(&at, "the command names no program", "write the program's name as the first item");
        }
        if words.len() > MAX_WORDS {
            let message = format!("{field} has {} items; the limit is {MAX_WORDS}", words.len());
            rules.say(&at, message, "write a script into the image");
        }
        for (index, word) in words.iter().enumerate() {
            if let Some(fault) = word.as_str().and_then(word_fault) {
                rules.say(format!("{at}[{index}]"), fault, "shorten the item, or write a script into the image");
            }
        }
    }
}

fn devices(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let mut names = BTreeSet::new();
    for (at, device) in named(spec, "devices", path, rules) {
        rules.selector(device.get("disk"), &join(&at, "disk"));
        let Some(name) = plain_text(device, "path") else { continue };
        if !is_device(name) {
            let message = format!("{name:?} cannot be a disk's name in a container");
            let hint = "write /dev/ and letters that no other device there has, such as /dev/target";
            rules.say(join(&at, "path"), message, hint);
        } else if !names.insert(name) {
            rules.say(join(&at, "path"), format!("two disks are called {name}"), "give each its own name");
        }
    }
}

fn mounts(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let mut places = BTreeSet::new();
    for (at, mount) in named(spec, "mounts", path, rules) {
        if let Some(from) = plain_text(mount, "from").filter(|from| !is_directory(from)) {
            let message = format!("{from:?} is not an absolute path without \"..\"");
            rules.say(join(&at, "from"), message, "write a path of the installed system, such as / or /etc");
        }
        let Some(to) = plain_text(mount, "to") else { continue };
        let plain =
            format!("/{}", to.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/"));
        let is_kernels =
            KERNELS.iter().any(|own| plain.strip_prefix(own).is_some_and(|rest| !rest.starts_with(|c| c != '/')));
        if !is_directory(to) || plain == "/" || is_kernels {
            let message = format!("{to:?} cannot be where a directory is mounted in a container");
            let hint = "write an absolute path other than /, and not below /dev, /proc or /sys, such as /mnt";
            rules.say(join(&at, "to"), message, hint);
        } else if !places.insert(plain) {
            rules.say(join(&at, "to"), format!("two directories are mounted at {to}"), "give each its own place");
        }
    }
    if spec.get("disk").is_some_and(|disk| !disk.is_null()) && !RunContainerSpec::means_written_disk(spec) {
        let hint = "add mounts of that disk's system, or remove disk; a disk that it may write stands in devices";
        rules.say(join(path, "disk"), "disk says which system mounts are of, and there are no mounts", hint);
    }
}

/// The items of a list, each with its path.
fn named<'v>(
    spec: &'v Map<String, Value>, field: &str, path: &str, rules: &mut Rules<'_>,
) -> Vec<(String, &'v Map<String, Value>)> {
    let items = spec.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if items.len() > MAX_NAMED {
        let message = format!("there are {} {field}; the limit is {MAX_NAMED}", items.len());
        rules.say(join(path, field), message, "divide the work among several actions");
    }
    let at = join(path, field);
    items.iter().enumerate().filter_map(|(n, item)| Some((format!("{at}[{n}]"), item.as_object()?))).collect()
}

/// A name, or a number, and a group.
fn is_user(text: &str) -> bool {
    let part = |part: &str| {
        (1..=64).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.$".contains(&b))
    };
    text.split(':').count() <= 2 && text.split(':').all(part)
}

/// Without a digit at its end, which would make it another disk's partition.
fn is_device(path: &str) -> bool {
    let letter = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphabetic());
    path.strip_prefix("/dev/").is_some_and(|name| {
        name.len() <= 64
            && letter(name.bytes().next())
            && letter(name.bytes().next_back())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
            && !OWN_DEVICES.contains(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_with_a_secret_are_kept_from_the_log() {
        let spec = |token: &str| RunContainerSpec {
            env: [("MODE".into(), "fast".into()), ("TOKEN".into(), token.into())].into(),
            ..RunContainerSpec::default()
        };
        let sent = spec("geheim").resolved(&spec("{{ secrets.a.b }}")).unwrap();
        assert_eq!(sent.variables.iter().map(|v| v.secret).collect::<Vec<_>>(), [false, true]);
    }
}
