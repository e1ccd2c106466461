//! The account that a machine sets in its own BMC: in the Secret that its document names, else in one that is made for it.
//!
//! A new password is kept beside the one in use, and takes its place when the BMC has it: an action that fails before it changed
//! anything leaves the power under control, and the next one sets the same password again.

use std::net::IpAddr;

use landfall_api::{
    API_VERSION, BMC_PASSWORD, BMC_USERNAME, BmcAccount, BmcAccountSpec, BmcAddress, Document, ErrorCode, Kind,
    Machine, Metadata, Problem, Secret, SecretSpec, SecretStatus, SecretText, place_has,
};
use landfall_store::access::password;
use uuid::Uuid;

use super::{Pending, Values, Vault, belongs_to};

/// The Secret with the account of a machine's BMC: its document's, else the one that is made for it.
pub(in crate::engine) fn bmc_secret(machine: &Machine) -> String {
    machine.spec.bmc.as_ref().map_or_else(|| made_secret(machine), |bmc| bmc.credentials.clone())
}

fn made_secret(machine: &Machine) -> String {
    format!("bmc-{}", machine.metadata.name)
}

impl Vault {
    /// The passwords that a machine's BMC may have.
    pub(super) async fn bmc_passwords(&self, machine: &Machine) -> Result<Vec<String>, Problem> {
        let mut values = self.values(&bmc_secret(machine)).await?.unwrap_or_default();
        let pending = values.pending.map(|pending| pending.password);
        Ok(values.data.remove(BMC_PASSWORD).into_iter().chain(pending).collect())
    }

    /// The account that an action of the workflow is to set in the machine's BMC. A new one is stored before this returns.
    ///
    /// # Errors
    /// [`Problem`] with code `AlreadyExists`, `Forbidden`, `NotFound` or `InvalidDocument` about the Secret; or of the store.
    pub(in crate::engine) async fn account_to_set(
        &self, machine: &Machine, spec: &BmcAccountSpec, (workflow, action): (Uuid, &str),
    ) -> Result<BmcAccount, Problem> {
        let (turn, _one) = self.alone().await?;
        let (owner, name) = (&machine.metadata.name, bmc_secret(machine));
        let refused = |code, message: String, hint: String| {
            Err(Problem::new(code, message).at(format!("Secret/{name}")).hint(hint))
        };
        let is_own = name == made_secret(machine);
        let document = self.document(&name).await?;
        let mut values = match &document {
            Some(_) => self.values(&name).await?.unwrap_or_default(),
            None if !is_own => {
                let hint = format!("apply it, or name bmc-{owner}, which is made then");
                return refused(
                    ErrorCode::NotFound,
                    format!("there is no secret \"{name}\", which spec.bmc.credentials of machine \"{owner}\" names"),
                    hint,
                );
            }
            // Values without a document are what a crash left.
            None => Values { made_for: machine.metadata.uid, ..Values::default() },
        };
        let a_persons = values.made_for.is_none();
        if let Some(document) = &document {
            if a_persons && machine.spec.bmc.is_none() {
                let hint = format!(
                    "name it in spec.bmc.credentials of {owner}, with the BMC's address, if it is the account to set; else delete it"
                );
                return refused(
                    ErrorCode::AlreadyExists,
                    format!("the secret \"{name}\" is one that a person wrote, and it is not overwritten"),
                    hint,
                );
            }
            // The machine's own system sees the password.
            if a_persons && !belongs_to(&document.spec, machine) {
                let hint = format!(
                    "name the machine in its spec.machines if {owner} may know the password; an account for {owner} alone is safer: \
                     take spec.bmc out of its document"
                );
                return refused(
                    ErrorCode::Forbidden,
                    format!("the secret \"{name}\" does not belong to machine \"{owner}\""),
                    hint,
                );
            }
            // It may be the password of other BMCs too, and be kept nowhere else.
            if a_persons && spec.rotate {
                return refused(
                    ErrorCode::Forbidden,
                    format!("the secret \"{name}\" is one that a person wrote: its password is not rotated"),
                    format!(
                        "apply it with another password and leave rotate out, or take spec.bmc out of the document of {owner}"
                    ),
                );
            }
            if !a_persons && !is_own {
                return refused(
                    ErrorCode::Forbidden,
                    format!("the secret \"{name}\" was made for the BMC of another machine than \"{owner}\""),
                    format!("name bmc-{owner} in spec.bmc.credentials of {owner}; it is made then"),
                );
            }
        }
        let (used, current) = (values.data.get(BMC_USERNAME), values.data.get(BMC_PASSWORD));
        let username = used.filter(|_| a_persons).unwrap_or(&spec.username).clone();
        // A machine that was described anew may be another one: it does not get the password of the first.
        let is_new = spec.rotate || !a_persons && (values.made_for != machine.metadata.uid || used != Some(&username));
        // The computer that had the name before knows what it was to set.
        let pending = values.pending.as_ref().filter(|pending| pending.machine == machine.metadata.uid);
        let password = match (pending, current) {
            (Some(pending), _) => pending.password.clone(),
            (None, Some(current)) if !is_new => current.clone(),
            (None, None) if a_persons => {
                let hint = format!("apply it with the values {BMC_USERNAME} and {BMC_PASSWORD}");
                return refused(
                    ErrorCode::NotFound,
                    format!("the secret \"{name}\" has no value \"{BMC_PASSWORD}\""),
                    hint,
                );
            }
            (None, _) => password()?,
        };
        if let Some(fault) = BmcAccount::fault(&username, &password) {
            return refused(ErrorCode::InvalidDocument, fault, "change the secret, and the BMC with it".to_owned());
        }
        if is_new || pending.is_some() {
            let (username, password, machine) = (username.clone(), password.clone(), machine.metadata.uid);
            let pending = Some(Pending { workflow, action: action.to_owned(), machine, username, password });
            if values.pending != pending {
                values.pending = pending;
                turn.during(self.put_values(&name, &values)).await?;
            }
        }
        if document.is_none() {
            let metadata = Metadata { name: name.clone(), ..Metadata::default() };
            let (spec, status) = (SecretSpec::default(), Some(SecretStatus::default()));
            let api_version = API_VERSION.to_owned();
            let made = Document::from(Secret { api_version, kind: Kind::Secret, metadata, spec, status });
            made.validate()?;
            turn.during(self.store.documents().create(made)).await?;
            tracing::info!(secret = name, machine = %owner, "made for the account of the machine's BMC");
        }
        Ok(BmcAccount { username, password: SecretText::new(password), privilege: spec.privilege })
    }

    /// The action of the workflow has set the account in the machine's BMC, at this address: it is the one in use from now on. May be repeated.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(in crate::engine) async fn account_is_set(
        &self, machine: &Machine, (workflow, action): (Uuid, &str), bmc: (IpAddr, &BmcAddress),
    ) -> Result<(), Problem> {
        let (turn, _one) = self.alone().await?;
        let name = bmc_secret(machine);
        // One that was deleted meanwhile is not made again: that is a person's wish.
        let Some(mut document) = self.document(&name).await? else { return Ok(()) };
        let Some(mut values) = self.values(&name).await? else { return Ok(()) };
        if let Some(pending) =
            values.pending.take_if(|pending| pending.workflow == workflow && pending.action == action)
        {
            values.data.insert(BMC_USERNAME.to_owned(), pending.username);
            values.data.insert(BMC_PASSWORD.to_owned(), pending.password);
            values.version = values.version.max(document.status.as_ref().map_or(0, |status| status.version)) + 1;
            if values.made_for.is_some() && values.made_for != machine.metadata.uid {
                // Those of the computer that had the name before.
                document.spec.bmcs.clear();
                values.made_for = machine.metadata.uid;
            }
            turn.during(self.put_values(&name, &values)).await?;
        }
        let before = document.clone();
        document.status = Some(SecretStatus { keys: values.data.keys().cloned().collect(), version: values.version });
        let (address, place) = bmc;
        let places = &mut document.spec.bmcs;
        if values.made_for.is_some_and(|made_for| Some(made_for) == machine.metadata.uid)
            && !places.iter().any(|known| place_has(known, place))
        {
            places.push(address.to_string());
        }
        if document != before {
            turn.during(self.store.documents().update(Document::from(document))).await?;
            tracing::info!(secret = name, machine = %machine.metadata.name, version = values.version, "the BMC has the account");
        }
        Ok(())
    }
}
