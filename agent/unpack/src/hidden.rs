//! Places that the running system will mount over: a file put there now would be hidden then.

use std::os::fd::{AsRawFd, OwnedFd};

use landfall_api::message::HiddenPoint;
use rustix::fs::{CWD, readlinkat};
use rustix::io::Errno;

use crate::resolve::in_root;

/// The places of one system.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    /// Without a leading slash, and why; as written and, where that is another place, as links lead there.
    points: Vec<(Vec<u8>, String)>,
    /// Where the system's root is now.
    root: Vec<u8>,
}

impl Hidden {
    pub(crate) fn new(system: &OwnedFd, points: &[HiddenPoint]) -> Result<Self, Errno> {
        let mut hidden = Self { points: Vec::new(), root: place(system)? };
        for HiddenPoint { point, why } in points {
            let written = point.trim_matches('/').as_bytes();
            let real = match in_root(system, written) {
                Ok(open) => hidden.real(&open)?,
                Err(_) => None,
            };
            hidden.points.extend(real.into_iter().chain([written.to_vec()]).map(|point| (point, why.clone())));
        }
        Ok(hidden)
    }

    /// What hides this place, by its name alone.
    pub(crate) fn by_name(&self, place: &[u8]) -> Option<&str> {
        let covers = |point: &[u8]| {
            let rest = place.strip_prefix(point);
            rest.is_some_and(|rest| point.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
        };
        self.points.iter().find(|(point, _)| covers(point)).map(|(_, why)| why.as_str())
    }

    /// What hides this directory, whatever links led there.
    pub(crate) fn by_place(&self, directory: &OwnedFd) -> Result<Option<&str>, Errno> {
        if self.points.is_empty() {
            return Ok(None);
        }
        Ok(self.real(directory)?.and_then(|place| self.by_name(&place)))
    }

    /// Its place in the system.
    fn real(&self, directory: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
        let place = place(directory)?;
        let below = place.strip_prefix(self.root.as_slice());
        Ok(below.map(|below| below.strip_prefix(b"/").unwrap_or(below).to_vec()))
    }
}

fn place(directory: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let path = readlinkat(CWD, format!("/proc/self/fd/{}", directory.as_raw_fd()), Vec::new())?;
    let mut path = path.into_bytes();
    // The root of everything ends with the slash that parts of others begin with.
    path.pop_if(|last| *last == b'/');
    Ok(path)
}
