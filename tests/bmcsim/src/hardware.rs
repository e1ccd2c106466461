//! A computer that is there, such as a virtual machine, before which the BMC is put.

/// What a BMC works with. All of it returns at once: what was asked for happens in a moment, or not.
pub trait Hardware: std::fmt::Debug + Send + Sync {
    /// Whether it has power now.
    fn is_on(&self) -> bool;

    /// Works the power switch.
    fn switch(&self, switch: Switch);

    /// Sets what it boots from, by the names of Redfish: `Pxe`, and `Once`, `Continuous` or `Disabled`.
    fn set_boot(&self, target: &str, enabled: &str);
}

/// A change of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// On.
    On,
    /// Off at once.
    Off,
    /// The button that asks the system to shut down.
    Button,
}
