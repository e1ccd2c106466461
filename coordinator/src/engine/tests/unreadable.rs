//! Claims about stored documents that this version cannot read.

use super::fleet::{Computer, Until};
use super::*;

fn change(dir: &std::path::Path, sql: &str) {
    rusqlite::Connection::open(dir.join(landfall_store::DATABASE)).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn unreadable_documents_cost_nothing_of_what_belongs_to_them() {
    let (dir, clock, world) = described_on_disk().await;
    let (mut asked, mut begun) = (Computer::described(&world, 1).await, Computer::described(&world, 2).await);
    let pending = asked.provision(&world, false).await.unwrap().metadata;
    let running = begun.provision(&world, false).await.unwrap().metadata;
    begun.run(&world, Until::Written).await;
    drop(world);
    let broken = format!("kind = 'Machine' AND name = 'c1' OR name = '{}'", running.name);
    change(dir.path(), &format!("UPDATE documents SET json = replace(json, '\"spec\"', '\"speck\"') WHERE {broken}"));

    let world = sqlite_world(dir.path(), &clock).await;
    world.engine.upkeep().removals().retain().await.unwrap();
    assert_eq!(world.store.unreadable().len(), 2);
    assert!(world.store.workflow(&pending.name).await.unwrap().is_some(), "its machine is there, if not readable");
    assert!(!world.store.events().list(running.uid.unwrap(), 0, 9).await.unwrap().is_empty());
    let refused = world.apply(asked.document()).await.unwrap_err();
    assert!(refused.message.contains("cannot be read") && refused.code == ErrorCode::Conflict, "{refused}");
    let readyz = crate::health::documents(&world.store.unreadable()).message;
    assert!(readyz.contains("Machine c1: ") && readyz.contains(&format!("Workflow {}: ", running.name)), "{readyz}");
    drop(world);

    change(dir.path(), "UPDATE documents SET json = replace(json, '\"speck\"', '\"spec\"')");
    let world = sqlite_world(dir.path(), &clock).await;
    assert!(asked.netboot(&world).await.unwrap().assigned().is_some(), "as if nothing had been");
    begun.run(&world, Until::Home).await;
    assert_eq!(begun.phase(&world).await, MachinePhase::Provisioned);
}
