//! A PostgreSQL server for tests: Debian's programs, a new directory, a Unix socket, and every write flushed as in earnest.
//!
//! A shell holds the server, and has this process at the other end of its standard input: whatever ends this process, the shell
//! reads the end of the file, kills the server and removes its directory.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

mod pooler;

pub use pooler::{Pooler, Running};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Where Debian has the programs of each version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// For each step of a start; a busy machine takes a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// Starts the server `$2…` of the directory `$1` again and again, as often as a line is read.
const KEEPER: &str = r#"dir=$1; shift
while read -r _; do "$@" >>"$dir/log" 2>&1 & done
kill -QUIT $!; wait; rm -rf "$dir""#;

/// A server, until dropped.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    programs: PathBuf,
    keeper: Option<(Child, ChildStdin)>,
    databases: AtomicU32,
    port: u16,
}

impl Server {
    /// A server with these settings besides.
    pub fn start(settings: &[&str]) -> Self {
        Self::prepared(settings, 5432, &[])
    }

    /// The same at another port, with these files in its data directory.
    pub fn prepared(settings: &[&str], port: u16, files: &[(&str, String)]) -> Self {
        let mut server = Self::without_data(settings, port);
        let (dir, programs) = (&server.dir, &server.programs);
        let initdb = ["--no-sync", "--auth=trust", "--username=landfall", "--encoding=UTF8", "--locale=C"];
        let initdb = as_server(&programs.join("initdb")).args(initdb).arg("-D").arg(dir.join("data")).output().unwrap();
        assert!(initdb.status.success(), "{}", String::from_utf8_lossy(&initdb.stderr));
        for (name, text) in files {
            let path = dir.join("data").join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            give(&path);
        }
        server.start_again();
        server
    }

    /// A synchronous standby of another one, with these settings.
    pub fn standby(primary: &Self, settings: &[&str], port: u16) -> Self {
        let mut server = Self::without_data(settings, port);
        server.follow(primary);
        server
    }

    fn without_data(settings: &[&str], port: u16) -> Self {
        let programs = programs();
        let dir = tempfile::Builder::new().prefix("landfall-postgres-").tempdir().unwrap().keep();
        give(&dir);
        let mut server = as_server(&programs.join("postgres"));
        server.arg("-D").arg(dir.join("data")).args(["-c", "listen_addresses=", "-c", "unix_socket_directories=.."]);
        server.arg("-p").arg(port.to_string()).args(settings.iter().flat_map(|setting| ["-c", setting]));
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]).arg(&dir).arg(server.get_program()).args(server.get_args());
        // In a group of its own, so that it outlives whatever kills this process's.
        keeper.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = keeper.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        Self { dir, programs, keeper: Some((child, input)), databases: AtomicU32::new(0), port }
    }

    /// After [`Self::crash`].
    pub fn start_again(&mut self) {
        use std::io::Write as _;
        self.keeper.as_mut().unwrap().1.write_all(b"start\n").unwrap();
        let begun = Instant::now();
        let port = self.port.to_string();
        let ready =
            || Command::new(self.programs.join("pg_isready")).args(["-qp", &port, "-h"]).arg(&self.dir).status();
        while !ready().unwrap().success() {
            let log = || std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "PostgreSQL did not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it at once, as a crash would.
    pub fn crash(&self) {
        let mut stop = as_server(&self.programs.join("pg_ctl"));
        let stopped = stop.args(["stop", "-m", "immediate", "-D"]).arg(self.dir.join("data")).output().unwrap();
        assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
    }

    /// Gives up its data for a copy of another server's, and follows that one as its synchronous standby: from then on that one answers no
    /// commit that this one does not have.
    pub fn follow(&mut self, primary: &Self) {
        let data = self.dir.join("data");
        if data.join("postmaster.pid").exists() {
            self.crash();
        }
        if data.exists() {
            std::fs::remove_dir_all(&data).unwrap();
        }
        let mut copy = as_server(&self.programs.join("pg_basebackup"));
        copy.args(["--checkpoint=fast", "--write-recovery-conf", "--no-sync", "--username=landfall"])
            .arg("-D")
            .arg(data);
        let copied = copy.args(["-p", &primary.port.to_string(), "-h"]).arg(&primary.dir).output().unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        self.start_again();
        primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        primary.sql("postgres", "SELECT pg_reload_conf()");
        primary.until("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1");
    }

    /// Makes a standby the server that takes writes.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()"), "t", "it does not take writes after 60 s");
    }

    /// What makes a backup of it: it takes the server's log, as an archive does. Until dropped.
    pub fn receives_log(&self) -> Running {
        let directory = self.dir.join("archive");
        std::fs::create_dir(&directory).unwrap();
        give(&directory);
        self.receives("pg_receivewal", &["--no-loop", &format!("--directory={}", directory.display())])
    }

    /// What reads the changes of a database, as a subscriber does. The server's `wal_level` must be `logical`.
    pub fn receives_changes(&self, database: &str) -> Running {
        let of = format!("--dbname={database}");
        let words = [
            "--no-loop", "--create-slot", "--start", "--slot=changes", "--plugin=test_decoding", "--file=/dev/null",
            &of,
        ];
        self.receives("pg_recvlogical", &words)
    }

    fn receives(&self, program: &str, words: &[&str]) -> Running {
        let mut receive = as_server(&self.programs.join(program));
        receive.args(words).args(["--username=landfall", "-p", &self.port.to_string(), "-h"]).arg(&self.dir);
        let running = Running::start(&mut receive);
        let connected = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE application_name = '{program}' AND state = 'streaming'"
        );
        self.until(&connected, "1");
        running
    }

    /// Waits until a statement answers this.
    fn until(&self, statement: &str, expected: &str) {
        let begun = Instant::now();
        while self.sql("postgres", statement) != expected {
            assert!(begun.elapsed() < PATIENCE, "{statement}: not {expected}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A new database, empty; its name is `test0`, and one more for each that follows. Answers its URL.
    pub fn create(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        format!("postgresql://landfall@/{name}?host={}&port={}", self.dir.display(), self.port)
    }

    /// Its directory, which goes with it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Rows a second that the server commits, one in each transaction, like one of the table `events` with a text of so many bytes: by
    /// PostgreSQL's own benchmark, for 32 connections, in 10 s.
    pub fn rows_per_second(&self, database: &str, bytes: u64) -> f64 {
        self.sql(database, "CREATE TABLE bench (LIKE events INCLUDING ALL)");
        let script = self.dir.join("bench.sql");
        let insert = "INSERT INTO bench (workflow, action_index, attempt, seq, json)";
        std::fs::write(&script, format!("{insert} VALUES (gen_random_uuid(), 0, 1, 1, repeat('x', {bytes}));\n"))
            .unwrap();
        let mut bench = Command::new(self.programs.join("pgbench"));
        bench.args([
            "--no-vacuum", "--protocol=prepared", "--client=32", "--jobs=2", "--time=10", "--username=landfall",
        ]);
        bench.arg("-f").arg(script).args(["-p", &self.port.to_string(), "-h"]).arg(&self.dir).arg(database);
        let answer = bench.output().unwrap();
        let said = String::from_utf8(answer.stdout).unwrap();
        let rate =
            said.split("tps = ").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|rate| rate.parse().ok());
        self.sql(database, "DROP TABLE bench");
        rate.unwrap_or_else(|| panic!("pgbench: {said}{}", String::from_utf8_lossy(&answer.stderr)))
    }

    /// What a statement answers, as text.
    pub fn sql(&self, database: &str, statement: &str) -> String {
        self.run("psql", &["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", statement])
    }

    /// Backs a database up, as people do.
    pub fn back_up(&self, database: &str) {
        self.run("pg_dump", &["--format=custom", "--file", &self.backup(database), database]);
    }

    /// Puts the backup of a database in its place, and ends its connections.
    pub fn put_back(&self, database: &str) {
        self.sql("postgres", "CREATE DATABASE restored");
        self.run("pg_restore", &["--exit-on-error", "--dbname=restored", &self.backup(database)]);
        self.sql("postgres", &format!("DROP DATABASE {database} WITH (FORCE)"));
        self.sql("postgres", &format!("ALTER DATABASE restored RENAME TO {database}"));
    }

    fn backup(&self, database: &str) -> String {
        self.dir.join(format!("{database}.backup")).display().to_string()
    }

    /// What one of the client programs says.
    fn run(&self, program: &str, words: &[&str]) -> String {
        let mut client = Command::new(self.programs.join(program));
        client.args(["-p", &self.port.to_string(), "-U", "landfall", "-h"]).arg(&self.dir).args(words);
        let answer = client.output().unwrap();
        assert!(answer.status.success(), "{program}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8(answer.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((mut keeper, input)) = self.keeper.take() {
            drop(input);
            let _gone = keeper.wait();
        }
    }
}

/// Makes the server's user the owner.
fn give(path: &Path) {
    if nix::unistd::geteuid().is_root() {
        let user = nix::unistd::User::from_name("postgres").unwrap().expect("Debian's package makes this user");
        nix::unistd::chown(path, Some(user.uid), Some(user.gid)).unwrap();
    }
}

/// The newest version that is installed.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir(PROGRAMS).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let newest = versions.filter(|bin| bin.join("initdb").exists()).max();
    newest.unwrap_or_else(|| {
        panic!("there is no PostgreSQL in {PROGRAMS}: run scripts/setup, or apt-get install postgresql")
    })
}

/// A program of the server, which root may not run.
fn as_server(program: &Path) -> Command {
    if !nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}
