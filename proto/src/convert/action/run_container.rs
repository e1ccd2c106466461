//! `runContainer`.

use landfall_api::{ContainerDevice, ContainerMount, ContainerNetwork, RunContainer, RunContainerResult};

use crate::convert::{ConvertError, codec::*, word::*};
use crate::v1;

wire! {
    RunContainer = v1::RunContainer, checked by command {
        image: text, access: unless_default, command: argv, args: argv, variables: list,
        directory: text_if_any, user: text_if_any, network: network(host_network), capabilities: words, devices: list,
        mounts: list, disk: selector_if_any,
    }
    ContainerDevice = v1::ContainerDevice { disk: selector, path: text }
    ContainerMount = v1::ContainerMount { from: text, to: text, read_only }
    RunContainerResult = v1::RunContainerResult { disks: list }
}

fn command(wire: &v1::RunContainer) -> Result<(), ConvertError> {
    match &wire.command {
        Some(command) if command.words.is_empty() => Err(ConvertError::missing("command.words")),
        _ => Ok(()),
    }
}

codec! {
    /// An empty list is one.
    argv: Option<v1::ContainerWords> => Option<Vec<String>>,
        |_, wire| Ok(wire.map(|it| it.words)), |words| words.map(|words| v1::ContainerWords { words });
    network: bool => ContainerNetwork,
        |_, host| Ok(if host { ContainerNetwork::Host } else { ContainerNetwork::None }),
        |network| network == ContainerNetwork::Host;
}

#[cfg(test)]
mod tests {
    use landfall_api::{ContainerCapability, ExecVariable, ImageAccess, ImageAuthorization, SecretText};

    use super::*;
    use crate::convert::testing::{disk, refused, survives};

    fn container() -> RunContainer {
        let variable = ExecVariable { name: "TOKEN".into(), value: SecretText::new("geheim"), secret: true };
        RunContainer {
            image: "oci://h/tool@sha256:00".into(),
            access: ImageAccess {
                authorization: Some(ImageAuthorization::Bearer(SecretText::new("geheim"))),
                ..ImageAccess::default()
            },
            command: Some(vec!["tool".into(), String::new()]),
            args: Some(Vec::new()),
            variables: vec![variable],
            directory: Some("/work".into()),
            user: Some("1000:users".into()),
            network: ContainerNetwork::Host,
            capabilities: ContainerCapability::ALL.into(),
            devices: vec![ContainerDevice { disk: disk("D1"), path: "/dev/target".into() }],
            mounts: vec![ContainerMount { from: "/".into(), to: "/mnt".into(), read_only: true }],
            disk: Some(disk("D2")),
        }
    }

    #[test]
    fn a_container_survives_the_wire_and_shows_no_secret() {
        let bare = RunContainer {
            access: ImageAccess::default(),
            command: None,
            args: None,
            variables: Vec::new(),
            directory: None,
            user: None,
            network: ContainerNetwork::None,
            capabilities: Vec::new(),
            devices: Vec::new(),
            mounts: Vec::new(),
            disk: None,
            ..container()
        };
        for spec in [container(), bare] {
            survives::<v1::RunContainer, _>(spec);
        }
    }

    #[test]
    fn a_container_with_an_unknown_right_is_refused() {
        refused::<v1::RunContainer, _>(
            container(),
            &[
                ("image", |w| w.image.clear()),
                ("command.words", |w| w.command = Some(v1::ContainerWords::default())),
                ("capabilities", |w| w.capabilities = vec!["SYS_ADMIN".into()]),
                ("mounts.to", |w| w.mounts[0].to.clear()),
                ("devices.path", |w| w.devices[0].path.clear()),
            ],
        );
    }
}
