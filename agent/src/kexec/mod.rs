//! Starting an installed system's own kernel from the running one: which kernel, which command line, and handing both
//! to the running kernel. PID 1 makes the jump (`pid1::power`), after the report.
//!
//! All choices are made over a directory tree, so they are tested without a machine.

mod cmdline;
mod entries;
mod grub;
mod kernel;
mod load;
mod version;
mod words;

use std::ffi::CString;

use self::cmdline::Root;
use self::entries::Entry;
use self::kernel::{Kernel, find};
pub(crate) use self::load::Refused;
use crate::rootfs::{ReachError, System, Tree};

/// A kernel of an installed system, open and ready to be loaded.
#[derive(Debug)]
pub(crate) struct Chosen {
    kernel: Kernel,
    cmdline: String,
    from: String,
}

/// No kernel can be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// None was found; one sentence for each place that was looked at.
    #[error("the installed system has no kernel with an initramfs: {}", .0.join("; "))]
    NotFound(Vec<String>),
    /// The system says that its `/boot` is elsewhere, and it cannot be reached.
    #[error("{0}")]
    NoBoot(String),
    /// The command line cannot be handed over.
    #[error("the command line from {from} {what}")]
    Cmdline { from: String, what: String },
    /// The running kernel refuses it.
    #[error("{path} of the installed system cannot be loaded")]
    Refused {
        path: String,
        #[source]
        source: Refused,
    },
}

/// Chooses the kernel of the installed system whose files are `tree`, and mounts below its root what that takes. `cmdline` is
/// a person's own line.
///
/// # Errors
/// [`Error`]
pub(crate) fn choose(
    system: &mut System, tree: &Tree, cmdline: Option<&str>, cancelled: &dyn Fn() -> bool,
) -> Result<Chosen, Error> {
    let mut looked = Vec::new();
    system.mount_listed(tree, "/boot", cancelled).map_err(|e| Error::NoBoot(e.to_string()))?;
    let mut found = look(tree, &mut looked);
    if found.is_none() {
        // systemd-boot keeps its kernels on the EFI system partition; fstab need not say so.
        mount_more(system, tree, cancelled, &mut looked);
        found = look(tree, &mut looked);
    }
    let (kernel, entries) = found.ok_or_else(|| {
        looked.dedup();
        Error::NotFound(looked)
    })?;
    let (cmdline, from) = match cmdline {
        Some(line) => (line.to_owned(), "the action".to_owned()),
        None => {
            let root = system.root();
            let boot = &system.mounted_at("/boot").unwrap_or(root).file_system;
            let root = Root { file_system: &root.file_system, boot, option: root.option.as_deref() };
            let line = cmdline::discover(tree, &kernel.kernel.path, &entries, &root);
            (line.text, line.from)
        }
    };
    Ok(Chosen { kernel, cmdline, from })
}

fn look(tree: &Tree, looked: &mut Vec<String>) -> Option<(Kernel, Vec<Entry>)> {
    let entries = entries::read(tree, &cmdline::grub_environment(tree), looked);
    Some((find(tree, &entries, looked)?, entries))
}

/// Mounts further partitions on which kernels may be.
fn mount_more(system: &mut System, tree: &Tree, cancelled: &dyn Fn() -> bool, looked: &mut Vec<String>) {
    let mut note = |mounted: Result<bool, ReachError>| looked.extend(mounted.err().map(|e| e.to_string()));
    note(system.mount_listed(tree, "/efi", cancelled));
    note(system.mount_listed(tree, "/boot/efi", cancelled));
    if system.mounted_at("/boot").is_none() {
        note(system.mount_typed(tree, "/boot", cancelled));
    }
}

impl Chosen {
    /// Paths of kernel and initramfs inside the installed system.
    pub(crate) fn paths(&self) -> (&str, &str) {
        (&self.kernel.kernel.path, &self.kernel.initramfs.path)
    }

    /// The command line without what may be a secret, and where it comes from.
    pub(crate) fn shown(&self) -> (String, &str) {
        (cmdline::redacted(&self.cmdline), &self.from)
    }

    /// Hands it to the running kernel.
    ///
    /// # Errors
    /// [`Error::Cmdline`], [`Error::Refused`].
    pub(crate) fn load(&self) -> Result<(), Error> {
        let what = |what: String| Error::Cmdline { from: self.from.clone(), what };
        let most = landfall_api::KexecSpec::MAX_CMDLINE;
        if self.cmdline.len() > most {
            return Err(what(format!("has {} bytes, but the kernel's limit is {most}", self.cmdline.len())));
        }
        let line = CString::new(self.cmdline.as_str()).map_err(|_| what("holds a NUL".into()))?;
        load::load(&self.kernel.kernel.file, &self.kernel.initramfs.file, &line)
            .map_err(|source| Error::Refused { path: self.kernel.kernel.path.clone(), source })
    }
}
