//! Databases for the tests of this store.

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use landfall_postgres::Server;

use super::PostgresOptions;

/// What all tests of this process share.
static SHARED: LazyLock<Server> = LazyLock::new(|| Server::start(&[]));

/// A new database on the server that this process shares.
pub(crate) fn database() -> PostgresOptions {
    SHARED.database()
}

/// The same whose key is in this directory.
pub(crate) fn database_of(key_dir: &Path) -> PostgresOptions {
    PostgresOptions::new(&SHARED.create(), key_dir).unwrap()
}

/// A server's databases, as a store opens them.
pub(crate) trait Databases {
    /// A new database, with a directory for its key.
    fn database(&self) -> PostgresOptions;
}

impl Databases for Server {
    fn database(&self) -> PostgresOptions {
        static KEYS: AtomicU32 = AtomicU32::new(0);
        let key_dir = self.dir().join(format!("key{}", KEYS.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir(&key_dir).unwrap();
        PostgresOptions::new(&self.create(), &key_dir).unwrap()
    }
}
