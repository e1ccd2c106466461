//! What a request would destroy. Nothing is changed, and no image's server is asked.

use landfall_api::{Action, ActionSpec, ClearDisksSpec, Preview, PreviewRequest, Problem};

use super::Requests;
use crate::workflow::render;

impl Requests {
    /// What a template, or deprovisioning, would destroy on a machine by its last facts.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` (names that are near), `InvalidTemplate`.
    pub async fn preview(&self, machine: &str, asked: PreviewRequest) -> Result<Preview, Problem> {
        let found = self.fleet.described(machine).await?;
        let Some(template) = &asked.template else {
            let spec = ActionSpec::ClearDisks(ClearDisksSpec { disks: asked.disks });
            let clear = Action { name: "clear-disks".into(), timeout: None, retry: None, branch: None, spec };
            return Ok(Preview::of(&[clear], &found));
        };
        let described = self.template(template).await?;
        let plan = render(&found, &described, &asked.parameters, &self.fragments(&described).await?)?;
        Ok(Preview::of(&plan.actions, &found))
    }
}
