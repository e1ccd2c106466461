//! `runContainer`.

use landfall_api::{
    ContainerCapability, ContainerDevice, ContainerMount, ContainerNetwork, DiskId, ExecVariable, ImageAccess,
    RunContainer, RunContainerResult,
};

use super::super::{
    ConvertError, Within as _,
    scalar::text,
    selector::{selector, selector_if_any, selector_to_wire},
};
use crate::v1;

impl TryFrom<v1::RunContainer> for RunContainer {
    type Error = ConvertError;

    fn try_from(wire: v1::RunContainer) -> Result<Self, ConvertError> {
        let variables = wire.variables.into_iter().map(ExecVariable::try_from).collect::<Result<_, _>>();
        let devices = wire.devices.into_iter().map(ContainerDevice::try_from).collect::<Result<_, _>>();
        let mounts = wire.mounts.into_iter().map(ContainerMount::try_from).collect::<Result<_, _>>();
        let command = wire.command.map(|it| it.words);
        if command.as_ref().is_some_and(Vec::is_empty) {
            return Err(ConvertError::missing("command.words"));
        }
        Ok(Self {
            image: text("image", wire.image)?,
            access: wire.access.map(ImageAccess::try_from).transpose().within("access")?.unwrap_or_default(),
            command,
            args: wire.args.map(|it| it.words),
            variables: variables.within("variables")?,
            directory: Some(wire.directory).filter(|text| !text.is_empty()),
            user: Some(wire.user).filter(|text| !text.is_empty()),
            network: if wire.host_network { ContainerNetwork::Host } else { ContainerNetwork::None },
            capabilities: wire.capabilities.iter().map(|name| capability(name)).collect::<Result<_, _>>()?,
            devices: devices.within("devices")?,
            mounts: mounts.within("mounts")?,
            disk: selector_if_any(wire.disk),
        })
    }
}

fn capability(name: &str) -> Result<ContainerCapability, ConvertError> {
    let known = ContainerCapability::ALL.into_iter().find(|known| known.as_str() == name);
    known.ok_or_else(|| ConvertError::new("capabilities", format!("\"{name}\" is no capability of a container")))
}

impl From<RunContainer> for v1::RunContainer {
    fn from(spec: RunContainer) -> Self {
        let words = |words| v1::ContainerWords { words };
        Self {
            image: spec.image,
            access: Some(spec.access).filter(|access| *access != ImageAccess::default()).map(v1::ImageAccess::from),
            command: spec.command.map(words),
            args: spec.args.map(words),
            variables: spec.variables.into_iter().map(Into::into).collect(),
            directory: spec.directory.unwrap_or_default(),
            user: spec.user.unwrap_or_default(),
            host_network: spec.network == ContainerNetwork::Host,
            capabilities: spec.capabilities.iter().map(|it| it.as_str().to_owned()).collect(),
            devices: spec.devices.into_iter().map(Into::into).collect(),
            mounts: spec.mounts.into_iter().map(Into::into).collect(),
            disk: spec.disk.map(selector_to_wire).unwrap_or_default(),
        }
    }
}

impl TryFrom<v1::ContainerDevice> for ContainerDevice {
    type Error = ConvertError;

    fn try_from(wire: v1::ContainerDevice) -> Result<Self, ConvertError> {
        Ok(Self { disk: selector(wire.disk), path: text("path", wire.path)? })
    }
}

impl From<ContainerDevice> for v1::ContainerDevice {
    fn from(device: ContainerDevice) -> Self {
        Self { disk: selector_to_wire(device.disk), path: device.path }
    }
}

impl TryFrom<v1::ContainerMount> for ContainerMount {
    type Error = ConvertError;

    fn try_from(wire: v1::ContainerMount) -> Result<Self, ConvertError> {
        Ok(Self { from: text("from", wire.from)?, to: text("to", wire.to)?, read_only: wire.read_only })
    }
}

impl From<ContainerMount> for v1::ContainerMount {
    fn from(mount: ContainerMount) -> Self {
        Self { from: mount.from, to: mount.to, read_only: mount.read_only }
    }
}

impl From<v1::RunContainerResult> for RunContainerResult {
    fn from(wire: v1::RunContainerResult) -> Self {
        Self { disks: wire.disks.into_iter().map(DiskId::from).collect() }
    }
}

impl From<RunContainerResult> for v1::RunContainerResult {
    fn from(result: RunContainerResult) -> Self {
        Self { disks: result.disks.into_iter().map(v1::DiskId::from).collect() }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::{DiskSelector, ImageAuthorization, SecretText};

    use super::*;

    fn container() -> RunContainer {
        let serial = |serial: &str| DiskSelector([("serial".to_owned(), serial.into())].into());
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
            devices: vec![ContainerDevice { disk: serial("D1"), path: "/dev/target".into() }],
            mounts: vec![ContainerMount { from: "/".into(), to: "/mnt".into(), read_only: true }],
            disk: Some(serial("D2")),
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
            assert!(!format!("{spec:?}").contains("geheim"), "{spec:?}");
            assert_eq!(RunContainer::try_from(v1::RunContainer::from(spec.clone())), Ok(spec));
        }
        let result = RunContainerResult { disks: vec![DiskId { name: "vda".into(), ..DiskId::default() }] };
        assert_eq!(RunContainerResult::from(v1::RunContainerResult::from(result.clone())), result);
    }

    #[test]
    fn a_container_with_an_unknown_right_is_refused() {
        let whole = v1::RunContainer::from(container());
        let nowhere = v1::ContainerMount { from: "/".into(), to: String::new(), read_only: false };
        let nameless = v1::ContainerDevice { disk: [].into(), path: String::new() };
        for (wire, field) in [
            (v1::RunContainer { image: String::new(), ..whole.clone() }, "image"),
            (v1::RunContainer { command: Some(v1::ContainerWords::default()), ..whole.clone() }, "command.words"),
            (v1::RunContainer { capabilities: vec!["SYS_ADMIN".into()], ..whole.clone() }, "capabilities"),
            (v1::RunContainer { mounts: vec![nowhere], ..whole.clone() }, "mounts.to"),
            (v1::RunContainer { devices: vec![nameless], ..whole }, "devices.path"),
        ] {
            assert_eq!(RunContainer::try_from(wire).unwrap_err().field(), field);
        }
    }
}
