//! Which crate may know which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;

/// What one crate of the workspace may depend on.
pub struct Wall {
    /// The crate.
    pub name: &'static str,
    /// The crates of this workspace that it may depend on.
    pub may: &'static [&'static str],
    /// Those that its tests may depend on beside them.
    pub tests: &'static [&'static str],
    /// Crates from elsewhere that must not stand anywhere in its dependency tree.
    pub never: &'static [&'static str],
}

/// Asynchronous runtimes, and what brings one along.
const RUNTIMES: &[&str] =
    &["tokio", "tonic", "hyper", "axum", "reqwest", "async-std", "smol", "async-executor", "async-io", "mio"];

/// Those, and what writes logs, keeps a store or opens a connection.
const IMPURE: &[&str] = &[
    "tokio", "tonic", "hyper", "axum", "reqwest", "async-std", "smol", "async-executor", "async-io", "mio",
    "futures-executor", "prost", "tracing", "rusqlite", "nix",
];

/// Every crate of the workspace, from what knows nothing to what knows most. One that is not here is an error.
pub const WALLS: &[Wall] = &[
    Wall { name: "landfall-api", may: &[], tests: &[], never: RUNTIMES },
    Wall { name: "landfall-proto", may: &["landfall-api"], tests: &[], never: &[] },
    Wall { name: "landfall-pin", may: &["landfall-api"], tests: &[], never: RUNTIMES },
    Wall { name: "landfall-disk", may: &["landfall-api"], tests: &[], never: &["tonic", "axum"] },
    Wall { name: "landfall-plan", may: &["landfall-api"], tests: &[], never: IMPURE },
    Wall { name: "landfall-session", may: &["landfall-api", "landfall-pin", "landfall-proto"], tests: &[], never: &[] },
    Wall {
        name: "landfall-agent",
        may: &["landfall-api", "landfall-disk", "landfall-proto", "landfall-session"],
        tests: &[],
        never: &[],
    },
    Wall {
        name: "landfall-worker",
        may: &["landfall-api", "landfall-disk", "landfall-plan", "landfall-proto", "landfall-unpack"],
        tests: &[],
        never: &[],
    },
    Wall { name: "landfall-unpack", may: &["landfall-api"], tests: &[], never: RUNTIMES },
    Wall { name: "landfall-machine", may: &["landfall-api"], tests: &[], never: IMPURE },
    Wall { name: "landfall-edge", may: &["landfall-api"], tests: &[], never: &["tonic", "rusqlite"] },
    Wall {
        name: "landfall-store",
        may: &["landfall-api", "landfall-edge"],
        tests: &["landfall-postgres"],
        never: &["tonic"],
    },
    Wall { name: "landfall-boot", may: &["landfall-api", "landfall-edge"], tests: &[], never: &["tonic", "rusqlite"] },
    Wall { name: "landfall-bmc", may: &["landfall-api"], tests: &["landfall-bmcsim"], never: &["tonic", "rusqlite"] },
    Wall {
        name: "landfall-coordinator",
        may: &[
            "landfall-api", "landfall-bmc", "landfall-boot", "landfall-edge", "landfall-machine", "landfall-proto",
            "landfall-store",
        ],
        tests: &["landfall-bmcsim", "landfall-client", "landfall-postgres", "landfall-session"],
        never: &[],
    },
    Wall { name: "landfall-client", may: &["landfall-api", "landfall-pin"], tests: &[], never: &["tonic", "rusqlite"] },
    Wall { name: "landfall-import", may: &["landfall-api"], tests: &[], never: IMPURE },
    Wall {
        name: "landfall",
        may: &["landfall-api", "landfall-client", "landfall-import", "landfall-pin"],
        tests: &[],
        never: &["tonic", "rusqlite"],
    },
    Wall { name: "landfall-image", may: &["landfall-api", "landfall-disk"], tests: &[], never: &["tonic", "rusqlite"] },
    Wall {
        name: "landfall-lab",
        may: &[
            "landfall-api", "landfall-bmcsim", "landfall-client", "landfall-disk", "landfall-image",
            "landfall-postgres", "landfall-session",
        ],
        tests: &[],
        never: &[],
    },
    Wall {
        name: "landfall-sim",
        may: &[
            "landfall-api", "landfall-bmcsim", "landfall-edge", "landfall-postgres", "landfall-proto",
            "landfall-session",
        ],
        tests: &["landfall-boot", "landfall-coordinator", "landfall-store"],
        never: &[],
    },
    Wall { name: "landfall-disk-fuzz", may: &["landfall-api", "landfall-disk"], tests: &[], never: &[] },
    Wall { name: "landfall-agent-fuzz", may: &["landfall-api", "landfall-unpack"], tests: &[], never: RUNTIMES },
    Wall {
        name: "landfall-coordinator-fuzz",
        may: &["landfall-api", "landfall-boot", "landfall-coordinator", "landfall-proto", "landfall-store"],
        tests: &[],
        never: &[],
    },
    Wall {
        name: "landfall-corpora",
        may: &[],
        tests: &[
            "landfall-agent-fuzz", "landfall-api", "landfall-boot", "landfall-coordinator",
            "landfall-coordinator-fuzz", "landfall-disk", "landfall-disk-fuzz", "landfall-proto", "landfall-store",
            "landfall-unpack",
        ],
        never: &[],
    },
    Wall { name: "landfall-bmcsim", may: &[], tests: &[], never: &["tonic", "rusqlite"] },
    Wall { name: "landfall-postgres", may: &[], tests: &[], never: RUNTIMES },
    Wall { name: "landfall-golden", may: &[], tests: &[], never: RUNTIMES },
    Wall { name: "landfall-house", may: &[], tests: &[], never: RUNTIMES },
];

/// What any crate's tests may depend on: recorded data, which knows no crate.
const ANY_TESTS: &[&str] = &["landfall-golden"];

/// A crate of the workspace, and those of the workspace that it depends on: by itself, and its tests only.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// As a normal or build dependency.
    pub itself: BTreeSet<String>,
    /// As a development dependency.
    pub tests: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .arg("--locked")
        .current_dir(root)
        // Of one crate alone, without what others in the workspace switch on.
        .env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION")
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "cargo {} failed: {errors}", arguments.join(" "));
    String::from_utf8(output.stdout).context("cargo printed what is no UTF-8")
}

/// What the workspace's crates know of one another, from `cargo metadata`.
///
/// # Errors
/// Cargo fails.
pub fn workspace(root: &Path) -> anyhow::Result<BTreeMap<String, Known>> {
    let json = cargo(root, &["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Metadata = serde_json::from_str(&json).context("cargo metadata printed what is no metadata")?;
    let members: BTreeSet<_> = metadata.packages.iter().map(|package| package.name.clone()).collect();
    let known = metadata.packages.into_iter().map(|package| {
        let mut known = Known::default();
        for dependency in package.dependencies.into_iter().filter(|dependency| members.contains(&dependency.name)) {
            let tests = dependency.kind.as_deref() == Some("dev");
            if tests { &mut known.tests } else { &mut known.itself }.insert(dependency.name);
        }
        (package.name, known)
    });
    Ok(known.collect())
}

/// Every crate in the dependency tree of one, without what its tests need, from `cargo tree`.
///
/// # Errors
/// Cargo fails.
pub fn dependencies(root: &Path, name: &str) -> anyhow::Result<BTreeSet<String>> {
    let lines = cargo(root, &["tree", "--package", name, "--edges", "normal", "--prefix", "none", "--format", "{p}"])?;
    let names = lines.lines().filter_map(|line| line.split(' ').next());
    Ok(names.filter(|found| *found != name).map(str::to_owned).collect())
}

/// What breaks the walls, as sentences: a crate without a wall, a wall without a crate, a dependency that is not allowed.
pub fn broken(walls: &[Wall], workspace: &BTreeMap<String, Known>) -> Vec<String> {
    let mut found = Vec::new();
    for name in workspace.keys().filter(|name| walls.iter().all(|wall| wall.name != **name)) {
        found.push(format!("{name} has no wall; say in tests/house/src/walls.rs what it may depend on"));
    }
    for wall in walls {
        let Some(known) = workspace.get(wall.name) else {
            found.push(format!("{} has a wall and is no crate of the workspace", wall.name));
            continue;
        };
        for other in known.itself.iter().filter(|other| !wall.may.contains(&other.as_str())) {
            found.push(format!("{} must not depend on {other}", wall.name));
        }
        let allowed =
            |other: &&String| [wall.may, wall.tests, ANY_TESTS].iter().any(|names| names.contains(&other.as_str()));
        for other in known.tests.iter().filter(|other| !allowed(other)) {
            found.push(format!("the tests of {} must not depend on {other}", wall.name));
        }
    }
    found
}

/// The walls a crate's dependencies from elsewhere break.
pub fn forbidden<'a>(wall: &Wall, dependencies: &'a BTreeSet<String>) -> Vec<&'a str> {
    dependencies.iter().map(String::as_str).filter(|name| wall.never.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[Wall] = &[
        Wall { name: "low", may: &[], tests: &["high"], never: &["tokio"] },
        Wall { name: "high", may: &["low"], tests: &[], never: &[] },
    ];

    fn known(itself: &[&str], tests: &[&str]) -> Known {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Known { itself: set(itself), tests: set(tests) }
    }

    #[test]
    fn each_kind_of_break_is_named() {
        let good = BTreeMap::from([("low".into(), known(&[], &["high"])), ("high".into(), known(&["low"], &[]))]);
        assert!(broken(TWO, &good).is_empty());
        let bad = BTreeMap::from([("low".into(), known(&["high"], &[])), ("new".into(), known(&[], &[]))]);
        let sentences = broken(TWO, &bad).join("\n");
        for part in ["new has no wall", "low must not depend on high", "high has a wall and is no crate"] {
            assert!(sentences.contains(part), "{sentences}");
        }
    }

    #[test]
    fn a_forbidden_crate_is_found_in_the_tree() {
        let tree = ["jiff", "tokio"].map(str::to_owned).into();
        assert_eq!(forbidden(&TWO[0], &tree), ["tokio"]);
    }
}
