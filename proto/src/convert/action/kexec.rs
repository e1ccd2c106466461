//! `kexec`. An empty command line or disk on the wire leaves the choice to the agent.

use landfall_api::{KexecSpec, message::KexecResult};

use crate::{convert::codec::*, v1};

wire! {
    KexecSpec = v1::Kexec { cmdline: text_if_any, disk: selector_if_any }

    KexecResult = v1::KexecResult { root_device, kernel, initramfs, cmdline }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::{disk, survives};

    #[test]
    fn a_kexec_without_choices_leaves_them_to_the_agent() {
        assert_eq!(v1::Kexec::from(KexecSpec::default()), v1::Kexec::default());
        assert_eq!(KexecSpec::try_from(v1::Kexec::default()), Ok(KexecSpec::default()));
    }

    #[test]
    fn a_kexecs_disk_and_command_line_survive_the_wire() {
        let spec = KexecSpec { cmdline: Some("root=/dev/vda1 ro".into()), disk: Some(disk("D1")) };
        let wire = v1::Kexec::from(spec.clone());
        assert_eq!((wire.cmdline.as_str(), wire.disk["serial"].as_str()), ("root=/dev/vda1 ro", "D1"));
        survives::<v1::Kexec, _>(spec);
    }
}
