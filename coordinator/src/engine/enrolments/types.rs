//! What goes into and comes out of enrolment.

use std::{net::IpAddr, time::Duration};

use jiff::Timestamp;
use landfall_api::message::{EnrollOutcome, MachineCredentials};
use uuid::Uuid;

use crate::tls::MachineCert;

/// What the connection says of an agent that asks for a certificate.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    /// Where it asks from; `None` where that is not known.
    pub address: Option<IpAddr>,
    /// The machine's certificate that the connection showed.
    pub shown: Option<MachineCert>,
}

/// The answer to one that asks for a certificate.
#[derive(Debug, Clone)]
pub enum Enrolment {
    /// Here it is.
    Granted(Enrolled),
    /// A person or a rule has to approve it first.
    Waiting {
        /// What is waited for, for the console.
        reason: String,
        /// When to ask again.
        retry_after: Duration,
    },
}

/// A certificate for a machine.
#[derive(Debug, Clone)]
pub struct Enrolled {
    /// The machine's name.
    pub machine: String,
    /// The machine's uid.
    pub machine_uid: Uuid,
    /// The machine's certificate, then the CA's; DER.
    pub chain_der: Vec<Vec<u8>>,
    /// The machine's certificate's serial, lower-case hex.
    pub serial_hex: String,
    /// When it ends.
    pub expires: Timestamp,
    /// The coordinator's time.
    pub time: Timestamp,
}

impl From<Enrolment> for EnrollOutcome {
    fn from(enrolment: Enrolment) -> Self {
        match enrolment {
            Enrolment::Granted(enrolled) => Self::Granted(MachineCredentials {
                machine_name: enrolled.machine,
                machine_uid: enrolled.machine_uid,
                certificate_chain_der: enrolled.chain_der,
            }),
            Enrolment::Waiting { reason, retry_after } => Self::Waiting { reason, retry_after },
        }
    }
}
