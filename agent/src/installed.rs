//! Where the agent leaves things on the installed system, so that what writes them and what removes them agree.

/// The agent's own binary.
pub(crate) const BINARY: &str = "/usr/local/lib/landfall/landfall-agent";
/// What phone-home needs to know; holds a bearer token.
pub(crate) const CONFIG: &str = "/etc/landfall/phone-home.json";
/// The unit that runs it.
pub(crate) const UNIT: &str = "/etc/systemd/system/landfall-phone-home.service";
/// What enables the unit.
pub(crate) const WANTS: &str = "/etc/systemd/system/multi-user.target.wants/landfall-phone-home.service";
/// cloud-init's NoCloud seed.
pub(crate) const SEED: &str = "/var/lib/cloud/seed/nocloud";

/// phone-home's exit status when the coordinator refused it for good.
pub(crate) const EXIT_REFUSED: u8 = 3;

/// The unit's text.
///
/// `DefaultDependencies=no`, because multi-user.target would otherwise wait for this unit, which waits for
/// cloud-final.service, which on Debian and Ubuntu waits for multi-user.target: systemd would break the cycle by
/// dropping one of them.
pub(crate) fn unit() -> String {
    format!(
        "[Unit]\nDescription=Tell the Landfall coordinator that this system is up\nDefaultDependencies=no\n\
         Requires=basic.target\n\
         Wants=network-online.target\n\
         After=basic.target network-online.target cloud-final.service\n\
         Conflicts=shutdown.target\n\
         Before=shutdown.target\n\
         ConditionPathExists={CONFIG}\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         ExecStart={BINARY} phone-home --config {CONFIG}\n\
         Restart=on-failure\n\
         RestartSec=10\n\
         RestartPreventExitStatus={EXIT_REFUSED}\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}
