//! An installed system in memory, in place of the agent's `rootfs`.

use std::{collections::BTreeMap, io};

/// Files by path.
#[derive(Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

/// What is asked of a file system here.
pub(crate) struct FileSystem {
    pub(crate) uuid: String,
}

impl Tree {
    pub(crate) fn put(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), text.to_owned());
    }

    pub(crate) fn read_text(&self, path: &str) -> io::Result<Option<String>> {
        Ok(self.files.get(path).cloned())
    }

    pub(crate) fn names(&self, directory: &str) -> io::Result<Vec<String>> {
        let inside = |path: &String| path.strip_prefix(directory)?.strip_prefix('/').map(str::to_owned);
        Ok(self.files.keys().filter_map(inside).filter(|name| !name.contains('/')).collect())
    }
}
