//! What the tests of both protocols begin with.

use landfall_api::BmcSpec;
use landfall_bmc::{Account, Bmc, BootDevice, BootMode, BootOverride, connect};
use landfall_bmcsim::{BmcSim, PASSWORD, USERNAME};

/// The boot device that most tests set.
pub(crate) const ONCE: BootOverride = BootOverride { device: BootDevice::Pxe, once: true, mode: Some(BootMode::Uefi) };

/// A document that names the BMC, and no certificate.
pub(crate) fn spec(sim: &BmcSim) -> BmcSpec {
    let address = sim.address().parse().unwrap();
    BmcSpec::new(address, "s")
}

/// Its account, with that password.
pub(crate) fn account(password: &str) -> Account {
    Account { username: USERNAME.into(), password: password.into() }
}

/// A session with the right one.
pub(crate) async fn connected(sim: &BmcSim) -> Box<dyn Bmc> {
    connect(&spec(sim), account(PASSWORD), "m1").await.unwrap()
}
