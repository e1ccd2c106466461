//! What an agent is sent: the pinned list, and for `cloudInit` the seed and the secret, made only now.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use landfall_api::message::{
    ActionKind, AssignedAction, Assignment, CloudInit, KnownResult, PhoneHomeUnit, Retry, Start, WriteImage,
};
use landfall_api::{
    Action, ActionSpec, ActionState, CloudInitSpec, DiskReceipt, ErrorCode, Exec, ExecSpec, HoldSpec, Http, HttpSpec,
    Ignition, IgnitionSpec, ImageSource, Machine, Precheck, Problem, RetrySpec, RunContainer, RunContainerSpec,
    SecretText, SystemIdentity, SystemIdentitySpec, Unpack, UnpackSpec, Verify, Wait, WaitSpec, When, Workflow,
    WorkflowStatus, WriteFile, WriteFileSpec, WriteImageSpec,
};
use landfall_machine::run::{has_begun_to_write, policy};
use uuid::Uuid;

use super::{
    bmc_accounts::BmcAccounts, certificates::CertificateAuthority, fleet::Fleet, secrets::Vault, tokens::Tokens,
};
use crate::workflow::{Plan, seed_files};

/// Makes what an agent is sent.
pub(in crate::engine) struct Assignments {
    fleet: Arc<Fleet>,
    vault: Arc<Vault>,
    tokens: Arc<Tokens>,
    accounts: Arc<BmcAccounts>,
    authority: Arc<dyn CertificateAuthority>,
}

impl Assignments {
    pub(in crate::engine) const fn new(
        fleet: Arc<Fleet>, vault: Arc<Vault>, tokens: Arc<Tokens>, accounts: Arc<BmcAccounts>,
        authority: Arc<dyn CertificateAuthority>,
    ) -> Self {
        Self { fleet, vault, tokens, accounts, authority }
    }

    pub(super) async fn assignment(
        &self, workflow: &Workflow, epoch: u64, starts: Vec<Start>,
    ) -> Result<Assignment, Problem> {
        let missing =
            |what: &str| Problem::new(ErrorCode::Internal, format!("the workflow or its machine has no {what}"));
        let workflow_uid = workflow.metadata.uid.ok_or_else(|| missing("uid"))?;
        let status = workflow.status.as_ref().ok_or_else(|| missing("status"))?;
        let machine = self.fleet.store().machine(&workflow.spec.machine).await?.ok_or_else(|| missing("document"))?;
        // A retry has its first run's token: whichever of them put the seed in place, the system can phone home.
        let token_run = status.takes_over.last().copied().unwrap_or(workflow_uid);
        let first = starts.first().copied().ok_or_else(|| missing("action to start"))?;
        // What follows a failure is a list of its own behind the other, and neither runs on into the other.
        let main = u32::try_from(status.actions.len()).unwrap_or(u32::MAX);
        let list = if first.index < main { 0..main } else { main..u32::MAX };
        let mut actions = Vec::with_capacity(status.actions.len());
        for (pinned, index) in status.actions.iter().chain(&status.on_failure).zip(0u32..) {
            if index >= list.end {
                break;
            }
            // A password that the BMC has is not made anew, and not sent again.
            let is_set = pinned.is_over() && matches!(pinned.action.spec, ActionSpec::BmcAccount(_));
            if index < list.start || pinned.is_left_out() || is_set {
                actions.push(nothing(&pinned.action));
                continue;
            }
            let mut action = self.vault.insert(&machine, pinned.action.clone().into_inner()).await?;
            if let Some(start) = starts.iter().find(|start| start.index == index) {
                // The agent counts attempts by number; interrupted ones used up no retry.
                let left = policy::max_attempts(&action).saturating_sub(pinned.failures).max(1);
                let none = RetrySpec { max_attempts: 1, initial_backoff: None, max_backoff: None, max_restarts: None };
                action.retry.get_or_insert(none).max_attempts = left.saturating_add(start.attempt - 1);
            }
            if has_begun_to_write(workflow_uid, status, index as usize) {
                action.when = None;
            }
            let shown = &pinned.action.spec;
            let mut machine = machine.clone();
            if pinned.state == ActionState::Succeeded {
                // A seed that is in place is not put there again: what the document or the ports are now cannot make it fail.
                machine.spec.network.clear();
            }
            actions.push(self.resolved(action, shown, &machine, workflow_uid, token_run).await?);
        }
        let settings = self.fleet.settings();
        // What has ended, and the list that is not this one, need nothing any more.
        let all = (0u32..).zip(status.actions.iter().chain(&status.on_failure));
        let left = all.filter(|(index, _)| list.contains(index) && *index >= first.index);
        let left = left.map(|(_, pinned)| &*pinned.action);
        // After a failure nothing is committed.
        let lays_out = first.index < main && lays_out(status.actions.iter().map(|pinned| &*pinned.action));
        let tools = settings.tools_for(&machine, lays_out, left)?.cloned();
        Ok(Assignment {
            epoch,
            workflow_uid,
            workflow_name: workflow.metadata.name.clone(),
            machine_uid: machine.metadata.uid.ok_or_else(|| missing("uid"))?,
            generation: status.machine_generation,
            lease: settings.lease,
            counts_from: None,
            results: known_results(status, &starts)?,
            actions,
            start_index: first.index,
            start_attempt: first.attempt,
            starts,
            earlier_runs: status.takes_over.clone(),
            expected_receipts: status.expected_receipts.clone(),
            person_authorised: workflow.spec.authority.is_some(),
            force: workflow.spec.authority.as_ref().is_some_and(|a| a.force),
            tools,
            precheck: status.precheck != Some(Precheck::Off),
        })
    }

    /// What an agent is sent to check, of a list that no workflow has: the seeds are empty, because nothing is made for it.
    pub(super) async fn to_check(
        &self, machine: &Machine, machine_uid: Uuid, plan: &Plan, list_uid: Uuid, expected_receipts: Vec<DiskReceipt>,
        force: bool,
    ) -> Result<Assignment, Problem> {
        let mut actions = Vec::with_capacity(plan.actions.len());
        for pinned in &plan.actions {
            let action = self.vault.insert(machine, pinned.clone()).await?;
            actions.push(match action.spec {
                ActionSpec::CloudInit(spec) => {
                    let (timeout, retry) = limits(pinned);
                    let kind = ActionKind::CloudInit(CloudInit { disk: spec.disk, ..CloudInit::default() });
                    AssignedAction { name: action.name, timeout, retry, branch: action.branch, when: None, kind }
                }
                ActionSpec::BmcAccount(_) => nothing(pinned),
                _ => self.resolved(action, &pinned.spec, machine, list_uid, list_uid).await?,
            });
        }
        Ok(Assignment {
            epoch: 0,
            workflow_uid: list_uid,
            workflow_name: "dry-run".into(),
            machine_uid,
            generation: machine.metadata.generation,
            lease: self.fleet.settings().lease,
            counts_from: None,
            results: Vec::new(),
            actions,
            start_index: 0,
            start_attempt: 1,
            starts: vec![Start { index: 0, attempt: 1 }],
            earlier_runs: Vec::new(),
            expected_receipts,
            person_authorised: true,
            force,
            precheck: true,
            tools: self.fleet.settings().tools_for(machine, lays_out(plan.actions.iter()), &plan.actions)?.cloned(),
        })
    }

    /// An action with every default stated, and what it needs made. `shown`: what it does before secrets were put in, which
    /// is all that tells the two apart.
    async fn resolved(
        &self, action: Action, shown: &ActionSpec, machine: &Machine, workflow_uid: Uuid, token_run: Uuid,
    ) -> Result<AssignedAction, Problem> {
        let (timeout, retry) = limits(&action);
        let kind = match action.spec {
            ActionSpec::BmcAccount(spec) => {
                ActionKind::BmcAccount(self.accounts.to_set(machine, &spec, (workflow_uid, &action.name)).await?)
            }
            ActionSpec::CloudInit(spec) => {
                ActionKind::CloudInit(self.seed(spec, machine, workflow_uid, token_run).await?)
            }
            ActionSpec::EfiBoot(spec) => ActionKind::EfiBoot(spec),
            ActionSpec::Exec(spec) => ActionKind::Exec(exec(spec, shown, &action.name)?),
            ActionSpec::GrowRoot(spec) => ActionKind::GrowRoot(spec),
            ActionSpec::HealthTest(spec) => {
                let test = spec.resolved(&self.fleet.settings().boot_image_url);
                ActionKind::HealthTest(test.map_err(|error| invalid("test", &action.name, "healthTest", &error))?)
            }
            ActionSpec::Hold(spec) => ActionKind::Hold(spec),
            ActionSpec::Http(spec) => ActionKind::Http(http(spec, shown, &action.name)?),
            ActionSpec::Identity(spec) => ActionKind::Identity(identity(spec, &machine.metadata.name, &action.name)?),
            ActionSpec::Ignition(spec) => ActionKind::Ignition(ignition(spec, &action.name)?),
            ActionSpec::InstallBootloader(spec) => ActionKind::InstallBootloader(spec),
            ActionSpec::Kexec(spec) => ActionKind::Kexec(spec),
            ActionSpec::PowerOff(spec) => ActionKind::PowerOff(spec),
            ActionSpec::Reboot(spec) => ActionKind::Reboot(spec),
            ActionSpec::RunContainer(spec) => ActionKind::RunContainer(run_container(spec, shown, &action.name)?),
            ActionSpec::SecureBoot(spec) => ActionKind::SecureBoot(spec),
            ActionSpec::Storage(spec) => ActionKind::Storage(spec.resolved()),
            ActionSpec::Unpack(spec) => ActionKind::Unpack(unpack(spec, &action.name)?),
            ActionSpec::Wait(spec) => ActionKind::Wait(wait(spec, &action.name)?),
            ActionSpec::Wipe(spec) => ActionKind::Wipe(spec),
            ActionSpec::WriteFile(ref spec) => {
                let secret = action.spec != *shown;
                ActionKind::WriteFile(write_file(spec.clone(), secret, &action.name)?)
            }
            ActionSpec::WriteImage(spec) => ActionKind::WriteImage(write_image(spec, &action.name)?),
        };
        let when = action.when.as_deref().map(|text| condition(text, &action.name)).transpose()?;
        Ok(AssignedAction { name: action.name, timeout, retry, branch: action.branch, when, kind })
    }

    async fn seed(
        &self, spec: CloudInitSpec, machine: &Machine, workflow_uid: Uuid, token_run: Uuid,
    ) -> Result<CloudInit, Problem> {
        let name = &machine.metadata.name;
        let files = seed_files(&spec, machine, &workflow_uid.to_string()).map_err(|error| {
            Problem::new(
                ErrorCode::InvalidDocument,
                format!("the installed system cannot get the network of machine {name}"),
            )
            .caused_by(&error)
            .at("spec.network")
            .hint("correct the machine's document, or state the network in the template's cloudInit")
        })?;
        let phone_home = if spec.phone_home.as_ref().is_none_or(|unit| unit.enabled) {
            let settings = self.fleet.settings();
            Some(PhoneHomeUnit {
                url: settings.phone_home_url.clone(),
                other_urls: settings.others.iter().map(|url| format!("{url}/phone-home")).collect(),
                bearer_token: SecretText::new(self.tokens.bearer(token_run).await?),
                ca_pins: self.authority.pins(),
            })
        } else {
            None
        };
        Ok(CloudInit {
            user_data: SecretText::new(files.user_data),
            vendor_data: SecretText::new(files.vendor_data),
            meta_data: files.meta_data,
            network_config: SecretText::new(files.network_config),
            phone_home,
            disk: spec.disk,
        })
    }
}

/// What stands for an action that this list does not do, so that the others keep their places. No action that comes later takes it
/// for a layout or an image that is there: after a failure nothing may make a half-filled layout start.
fn nothing(action: &Action) -> AssignedAction {
    let (timeout, retry) = limits(action);
    let kind = ActionKind::Hold(HoldSpec { message: String::new() });
    AssignedAction { name: action.name.clone(), timeout, retry, branch: action.branch.clone(), when: None, kind }
}

/// What is left of a condition, as it was pinned.
fn condition(text: &str, action: &str) -> Result<When, Problem> {
    // It was written by the same language when the list was pinned.
    When::parse(text).map_err(|fault| {
        Problem::new(
            ErrorCode::InvalidDocument,
            format!("the condition of action \"{action}\" is invalid: {}", fault.message),
        )
        .at(format!("{action}.when"))
        .hint("provision again")
    })
}

/// What has ended of a list, as far as conditions name it of what has not.
fn known_results(status: &WorkflowStatus, starts: &[Start]) -> Result<Vec<KnownResult>, Problem> {
    let mut named = BTreeSet::new();
    for left in status.actions.iter().filter(|action| !action.is_over()) {
        let Some(text) = left.action.when.as_deref() else { continue };
        named.extend(condition(text, &left.action.name)?.results().into_iter().map(str::to_owned));
    }
    let begins = |index: u32| starts.iter().any(|start| start.index == index);
    let all = (0u32..).zip(&status.actions).filter(|(index, a)| named.contains(&a.action.name) && !begins(*index));
    Ok(all.filter_map(|(index, action)| Some(KnownResult { index, outcome: action.known_outcome()? })).collect())
}

/// Whether a list makes a layout.
pub(super) fn lays_out<'a>(mut list: impl Iterator<Item = &'a Action>) -> bool {
    list.any(|action| matches!(action.spec, ActionSpec::Storage(_)))
}

/// The time of one attempt, and how often it is tried: as the template says, else by default.
fn limits(action: &Action) -> (Duration, Retry) {
    let retry = Retry {
        max_attempts: policy::max_attempts(action),
        initial_backoff: policy::initial_backoff(action),
        max_backoff: policy::max_backoff(action),
    };
    (policy::timeout(action), retry)
}

const CORRECT: &str = "correct the template, then provision again";

/// A part of a pinned action that its secrets or parameters leave without a meaning.
fn invalid(part: &str, action: &str, field: &str, error: &dyn std::error::Error) -> Problem {
    Problem::new(ErrorCode::InvalidDocument, format!("the {part} of action \"{action}\" is invalid"))
        .caused_by(error)
        .at(format!("{action}.{field}"))
        .hint(CORRECT)
}

fn write_file(spec: WriteFileSpec, secret: bool, action: &str) -> Result<WriteFile, Problem> {
    // `validate_actions` saw to that when the list was pinned.
    spec.resolved(secret).map_err(|error| invalid("file", action, "writeFile", &error))
}

fn exec(spec: ExecSpec, shown: &ActionSpec, action: &str) -> Result<Exec, Problem> {
    let without = ExecSpec::default();
    let shown = if let ActionSpec::Exec(shown) = shown { shown } else { &without };
    spec.resolved(shown).map_err(|error| {
        Problem::new(ErrorCode::InvalidDocument, format!("action \"{action}\" has nothing to run"))
            .caused_by(&error)
            .at(format!("{action}.exec"))
            .hint(CORRECT)
    })
}

fn http(spec: HttpSpec, shown: &ActionSpec, action: &str) -> Result<Http, Problem> {
    let without = HttpSpec::default();
    let shown = if let ActionSpec::Http(shown) = shown { shown } else { &without };
    spec.resolved(shown).map_err(|error| invalid("call", action, "http", &error))
}

fn wait(spec: WaitSpec, action: &str) -> Result<Wait, Problem> {
    spec.resolved().map_err(|error| invalid("wait", action, "wait", &error))
}

fn run_container(spec: RunContainerSpec, shown: &ActionSpec, action: &str) -> Result<RunContainer, Problem> {
    let without = RunContainerSpec::default();
    let shown = if let ActionSpec::RunContainer(shown) = shown { shown } else { &without };
    spec.resolved(shown).map_err(|error| invalid("container", action, "runContainer", &error))
}

fn unpack(spec: UnpackSpec, action: &str) -> Result<Unpack, Problem> {
    spec.resolved().map_err(|error| invalid("archive", action, "unpack", &error))
}

fn ignition(spec: IgnitionSpec, action: &str) -> Result<Ignition, Problem> {
    spec.resolved().map_err(|error| {
        invalid("Ignition config", action, "ignition", &error)
            .hint("write the config as a mapping, in which secrets are quoted, then provision again")
    })
}

fn identity(spec: SystemIdentitySpec, machine: &str, action: &str) -> Result<SystemIdentity, Problem> {
    spec.resolved(machine).map_err(|error| {
        Problem::new(ErrorCode::InvalidDocument, format!("the identity of action \"{action}\" is invalid: {error}"))
            .caused_by(&error)
            .at(format!("{action}.identity.users[{}].{}", error.account, error.field))
            .hint("correct the field or the secret in it (a passwordHash is what openssl passwd -6 prints), then provision again")
    })
}

fn write_image(spec: WriteImageSpec, action: &str) -> Result<WriteImage, Problem> {
    let WriteImageSpec { disk, image, keep, verify } = spec;
    // `validate_actions` saw to that when the list was pinned.
    let image = ImageSource::try_from(image).map_err(|error| {
        invalid("image", action, "writeImage.image", &error).hint("mend the template, then provision again")
    })?;
    Ok(WriteImage { disk, image, keep, read_back: verify == Verify::ReadBack })
}

#[cfg(test)]
mod tests {
    use landfall_api::Digest;
    use landfall_golden as golden;
    use landfall_proto::v1::{self, action::Kind, session_response::Message as Down};
    use prost::Message as _;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn defaults_are_stated_and_never_left_to_the_agent() {
        let action = json!({"name": "write", "writeImage": {"image": {"url": "http://h/i", "digestWaived": true}}});
        let (timeout, retry) = limits(&serde_json::from_value(action).unwrap());
        let second = Duration::from_secs;
        assert_eq!(timeout, second(3600));
        assert_eq!(retry, Retry { max_attempts: 3, initial_backoff: second(2), max_backoff: second(60) });
    }

    #[test]
    fn an_image_without_exactly_one_proof_is_never_sent() {
        let spec = serde_json::from_value(json!({"image": {"url": "http://h/i"}})).unwrap();
        let problem = write_image(spec, "write").unwrap_err();
        assert_eq!((problem.code, problem.subject.as_str()), (ErrorCode::InvalidDocument, "write.writeImage.image"));
    }

    /// The write of a recorded assignment.
    fn recorded(name: &str) -> v1::WriteImage {
        let bytes = golden::bytes(&format!("wire/coordinator/image-{name}.hex"));
        match v1::SessionResponse::decode(&bytes[..]).unwrap().message {
            Some(Down::Assignment(mut assigned)) => match assigned.actions.remove(0).kind {
                Some(Kind::WriteImage(write)) => write,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_image_of_a_template_is_sent_as_recorded() {
        let digest = |byte| Digest::from_sha256([byte; 32]);
        let signature = json!({"url": "http://h/os.sig", "key": "RWQf6LRCGA9i53ml"});
        let plain = |field: &str, value: Value| json!({"image": {"url": "http://h/os.img", field: value}});
        let access = |who: Value| {
            json!({"image": {"url": "https://h/os.img", "digest": digest(0x0a), "access": {
            "caCertificates": ["-----BEGIN CERTIFICATE-----\n"], "proxy": "http://p:3128", "authorization": who}}})
        };
        let all = [
            ("digest", plain("digest", json!(digest(0x0a)))),
            ("sha512", plain("digest", json!(format!("sha512:{}", "0b".repeat(64))))),
            ("raw-digest", plain("rawDigest", json!(digest(0x0c)))),
            ("sums", plain("sums", json!({"url": "http://h/SHA256SUMS"}))),
            ("signed-sums", plain("sums", json!({"url": "http://h/SHA256SUMS", "signature": signature}))),
            ("signature", plain("signature", signature)),
            ("index", plain("index", json!({"url": "http://h/os.json", "digest": digest(0x0d)}))),
            ("pinned", json!({"image": {"url": format!("oci://r.example/os@{}", digest(0x0e))}})),
            ("waived", plain("digestWaived", json!(true))),
            ("keep", json!({"keep": ["data"], "image": {"url": "http://h/os.img", "digest": digest(0x0a)}})),
            ("read-back", json!({"verify": "readBack", "image": {"url": "http://h/os.img", "digestWaived": true}})),
            ("no-table", json!({"image": {"url": "http://h/os.img", "digest": digest(0x0a), "table": "none"}})),
            ("basic", access(json!({"username": "u", "password": "p4ss"}))),
            ("bearer", access(json!({"token": "t0ken"}))),
        ];
        for (name, mut spec) in all {
            spec["disk"] = json!({"serial": "S4EVNX0R"});
            let write = write_image(serde_json::from_value(spec).unwrap(), "write").unwrap();
            assert_eq!(v1::WriteImage::from(write), recorded(name), "{name}");
        }
    }
}
