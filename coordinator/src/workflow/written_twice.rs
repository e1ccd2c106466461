//! Two actions that write one disk: a loop that also matches the system's disk would write over what the list has just written.

use landfall_api::{Action, ActionSpec, DiskFacts, DiskSelector, ErrorCode, Machine, Problem};

/// Refuses a list of which two actions write one disk, as far as the machine's facts tell. `path` is where the
/// list stands. A disk that several selectors match counts, even where one of them also matches others.
///
/// # Errors
/// [`Problem`] with code `InvalidTemplate` naming both actions and the disk.
pub(super) fn refuse(actions: &[Action], machine: &Machine, path: &str) -> Result<(), Problem> {
    let Some(facts) = machine.status.as_ref().and_then(|status| status.facts.as_ref()) else { return Ok(()) };
    let mut writers: Vec<Option<&str>> = vec![None; facts.disks.len()];
    for action in actions {
        let selectors: Vec<&DiskSelector> = match &action.spec {
            ActionSpec::WriteImage(spec) => vec![&spec.disk],
            ActionSpec::Storage(spec) => spec.disks.iter().flat_map(|layout| &layout.select).collect(),
            _ => continue,
        };
        let chosen = |disk: &DiskFacts| {
            selectors.iter().any(|selector| selector.mismatches(disk).is_ok_and(|why| why.is_empty()))
        };
        for (disk, writer) in facts.disks.iter().zip(&mut writers).filter(|(disk, _)| chosen(disk)) {
            if let Some(first) = writer.replace(&action.name) {
                let message =
                    format!("actions \"{first}\" and \"{}\" would both write disk {}", action.name, disk.id.name);
                let hint = "make the two selectors exclude each other, such as with serial: \"!= …\"; if the machine's disks \
                    have changed, netboot it once and request this again";
                return Err(Problem::new(ErrorCode::InvalidTemplate, message).at(path).hint(hint));
            }
        }
    }
    Ok(())
}
