//! What a request would destroy. Nothing is changed, and no image's server is asked.

use landfall_api::{Action, ActionSpec, Digest, ErrorCode, Machine, Preview, PreviewRequest, Problem, WipeSpec};
use sha2::{Digest as _, Sha256};

use super::Requests;

impl Requests {
    /// What a template, or deprovisioning, would destroy on a machine by its last facts.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` (names that are near), `InvalidTemplate`.
    pub async fn preview(&self, machine: &str, asked: PreviewRequest) -> Result<Preview, Problem> {
        let found = self.fleet.described(machine).await?;
        let Some(template) = &asked.template else {
            let spec = ActionSpec::Wipe(WipeSpec { disks: asked.disks, level: asked.level, fallback: asked.fallback });
            let clear = Action { name: "wipe".into(), timeout: None, retry: None, branch: None, when: None, spec };
            return previewed(&[clear], &found);
        };
        let described = self.template(template).await?;
        let fragments = self.fragments(&described).await?;
        let plan = self.renderings.plan(&found, &described, &asked.parameters, fragments).await?;
        previewed(&plan.actions, &found)
    }
}

/// With its digest.
fn previewed(actions: &[Action], machine: &Machine) -> Result<Preview, Problem> {
    let preview = Preview::of(actions, machine);
    let text = serde_json::to_vec(&preview.compared())
        .map_err(|e| Problem::new(ErrorCode::Internal, format!("cannot write the preview as JSON: {e}")))?;
    Ok(Preview { digest: Digest::from_sha256(Sha256::digest(text).into()).to_string(), ..preview })
}

/// Whether these actions destroy what the person saw.
pub(super) fn is_expected(expects: Option<&str>, actions: &[Action], machine: &Machine) -> Result<(), Problem> {
    let Some(expects) = expects else { return Ok(()) };
    if previewed(actions, machine)?.digest == expects {
        return Ok(());
    }
    let name = &machine.metadata.name;
    let message = format!("what this would destroy on machine \"{name}\" has changed since it was shown");
    Err(Problem::new(ErrorCode::Conflict, message)
        .at(format!("Machine/{name}"))
        .hint("request it again and read what is shown then; nothing was started"))
}
