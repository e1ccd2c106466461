//! Enrolment: a proof and a key in, a machine's certificate out.

use landfall_api::{ErrorCode, IdentitySpec, Machine, Problem};

use super::{
    Engine, EnrollRequest, Enrolled, Identity, Proof,
    boot::{TokenRecord, token_name},
    derive,
};

impl Engine {
    /// Gives a certificate to whoever holds a machine's boot token and looks like that machine.
    ///
    /// A token belongs to the first key that uses it: the same key asking again gets a certificate again, for as long
    /// as it may need one; a second key is refused, and the machine carries an alarm.
    ///
    /// # Errors
    /// [`Problem`] with code `TokenRefused`, `AmbiguousIdentity` or `InvalidDocument` (the request does not parse).
    pub async fn enroll(&self, request: EnrollRequest) -> Result<Enrolled, Problem> {
        let key = self.inner.authority.key_of_request(&request.csr_der)?;
        let Proof::BootToken(token) = &request.proof;
        let refused = |what: &str| {
            Problem::new(ErrorCode::TokenRefused, format!("the boot token {what}"))
                .hint("restart the machine: its boot script brings a new token")
        };
        let stored = self.inner.store.secrets().get(&token_name(token), self.now()).await?;
        let Some(stored) = stored else { return Err(refused("is unknown or has expired")) };
        let record: TokenRecord = serde_json::from_slice(&stored).map_err(super::drive::internal)?;
        let Some(name) = self.index().machine_name(record.machine) else {
            return Err(refused("belongs to a machine that is no longer described"));
        };
        let _lock = self.inner.machines.lock(record.machine).await;
        // Read again under the lock: another key may have been first.
        let stored = self.inner.store.secrets().get(&token_name(token), self.now()).await?;
        let record: TokenRecord = match stored {
            Some(stored) => serde_json::from_slice(&stored).map_err(super::drive::internal)?,
            None => return Err(refused("has expired")),
        };
        let Some(machine) = self.inner.store.machine(&name).await? else {
            return Err(refused("belongs to a machine that is no longer described"));
        };
        if record.key.as_ref().is_some_and(|first| *first != key) {
            let said = describe(&request.identity);
            self.alarm(&name, "TokenReused", format!("a second key tried the boot token of this machine ({said})"))
                .await?;
            return Err(refused("was used by another key already"));
        }
        if let Err(problem) = check_identity(&machine, &request.identity) {
            self.alarm(&name, "IdentityMismatch", problem.message.clone()).await?;
            return Err(problem);
        }
        let issued = self.inner.authority.issue_machine(&name, record.machine, &request.csr_der)?;
        // From now on the token is the key's own, and lasts for renewals; each certificate is still short.
        let expires = self.after(self.inner.settings.certificate_ttl * 2);
        self.put_token(token, &TokenRecord { machine: record.machine, key: Some(key) }, expires).await?;
        tracing::info!(machine = %name, serial = %issued.serial_hex, boot_id = %request.boot_id, "enrolled");
        Ok(Enrolled { machine: name, machine_uid: record.machine, chain_der: issued.chain_der, time: self.now() })
    }

    pub(super) async fn alarm(&self, machine: &str, reason: &str, message: String) -> Result<(), Problem> {
        tracing::warn!(machine, reason, %message, "identity alarm");
        let now = self.now();
        self.mutate_machine(machine, |machine| {
            let at = (now, machine.metadata.generation);
            let status = machine.status.get_or_insert_with(derive::new_machine_status);
            derive::set(&mut status.conditions, "IdentityAmbiguous", true, reason, message.clone(), at);
        })
        .await
        .map(drop)
    }
}

/// Every field that the document gives must agree with what the agent read.
pub(super) fn check_identity(machine: &Machine, said: &Identity) -> Result<(), Problem> {
    let IdentitySpec { macs, smbios_uuid, serial } = &machine.spec.identity;
    let name = &machine.metadata.name;
    let wrong = |field: &str, described: String, said: String| {
        let said = if said.is_empty() { "none".to_owned() } else { said };
        Err(Problem::new(
            ErrorCode::AmbiguousIdentity,
            format!("machine \"{name}\" is described with {field} {described}, this computer has {said}"),
        )
        .at(format!("spec.identity.{field}"))
        .hint("correct the machine document, or find out which computer uses its address"))
    };
    let list = |macs: &[landfall_api::MacAddr]| macs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !said.macs.iter().any(|mac| macs.contains(mac)) {
        return wrong("macs", list(macs), list(&said.macs));
    }
    if let Some(described) = smbios_uuid
        && said.smbios_uuid != Some(*described)
    {
        return wrong(
            "smbiosUuid",
            described.to_string(),
            said.smbios_uuid.map_or_else(String::new, |u| u.to_string()),
        );
    }
    if let Some(described) = serial
        && said.serial != *described
    {
        return wrong("serial", described.clone(), said.serial.clone());
    }
    Ok(())
}

fn describe(identity: &Identity) -> String {
    let macs = identity.macs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("macs {macs}; serial \"{}\"", identity.serial)
}
