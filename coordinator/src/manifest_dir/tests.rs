use std::{fs, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration};

use landfall_api::DurationSpec;
use tokio::sync::watch as channel;

use super::*;
use crate::operator::tests::{Api, api};

/// Generous: a loaded machine must not fail a test.
const LIMIT: Duration = Duration::from_secs(60);

struct World {
    coordinator: Arc<Coordinator>,
    dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let Api { coordinator, dir, .. } = api().await;
        fs::create_dir(dir.path().join("m")).unwrap();
        Self { coordinator, dir }
    }
    fn reconciler(&self) -> Reconciler {
        Reconciler::new(self.coordinator.engine.clone(), self.coordinator.store.clone())
    }
    fn directory(&self) -> std::path::PathBuf {
        self.dir.path().join("m")
    }
    fn write(&self, file: &str, text: &str) {
        fs::write(self.directory().join(file), text).unwrap();
    }
    async fn look(&self, reconciler: &mut Reconciler, prune: bool) -> ManifestReport {
        reconciler.apply(&self.directory(), scan(&self.directory()), prune).await
    }
    async fn serial(&self, name: &str) -> Option<String> {
        let machine = self.coordinator.store.machine(name).await.unwrap()?;
        Some(machine.spec.identity.serial.clone().unwrap_or_default())
    }
    async fn by_api(&self, name: &str, mac: u8, serial: &str) {
        let tree = serde_json::to_value(parsed(&machine(name, mac, serial))).unwrap();
        let document = landfall_api::Document::from_value(tree).unwrap();
        self.coordinator.engine.documents().apply(document, "ann", false).await.unwrap();
    }
}

fn parsed(text: &str) -> landfall_api::Document {
    landfall_api::Document::from_yaml_str("a", text).unwrap().remove(0).document
}

fn machine(name: &str, mac: u8, serial: &str) -> String {
    format!(
        "apiVersion: landfall.dev/v1alpha1\nkind: Machine\nmetadata: {{name: {name}}}\nspec:\n  identity:\n    \
         macs: [\"52:54:00:00:00:{mac:02x}\"]\n    serial: \"{serial}\"\n"
    )
}

#[tokio::test]
async fn every_document_is_applied_once_per_file_change() {
    let world = World::new().await;
    world.write("a.yaml", &format!("{}---\n{}", machine("a", 1, "S1"), machine("b", 2, "S2")));
    world.write("notes.txt", "not ours");
    world.write(".hidden.yaml", "not: ours");
    let mut reconciler = world.reconciler();
    let report = world.look(&mut reconciler, false).await;
    assert_eq!((report.files.len(), report.files[0].documents, report.files[0].applied), (1, 2, 2), "{report:?}");
    assert_eq!(world.serial("b").await.as_deref(), Some("S2"));
    let labels = world.coordinator.store.machine("a").await.unwrap().unwrap().metadata.labels.clone();
    assert_eq!(labels.get(reconcile::OWNER).map(String::as_str), Some("a.yaml"));

    // A person changes one and deletes the other: neither a look nor a restart fights them.
    world.by_api("a", 1, "by hand").await;
    world.coordinator.engine.documents().delete(landfall_api::Kind::Machine, "b", "ann").await.unwrap();
    for mut again in [reconciler, world.reconciler()] {
        let report = world.look(&mut again, false).await;
        assert_eq!(world.serial("a").await.as_deref(), Some("by hand"));
        assert_eq!(world.serial("b").await, None);
        assert!(report.files[0].notes[0].contains("machine/b was deleted"), "{report:?}");
    }
    // The file says something new of one: that one alone is applied.
    world.write("a.yaml", &format!("{}---\n{}", machine("a", 1, "S9"), machine("b", 2, "S2")));
    world.look(&mut world.reconciler(), false).await;
    assert_eq!(world.serial("a").await.as_deref(), Some("S9"));
    assert_eq!(world.serial("b").await, None);
}

#[tokio::test]
async fn faults_have_file_and_line_and_stop_no_other_file() {
    let world = World::new().await;
    world.write("1.yaml", &machine("a", 1, "S1"));
    world.write("2.yaml", &format!("{}---\n{}", machine("b", 2, "S2"), machine("c", 1, "S3")));
    world.write("3.yaml", &machine("d", 4, "S4").replace("macs", "mac"));
    world.write("4.yaml", &machine("a", 5, "S5"));
    world.write(
        "5.yaml",
        "apiVersion: landfall.dev/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: {machine: a, template: t}\n",
    );
    world.write("6.yaml", &machine("f", 6, "S6"));
    fs::set_permissions(world.directory().join("6.yaml"), fs::Permissions::from_mode(0o666)).unwrap();
    let report = world.look(&mut world.reconciler(), false).await;
    let subjects: Vec<_> = report.files.iter().map(|f| f.problems.first().map(|p| p.subject.as_str())).collect();
    let expected = [
        None,
        Some("2.yaml:14 (document 2) spec.identity.macs"),
        Some("3.yaml:6 spec.identity.mac"),
        Some("4.yaml:1"),
        Some("5.yaml:2 kind"),
        Some("6.yaml"),
    ];
    assert_eq!(subjects, expected, "{report:#?}");
    for (name, there) in [("a", true), ("b", true), ("c", false), ("d", false), ("f", false)] {
        assert_eq!(world.serial(name).await.is_some(), there, "{name}");
    }
    assert!(world.coordinator.store.workflows().await.unwrap().is_empty());
}

#[tokio::test]
async fn removed_files_delete_documents_only_with_prune() {
    let world = World::new().await;
    world.write("a.yaml", &machine("a", 1, "S1"));
    world.write("b.yaml", &machine("b", 2, "S2"));
    world.write("c.yaml", &machine("c", 3, "S3"));
    world.by_api("mine", 9, "S9").await;
    let mut reconciler = world.reconciler();
    world.look(&mut reconciler, true).await;
    fs::remove_file(world.directory().join("a.yaml")).unwrap();
    world.write("b.yaml", "kind: [");
    world.look(&mut reconciler, false).await;
    assert!(world.serial("a").await.is_some(), "pruning is off");
    world.look(&mut reconciler, true).await;
    assert_eq!(world.serial("a").await, None, "pruned");
    assert!(world.serial("b").await.is_some(), "its file is there, and broken");
    assert!(world.serial("mine").await.is_some(), "it never came from a file");
    // The file comes back as it was.
    world.write("a.yaml", &machine("a", 1, "S1"));
    world.look(&mut reconciler, true).await;
    assert!(world.serial("a").await.is_some());
    for file in ["a.yaml", "b.yaml", "c.yaml"] {
        fs::remove_file(world.directory().join(file)).unwrap();
    }
    let report = world.look(&mut reconciler, true).await;
    assert!(report.problems[0].message.contains("all files disappeared at once"), "{report:?}");
    fs::remove_dir(world.directory()).unwrap();
    let report = world.look(&mut reconciler, true).await;
    assert!(report.problems[0].message.contains("cannot read the directory"), "{report:?}");
    for name in ["a", "b", "c"] {
        assert!(world.serial(name).await.is_some(), "{name}");
    }
}

#[tokio::test]
async fn a_changed_file_is_applied_without_the_slow_scan() {
    let world = World::new().await;
    let config = ManifestsConfig {
        directory: Some(world.directory()),
        prune: false,
        rescan: DurationSpec::from_secs(24 * 3600),
    };
    let (_settings, settings) = channel::channel(config);
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(world.coordinator.clone(), settings, stop.clone()));
    let scans = async |wanted: &str| {
        timeout(LIMIT, async {
            while world.serial("a").await.as_deref() != Some(wanted) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .unwrap();
    };
    while world.coordinator.ops.manifests.report().scanned_at.is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.write("a.yaml", &machine("a", 1, "S1"));
    scans("S1").await;
    // As editors do: written beside, then moved into place.
    world.write("a.yaml.tmp", &machine("a", 1, "S2"));
    fs::rename(world.directory().join("a.yaml.tmp"), world.directory().join("a.yaml")).unwrap();
    scans("S2").await;
    stop.cancel();
    timeout(LIMIT, task).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_audit_log_has_each_change_from_a_file_once() {
    let world = World::new().await;
    world.write("a.yaml", &format!("{}---\n{}", machine("a", 1, "S1"), machine("b", 2, "S2")));
    let mut reconciler = world.reconciler();
    world.look(&mut reconciler, true).await;
    world.look(&mut reconciler, true).await;
    world.write("a.yaml", &machine("a", 1, "S9"));
    world.look(&mut reconciler, true).await;
    let noted = world.coordinator.store.audit().list(0, 100).await.unwrap();
    let noted: Vec<_> = noted.iter().filter(|entry| entry.who == "manifest/a.yaml").collect();
    let said: Vec<_> = noted.iter().map(|e| (e.action.as_str(), e.subject.as_str(), e.detail.as_str())).collect();
    assert_eq!(
        said,
        [
            ("Apply", "machine/a", "created"),
            ("Apply", "machine/b", "created"),
            ("Apply", "machine/a", "configured"),
            ("Delete", "machine/b", "it has gone from the manifests"),
        ]
    );
}
