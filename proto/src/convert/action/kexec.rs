//! `kexec`. An empty command line or disk on the wire leaves the choice to the agent.

use landfall_api::{KexecSpec, message::KexecResult};

use super::super::{
    scalar::text_if_any,
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1;

impl From<v1::Kexec> for KexecSpec {
    fn from(wire: v1::Kexec) -> Self {
        Self { cmdline: text_if_any(wire.cmdline), disk: selector_if_any(wire.disk) }
    }
}

impl From<KexecSpec> for v1::Kexec {
    fn from(spec: KexecSpec) -> Self {
        Self { cmdline: spec.cmdline.unwrap_or_default(), disk: spec.disk.map(selector_to_wire).unwrap_or_default() }
    }
}

impl From<v1::KexecResult> for KexecResult {
    fn from(wire: v1::KexecResult) -> Self {
        let v1::KexecResult { root_device, kernel, initramfs, cmdline } = wire;
        Self { root_device, kernel, initramfs, cmdline }
    }
}

impl From<KexecResult> for v1::KexecResult {
    fn from(result: KexecResult) -> Self {
        let KexecResult { root_device, kernel, initramfs, cmdline } = result;
        Self { root_device, kernel, initramfs, cmdline }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::DiskSelector;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kexec_without_choices_leaves_them_to_the_agent() {
        assert_eq!(v1::Kexec::from(KexecSpec::default()), v1::Kexec::default());
        assert_eq!(KexecSpec::from(v1::Kexec::default()), KexecSpec::default());
    }

    #[test]
    fn a_kexecs_disk_and_command_line_survive_the_wire() {
        let disk = DiskSelector([("serial".to_owned(), json!("D1"))].into());
        let spec = KexecSpec { cmdline: Some("root=/dev/vda1 ro".into()), disk: Some(disk) };
        let wire = v1::Kexec::from(spec.clone());
        assert_eq!((wire.cmdline.as_str(), wire.disk["serial"].as_str()), ("root=/dev/vda1 ro", "D1"));
        assert_eq!(KexecSpec::from(wire), spec);
    }
}
