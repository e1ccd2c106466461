//! Machines behind a BMC, whose power switch and boot device are those of the lab's machines.

mod chassis;
mod ipmi;
mod redfish;
mod simulated;
mod system;
mod systems;

pub use chassis::Chassis;
pub use ipmi::Ipmi;
pub use redfish::Redfish;
pub use simulated::Simulated;
pub use systems::Systems;
