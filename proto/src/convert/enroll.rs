//! Enrolment.

use landfall_api::SecretText;
use landfall_api::message::{EnrollAnswer, EnrollOutcome, EnrollRequest, MachineCredentials, Proof};

use super::codec::*;
use super::facts::{facts, facts_to_wire};
use super::{ConvertError, Within as _};
use crate::v1::{self, enroll_request::Proof as WireProof, enroll_response::Outcome};

impl TryFrom<v1::EnrollRequest> for EnrollRequest {
    type Error = ConvertError;

    fn try_from(wire: v1::EnrollRequest) -> Result<Self, ConvertError> {
        let proof = oneof::from("enroll.proof", wire.proof)?;
        let csr_der = filled::from("enroll.csr_der", wire.csr_der)?;
        let versions = wire.versions.unwrap_or_default();
        Ok(Self {
            software: versions.software,
            protocol: versions.protocol,
            identity: one::from("enroll.identity", wire.identity)?,
            boot_id: text::from("enroll.boot_id", wire.boot_id)?,
            csr_der,
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
                retry_after: span::from("enroll.waiting.retry_after", waiting.retry_after)?,
            },
        };
        Ok(Self { coordinator_time: moment::from("enroll.coordinator_time", wire.coordinator_time)?, outcome })
    }
}

impl From<EnrollAnswer> for v1::EnrollResponse {
    fn from(answer: EnrollAnswer) -> Self {
        let outcome = match answer.outcome {
            EnrollOutcome::Granted(granted) => Outcome::Credentials(granted.into()),
            EnrollOutcome::Waiting { reason, retry_after } => {
                Outcome::Waiting(v1::Waiting { reason, retry_after: span::to(retry_after) })
            }
        };
        Self { coordinator_time: moment::to(answer.coordinator_time), outcome: Some(outcome) }
    }
}

wire! {
    MachineCredentials = v1::Credentials { certificate_chain_der: filled, machine_name, machine_uid: parsed }
}

#[cfg(test)]
mod tests {
    use landfall_api::{MachineFacts, message::Identity};
    use uuid::Uuid;

    use super::*;
    use crate::convert::testing::{refused, survives};

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
            survives::<v1::EnrollRequest, _>(request(proof));
        }
    }

    #[test]
    fn an_invalid_request_is_refused_by_its_field() {
        refused::<v1::EnrollRequest, _>(
            request(Proof::Renewal),
            &[
                ("enroll.proof", |r| r.proof = None),
                ("enroll.proof", |r| r.proof = Some(WireProof::Tpm(v1::TpmQuote::default()))),
                ("enroll.csr_der", |r| r.csr_der.clear()),
                ("enroll.identity", |r| r.identity = None),
                ("enroll.identity.macs", |r| r.identity.get_or_insert_default().macs = vec!["x".into()]),
                ("enroll.boot_id", |r| r.boot_id.clear()),
                ("enroll.facts_json", |r| r.facts_json = "{".into()),
            ],
        );
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
