//! Host keys of the SSH server. Fedora's server makes missing ones when it starts, Debian's does not; so they are made now, by the
//! system's own `ssh-keygen -A`: the kinds and the format that its own server reads.

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use landfall_api::{ErrorCode, Problem};
use nix::{sched::CloneFlags, unistd::sethostname};

use super::super::files::{Attributes, Files};
use super::super::inside;
use super::names::short;
use crate::{Failure, Reporter};

const FOLDER: &str = "/etc/ssh";
/// Where they are made: a file system in memory, which vanishes with its thread.
const SPARE: &str = "/run/landfall-keys";

/// A new key's file: name, content, permission bits.
type Key = (String, Vec<u8>, u32);

/// Whether the system has an SSH server, or keys of one.
///
/// # Errors
/// It has no program that makes keys; the file system's.
pub(super) fn wanted(files: &Files) -> Result<bool, Failure> {
    let one_of = |paths: &[&str]| paths.iter().any(|path| files.has(path));
    let server = one_of(&["/usr/sbin/sshd", "/usr/bin/sshd", "/usr/local/sbin/sshd"]);
    if !server && !files.names(FOLDER)?.iter().any(|name| is_key(name)) {
        return Ok(false);
    }
    if one_of(&["/usr/bin/ssh-keygen", "/usr/local/bin/ssh-keygen"]) { Ok(true) } else { Err(no_program()) }
}

fn no_program() -> Failure {
    inside::no_program("ssh-keygen", "openssh-client (Debian, Ubuntu) or openssh")
}

/// Keys that are not made anew, and are the same on every copy of the system: each by its path.
///
/// # Errors
/// The file system's.
pub(super) fn others(files: &Files) -> Result<Vec<String>, Failure> {
    let dropbear = files.names("/etc/dropbear")?.into_iter().filter(|name| name.ends_with("_host_key"));
    let mut paths: Vec<_> = dropbear.map(|name| format!("/etc/dropbear/{name}")).collect();
    let config = files.text(&format!("{FOLDER}/sshd_config"))?.unwrap_or_default();
    for line in config.lines() {
        let mut words = line.split_whitespace();
        let is_key = words.next().is_some_and(|word| word.eq_ignore_ascii_case("HostKey"));
        let path = words.next().filter(|path| is_key && !path.starts_with(&format!("{FOLDER}/ssh_host_")));
        paths.extend(path.filter(|path| files.has(path)).map(str::to_owned));
    }
    Ok(paths)
}

/// Makes new keys and removes the old ones.
///
/// # Errors
/// The program's, the file system's.
pub(super) fn renew(report: &Reporter, root: &Path, files: &Files, hostname: &str) -> Result<(), Failure> {
    let new = inside::inside(root, &[], || made(report, hostname))?;
    for (name, content, mode) in &new {
        let path = format!("{FOLDER}/{name}");
        files.put(&path, content, Attributes::of_root(*mode))?;
        files.relabel(&path, "sshd_key_t")?;
    }
    // Certificates of old keys, and keys of a kind that the server no longer has.
    for name in files.names(FOLDER)?.iter().filter(|name| is_key(name) && new.iter().all(|(new, ..)| new != *name)) {
        files.remove(&format!("{FOLDER}/{name}"))?;
    }
    Ok(())
}

/// `ssh_host_ed25519_key`, with `.pub` and `-cert.pub`.
fn is_key(name: &str) -> bool {
    name.starts_with("ssh_host_") && (name.ends_with("_key") || name.contains("_key.pub") || name.contains("_key-cert"))
}

/// New keys, made in the new system.
fn made(report: &Reporter, hostname: &str) -> Result<Vec<Key>, Failure> {
    let program = inside::program("ssh-keygen");
    let program = program.ok_or_else(no_program)?;
    let folder = format!("{SPARE}{FOLDER}");
    // It writes the host's name into the public keys: that of this thread and of what it starts.
    nix::sched::unshare(CloneFlags::CLONE_NEWUTS)
        .and_then(|()| sethostname(short(hostname)))
        .map_err(|e| io(e.into()))?;
    fs::create_dir_all(&folder).map_err(io)?;
    inside::run(report, &program, &["-A", "-f", SPARE], &[])?;
    let mut keys = Vec::new();
    for entry in fs::read_dir(&folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let mode = entry.metadata().map_err(io)?.permissions().mode() & 0o777;
        keys.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).map_err(io)?, mode));
    }
    if keys.is_empty() {
        let problem = Problem::new(ErrorCode::ProgramFailed, "ssh-keygen -A of the new system made no host keys");
        return Err(Failure::last(
            problem.hint("install a newer OpenSSH in what is unpacked, or write hostKeys: keep"),
        ));
    }
    Ok(keys)
}

fn io(error: io::Error) -> Failure {
    let problem = Problem::new(ErrorCode::ProgramFailed, "cannot make host keys in the new system").caused_by(&error);
    Failure::last(problem.hint("report this with the workflow's log"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::testing::{caged, caged_in};

    #[test]
    fn keys_and_certificates_are_known_by_their_names() {
        for key in ["ssh_host_rsa_key", "ssh_host_rsa_key.pub", "ssh_host_ed25519_key-cert.pub"] {
            assert!(is_key(key), "{key}");
        }
        for other in ["sshd_config", "ssh_config.d", "moduli", "ssh_import_id"] {
            assert!(!is_key(other), "{other}");
        }
    }

    #[test]
    fn only_a_system_with_an_ssh_server_wants_keys() {
        caged(|| {
            fs::create_dir("/root").unwrap();
            let files = Files::of(Path::new("/root")).unwrap();
            assert!(!wanted(&files).unwrap());
            files.put("/usr/bin/ssh-keygen", b"", Attributes::of_root(0o755)).unwrap();
            assert!(!wanted(&files).unwrap());
            files.put("/etc/ssh/ssh_host_rsa_key", b"", Attributes::of_root(0o600)).unwrap();
            assert!(wanted(&files).unwrap());
            files.remove("/usr/bin/ssh-keygen").unwrap();
            let problem = wanted(&files).unwrap_err().problem;
            assert!(problem.message.contains("ssh-keygen") && problem.hint.contains("openssh"), "{problem}");
        });
    }

    #[test]
    fn keys_that_stay_are_named() {
        caged(|| {
            fs::create_dir("/root").unwrap();
            let files = Files::of(Path::new("/root")).unwrap();
            let config =
                "#HostKey /keys/none\nHostKey /etc/ssh/ssh_host_rsa_key\nhostkey /keys/own\nHostKey /keys/gone\n";
            for (path, text) in [
                ("/etc/ssh/sshd_config", config),
                ("/etc/ssh/ssh_host_rsa_key", ""),
                ("/keys/own", ""),
                ("/etc/dropbear/dropbear_rsa_host_key", ""),
            ] {
                files.put(path, text.as_bytes(), Attributes::of_root(0o600)).unwrap();
            }
            assert_eq!(others(&files).unwrap(), ["/etc/dropbear/dropbear_rsa_host_key", "/keys/own"]);
        });
    }

    /// A directory with a root that has the machine's own `ssh-keygen` and what it loads; `None`: it has none.
    fn with_program() -> Option<tempfile::TempDir> {
        let listed = Command::new("ldd").arg("/usr/bin/ssh-keygen").output().ok().filter(|out| out.status.success())?;
        let listed = String::from_utf8(listed.stdout).unwrap();
        let cage = tempfile::tempdir().unwrap();
        let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
        for path in libraries.chain(["/usr/bin/ssh-keygen"]) {
            let place = cage.path().join("root").join(path.trim_start_matches('/'));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            // Not written here: a child of another test might hold it open, and it could not be run.
            assert!(Command::new("cp").args(["-L", path]).arg(&place).status().unwrap().success());
        }
        Some(cage)
    }

    #[test]
    fn new_keys_are_the_systems_own_and_old_ones_go() {
        let Some(cage) = with_program() else {
            eprintln!("SKIPPED: it needs ssh-keygen");
            return;
        };
        caged_in(cage.path(), || {
            let root = Path::new("/root");
            let files = Files::of(root).unwrap();
            for (path, text) in [
                ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
                ("/etc/ssh/ssh_host_ed25519_key", "old"),
                ("/etc/ssh/ssh_host_dsa_key.pub", "old"),
                ("/etc/ssh/sshd_config", "own"),
            ] {
                files.put(path, text.as_bytes(), Attributes::of_root(0o644)).unwrap();
            }
            renew(&Reporter::new(io::sink()), root, &files, "node-17.example.net").unwrap();
            let names = files.names(FOLDER).unwrap();
            assert!(
                names.contains(&"ssh_host_rsa_key".into()) && !names.contains(&"ssh_host_dsa_key.pub".into()),
                "{names:?}"
            );
            let public = files.text("/etc/ssh/ssh_host_ed25519_key.pub").unwrap().unwrap();
            assert!(public.starts_with("ssh-ed25519 AAAA") && public.ends_with("root@node-17\n"), "{public}");
            assert!(files.text("/etc/ssh/ssh_host_ed25519_key").unwrap().unwrap().contains("PRIVATE KEY"));
            assert_eq!(files.attributes("/etc/ssh/ssh_host_ed25519_key").unwrap(), Attributes::of_root(0o600));
            assert_eq!(files.text("/etc/ssh/sshd_config").unwrap().as_deref(), Some("own"));
            assert_eq!(files.names("/run").unwrap(), [""; 0], "they were made in memory");
            assert!(!Path::new("/run").exists(), "outside of the new system");
        });
    }
}
