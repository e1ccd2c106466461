//! Metrics collected on request: phases, sizes, dates.

use std::collections::BTreeMap;

use crate::state::Coordinator;
use landfall_api::Kind;
use landfall_edge::metrics::{escaped, head, metrics, process, sample};
use landfall_machine::elsewhere;
use landfall_store::StoreError;

/// Everything, in Prometheus' text form 0.0.4.
///
/// # Errors
/// [`StoreError`] if documents cannot be listed.
pub async fn text(coordinator: &Coordinator) -> Result<String, StoreError> {
    let mut out = of_process();
    documents(coordinator, &mut out).await?;
    if coordinator.engine.fleet().own().is_some() {
        sessions(coordinator, &mut out).await?;
    }
    store_files(coordinator, &mut out);
    head(&mut out, "landfall_ca_expiry_timestamp_seconds", "gauge", "When the certificate authority ends, Unix time.");
    if let Some(ends) = crate::health::ends(coordinator.pki.ca_der()) {
        sample(&mut out, "landfall_ca_expiry_timestamp_seconds", "", ends.as_second());
    }
    Ok(out)
}

/// What needs no store.
pub fn of_process() -> String {
    let mut out = String::with_capacity(16 << 10);
    head(&mut out, "landfall_build_info", "gauge", "Version of this coordinator; always 1.");
    let version = format!("version=\"{}\"", escaped(env!("CARGO_PKG_VERSION")));
    sample(&mut out, "landfall_build_info", &version, 1);
    metrics().write(&mut out);
    process::write(&mut out);
    out
}

async fn documents(coordinator: &Coordinator, out: &mut String) -> Result<(), StoreError> {
    let counts = coordinator.store.documents().counts().await?;
    for (name, about, kind) in [
        ("landfall_machines", "Machines, by phase.", Kind::Machine),
        ("landfall_workflows", "Stored workflows, by phase.", Kind::Workflow),
    ] {
        head(out, name, "gauge", about);
        for (phase, count) in counts.phases(kind) {
            sample(out, name, &format!("phase=\"{phase}\""), count);
        }
    }
    head(out, "landfall_store_documents", "gauge", "Documents in the store, by kind.");
    for kind in Kind::ALL {
        sample(out, "landfall_store_documents", &format!("kind=\"{kind}\""), counts.of(kind));
    }
    Ok(())
}

/// Of several coordinators, which has how many machines: the same at each of them.
async fn sessions(coordinator: &Coordinator, out: &mut String) -> Result<(), StoreError> {
    let own = coordinator.engine.fleet().own();
    let known = own.iter().map(ToString::to_string).chain(coordinator.config.others.iter().cloned());
    let mut held: BTreeMap<String, u64> = known.map(|url| (url, 0)).collect();
    for machine in coordinator.store.machines().await? {
        let holder = machine.status.as_ref().and_then(|status| status.session.as_ref()?.coordinator.clone());
        if let Some(holder) = holder.filter(|_| elsewhere::is_connected(&machine)) {
            *held.entry(holder).or_default() += 1;
        }
    }
    let about = "Machines whose agents are connected, by the coordinator that has their sessions.";
    head(out, "landfall_connected_machines", "gauge", about);
    for (holder, count) in held {
        sample(out, "landfall_connected_machines", &format!("coordinator=\"{}\"", escaped(&holder)), count);
    }
    Ok(())
}

fn store_files(coordinator: &Coordinator, out: &mut String) {
    head(out, "landfall_store_bytes", "gauge", "The store's files.");
    for (label, name) in [("db", "landfall.db"), ("wal", "landfall.db-wal")] {
        // Absent with a store in memory, and before the first write.
        if let Ok(file) = std::fs::metadata(coordinator.config.data_dir.join(name)) {
            sample(out, "landfall_store_bytes", &format!("file=\"{label}\""), file.len());
        }
    }
    if let Ok(disk) = nix::sys::statvfs::statvfs(&coordinator.config.data_dir) {
        head(out, "landfall_data_dir_free_bytes", "gauge", "Free space where the data directory is.");
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        sample(out, "landfall_data_dir_free_bytes", "", free);
    }
}
