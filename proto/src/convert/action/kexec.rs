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

    #[test]
    fn a_kexec_without_choices_leaves_them_to_the_agent() {
        assert_eq!(v1::Kexec::from(KexecSpec::default()), v1::Kexec::default());
        assert_eq!(KexecSpec::try_from(v1::Kexec::default()), Ok(KexecSpec::default()));
    }
}
