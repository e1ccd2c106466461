//! What a machine's power is controlled by.

use std::sync::Arc;

use landfall_api::{BmcAddress, BmcSpec, MacAddr, MachineSpec, PowerSpec, WakeOnLan};

/// What a machine's power is controlled by, as its document states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) enum Control {
    /// Its BMC.
    Bmc(Arc<BmcSpec>),
    /// Magic packets to these ports.
    WakeOnLan(Arc<(WakeOnLan, Vec<MacAddr>)>),
}

impl Control {
    /// That of a machine; absent: a person.
    pub(in crate::engine) fn of(spec: &MachineSpec) -> Option<Self> {
        match (&spec.bmc, &spec.power) {
            (Some(bmc), _) => Some(Self::Bmc(Arc::new(bmc.clone()))),
            (None, Some(PowerSpec::WakeOnLan(wake))) => {
                Some(Self::WakeOnLan(Arc::new((wake.clone(), spec.identity.macs.clone()))))
            }
            (None, Some(PowerSpec::Manual(_)) | None) => None,
        }
    }

    /// Where the BMC is.
    pub(super) fn address(&self) -> Option<&BmcAddress> {
        match self {
            Self::Bmc(spec) => Some(&spec.address),
            Self::WakeOnLan(_) => None,
        }
    }
}
