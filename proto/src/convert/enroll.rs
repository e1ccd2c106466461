//! Enrolment.

use landfall_api::{
    SecretText,
    message::{EnrollAnswer, EnrollOutcome, EnrollRequest, MachineCredentials, Proof},
};

use super::{
    ConvertError, Within as _,
    facts::{facts, facts_to_wire},
    scalar::{duration, duration_to_wire, text, timestamp, timestamp_to_wire, uuid},
};
use crate::v1::{self, enroll_request::Proof as WireProof, enroll_response::Outcome};

impl TryFrom<v1::EnrollRequest> for EnrollRequest {
    type Error = ConvertError;

    fn try_from(wire: v1::EnrollRequest) -> Result<Self, ConvertError> {
        let proof = wire.proof.ok_or_else(|| ConvertError::missing("enroll.proof"))?.try_into()?;
        if wire.csr_der.is_empty() {
            return Err(ConvertError::missing("enroll.csr_der"));
        }
        let versions = wire.versions.unwrap_or_default();
        let identity = wire.identity.ok_or_else(|| ConvertError::missing("enroll.identity"))?;
        Ok(Self {
            software: versions.software,
            protocol: versions.protocol,
            identity: identity.try_into().within("enroll.identity")?,
            boot_id: text("enroll.boot_id", wire.boot_id)?,
            csr_der: wire.csr_der,
            facts: match wire.facts_json.as_str() {
                "" => None,
                json => Some(Box::new(facts("enroll.facts_json", json)?)),
            },
            proof,
        })
    }
}

impl TryFrom<EnrollRequest> for v1::EnrollRequest {
    type Error = ConvertError;

    fn try_from(request: EnrollRequest) -> Result<Self, ConvertError> {
        let facts = request.facts.map(|facts| facts_to_wire("enroll.facts_json", &facts)).transpose()?;
        Ok(Self {
            versions: Some(v1::Versions { software: request.software, protocol: request.protocol }),
            identity: Some(request.identity.into()),
            boot_id: request.boot_id,
            csr_der: request.csr_der,
            facts_json: facts.unwrap_or_default(),
            proof: Some(request.proof.into()),
        })
    }
}

impl TryFrom<WireProof> for Proof {
    type Error = ConvertError;

    fn try_from(wire: WireProof) -> Result<Self, ConvertError> {
        match wire {
            WireProof::BootToken(token) => Ok(Self::BootToken(SecretText::new(token.token))),
            WireProof::Approval(approval) => Ok(Self::Approval { fingerprint: approval.fingerprint }),
            WireProof::Renewal(v1::Renewal {}) => Ok(Self::Renewal),
            WireProof::Tpm(_) => Err(ConvertError::new(
                "enroll.proof",
                "a TPM's quote is not supported; boot tokens, approvals and renewals are",
            )),
        }
    }
}

impl From<Proof> for WireProof {
    fn from(proof: Proof) -> Self {
        match proof {
            Proof::BootToken(token) => Self::BootToken(v1::BootToken { token: token.into_exposed() }),
            Proof::Approval { fingerprint } => Self::Approval(v1::Approval { fingerprint }),
            Proof::Renewal => Self::Renewal(v1::Renewal {}),
        }
    }
}

impl TryFrom<v1::EnrollResponse> for EnrollAnswer {
    type Error = ConvertError;

    fn try_from(wire: v1::EnrollResponse) -> Result<Self, ConvertError> {
        let outcome = match wire.outcome.ok_or_else(|| ConvertError::missing("enroll.outcome"))? {
            Outcome::Credentials(wire) => EnrollOutcome::Granted(wire.try_into().within("enroll.credentials")?),
            Outcome::Waiting(waiting) => EnrollOutcome::Waiting {
                reason: waiting.reason,
                retry_after: duration("enroll.waiting.retry_after", waiting.retry_after)?,
            },
        };
        Ok(Self { coordinator_time: timestamp("enroll.coordinator_time", wire.coordinator_time)?, outcome })
    }
}

impl From<EnrollAnswer> for v1::EnrollResponse {
    fn from(answer: EnrollAnswer) -> Self {
        let outcome = match answer.outcome {
            EnrollOutcome::Granted(granted) => Outcome::Credentials(granted.into()),
            EnrollOutcome::Waiting { reason, retry_after } => {
                Outcome::Waiting(v1::Waiting { reason, retry_after: Some(duration_to_wire(retry_after)) })
            }
        };
        Self { coordinator_time: Some(timestamp_to_wire(answer.coordinator_time)), outcome: Some(outcome) }
    }
}

impl TryFrom<v1::Credentials> for MachineCredentials {
    type Error = ConvertError;

    fn try_from(wire: v1::Credentials) -> Result<Self, ConvertError> {
        if wire.certificate_chain_der.is_empty() {
            return Err(ConvertError::missing("certificate_chain_der"));
        }
        Ok(Self {
            machine_name: wire.machine_name,
            machine_uid: uuid("machine_uid", &wire.machine_uid)?,
            certificate_chain_der: wire.certificate_chain_der,
        })
    }
}

impl From<MachineCredentials> for v1::Credentials {
    fn from(granted: MachineCredentials) -> Self {
        Self {
            machine_name: granted.machine_name,
            machine_uid: granted.machine_uid.to_string(),
            certificate_chain_der: granted.certificate_chain_der,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use landfall_api::{MachineFacts, message::Identity};
    use uuid::Uuid;

    use super::*;

    fn request(proof: Proof) -> EnrollRequest {
        EnrollRequest {
            software: "1.0.0".into(),
            protocol: 3,
            identity: Identity {
                smbios_uuid: Some(Uuid::from_u128(3)),
                serial: "S".into(),
                macs: vec!["52:54:00:00:00:01".parse().unwrap()],
            },
            boot_id: "b".into(),
            csr_der: vec![1],
            facts: Some(Box::new(MachineFacts { memory_bytes: 5, ..MachineFacts::default() })),
            proof,
        }
    }

    #[test]
    fn a_request_survives_the_wire_with_each_proof() {
        for proof in
            [Proof::BootToken(SecretText::new("geheim")), Proof::Approval { fingerprint: "f".into() }, Proof::Renewal]
        {
            let sent = request(proof);
            assert!(!format!("{sent:?}").contains("geheim"));
            let wire = v1::EnrollRequest::try_from(sent.clone()).unwrap();
            assert_eq!(EnrollRequest::try_from(wire), Ok(sent));
        }
    }

    #[test]
    fn an_invalid_request_is_refused_by_its_field() {
        type Spoil = fn(&mut v1::EnrollRequest);
        let cases: [(&str, Spoil); 7] = [
            ("enroll.proof", |r| r.proof = None),
            ("enroll.proof", |r| r.proof = Some(WireProof::Tpm(v1::TpmQuote::default()))),
            ("enroll.csr_der", |r| r.csr_der.clear()),
            ("enroll.identity", |r| r.identity = None),
            ("enroll.identity.macs", |r| r.identity.get_or_insert_default().macs = vec!["x".into()]),
            ("enroll.boot_id", |r| r.boot_id.clear()),
            ("enroll.facts_json", |r| r.facts_json = "{".into()),
        ];
        for (field, spoil) in cases {
            let mut wire = v1::EnrollRequest::try_from(request(Proof::Renewal)).unwrap();
            spoil(&mut wire);
            assert_eq!(EnrollRequest::try_from(wire).unwrap_err().field(), field);
        }
    }

    #[test]
    fn an_answer_survives_the_wire() {
        let granted = MachineCredentials {
            machine_name: "m".into(),
            machine_uid: Uuid::from_u128(1),
            certificate_chain_der: vec![vec![1], vec![2]],
        };
        let waiting = EnrollOutcome::Waiting { reason: "approve".into(), retry_after: Duration::from_secs(5) };
        for outcome in [EnrollOutcome::Granted(granted), waiting] {
            let answer = EnrollAnswer { coordinator_time: Timestamp::UNIX_EPOCH, outcome };
            assert_eq!(EnrollAnswer::try_from(v1::EnrollResponse::from(answer.clone())), Ok(answer));
        }
    }

    #[test]
    fn an_answer_without_a_certificate_is_refused() {
        let wire = v1::EnrollResponse {
            coordinator_time: Some(prost_types::Timestamp::default()),
            outcome: Some(Outcome::Credentials(v1::Credentials::default())),
        };
        let error = EnrollAnswer::try_from(wire).unwrap_err();
        assert_eq!(error.field(), "enroll.credentials.certificate_chain_der");
    }
}
