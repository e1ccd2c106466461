//! `efiBoot`. An empty disk on the wire leaves the choice to the agent.

use landfall_api::{EfiBootResult, EfiBootSpec};

use crate::convert::{codec::*, word::*};
use crate::v1;

wire! {
    EfiBootSpec = v1::EfiBoot { policy: word, disk: selector_if_any }
    EfiBootResult = v1::EfiBootResult { policy: word, disks: list }
}

#[cfg(test)]
mod tests {
    use landfall_api::{BootPolicy, DiskId};

    use super::*;
    use crate::convert::testing::{disk, refused, survives};

    #[test]
    fn every_policy_survives_the_wire_and_others_are_refused() {
        for policy in BootPolicy::ALL {
            survives::<v1::EfiBoot, _>(EfiBootSpec { policy, disk: Some(disk("D1")) });
            survives::<v1::EfiBootResult, _>(EfiBootResult { policy, disks: vec![DiskId::default()] });
        }
        refused::<v1::EfiBoot, _>(EfiBootSpec::default(), &[("policy", |w| w.policy = "diskfirst".into())]);
    }
}
