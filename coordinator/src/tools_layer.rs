//! The tools layers: looked at and hashed once, when the configuration is loaded. Machines fetch that of their processor by its
//! digest.

use std::path::Path;

use landfall_api::{ErrorCode, Problem, message::ToolsLayer};
use landfall_boot::http::layer::Layer;

use crate::config::{Config, ConfigError};

/// The layers as agents are to fetch them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolsLayers {
    /// That of x86-64 machines, `boot.tools`.
    pub x86_64: Option<ToolsLayer>,
    /// That of arm64 machines, `boot.arm64.tools`.
    pub arm64: Option<ToolsLayer>,
}

impl ToolsLayers {
    /// The layer of a machine with that processor, as its facts name it; `None`: no agent has reported it yet. Such a machine gets
    /// the only layer that there is, or that for x86-64: its agent refuses another processor's before it writes.
    ///
    /// # Errors
    /// There is none; code `NoToolsLayer`, with the key of the configuration to set.
    pub fn of(&self, architecture: Option<&str>) -> Result<&ToolsLayer, Problem> {
        let (layer, whose, key) = match architecture {
            None => (self.x86_64.as_ref().or(self.arm64.as_ref()), "", "boot.tools"),
            Some("x86_64") => (self.x86_64.as_ref(), " for x86-64 machines", "boot.tools"),
            Some("aarch64") => (self.arm64.as_ref(), " for arm64 machines", "boot.arm64.tools"),
            Some(other) => {
                let message = format!("there is no tools layer for {other} machines");
                return Err(Problem::new(ErrorCode::NoToolsLayer, message).hint("leave out the actions that need it"));
            }
        };
        layer.ok_or_else(|| {
            let message = format!("this coordinator has no tools layer{whose}");
            let hint = format!(
                "make one with landfall-image tools, name it as {key} in the coordinator's configuration, and reload"
            );
            Problem::new(ErrorCode::NoToolsLayer, message).hint(hint)
        })
    }
}

/// The layers that are configured, and their files, to be served. Reads at most [`ToolsLayer::MAX_BYTES`] of each. Blocking.
///
/// # Errors
/// [`ConfigError::Invalid`] naming the key, for a file that cannot be read, is too large or is no squashfs.
pub fn read(config: &Config) -> Result<(ToolsLayers, Vec<Layer>), ConfigError> {
    let x86_64 = config.boot.tools.as_deref().map(|path| opened(path, "boot.tools")).transpose()?;
    let arm64 = config.boot.arm64.tools.as_deref().map(|path| opened(path, "boot.arm64.tools")).transpose()?;
    let described = |layer: &Layer| ToolsLayer {
        url: format!("{}{}", config.http_url(), layer.route()),
        other_urls: config.other_http_urls().iter().map(|url| format!("{url}{}", layer.route())).collect(),
        digest: layer.digest,
        size_bytes: layer.size_bytes,
    };
    let layers = ToolsLayers { x86_64: x86_64.as_ref().map(described), arm64: arm64.as_ref().map(described) };
    Ok((layers, x86_64.into_iter().chain(arm64).collect()))
}

fn opened(path: &Path, key: &'static str) -> Result<Layer, ConfigError> {
    Layer::open(path).map_err(|error| ConfigError::Invalid {
        key,
        what: format!("{} {error}", path.display()),
        hint: "create it with landfall-image tools, or correct the path",
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_of(tools: Option<&str>, arm64: &str) -> Result<ToolsLayers, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let tools = tools.map_or_else(String::new, |text| format!("tools = \"{}\"\n", file("tools", text)));
        let text = format!(
            "data_dir = \"/d\"\nadvertise = \"10.77.0.1\"\nothers = [\"https://10.77.0.2:7443\"]\n\
             [store]\nurl = \"postgresql://a@localhost/d\"\n[boot]\nkernel = \"/k\"\ninitramfs = \"/i\"\n{tools}\
             [boot.arm64]\ntools = \"{}\"\n",
            file("arm64", arm64),
        );
        let (layers, files) = read(&Config::parse(Path::new("c.toml"), &text).unwrap()).map_err(|e| e.to_string())?;
        assert_eq!(files.len(), [&layers.x86_64, &layers.arm64].into_iter().flatten().count());
        Ok(layers)
    }

    #[test]
    fn each_layer_is_served_by_the_digest_of_its_file() {
        let layers = read_of(Some("hsqs and more"), "hsqs of arm64").unwrap();
        let layer = layers.of(Some("x86_64")).unwrap();
        // printf 'hsqs and more' | sha256sum
        let known = "sha256:c2dfe2e35f53d665db3627724b9a3b241cad1d05c9156fb09c18c213cb956ebb";
        assert_eq!((layer.digest.to_string().as_str(), layer.size_bytes), (known, 13));
        assert_eq!(layer.url, format!("http://10.77.0.1:7480/boot/tools/{known}"));
        assert_eq!(layer.other_urls, [format!("http://10.77.0.2:7480/boot/tools/{known}")]);
        assert_ne!(layers.of(Some("aarch64")).unwrap().digest, layer.digest);
    }

    #[test]
    fn a_file_that_is_no_layer_is_refused_by_key() {
        for (tools, arm64, key) in [("<html>", "hsqs", "boot.tools"), ("hsqs", "<html>", "boot.arm64.tools")] {
            let error = read_of(Some(tools), arm64).unwrap_err();
            assert!(error.starts_with(key) && error.contains("is no squashfs"), "{error}");
        }
    }

    #[test]
    fn a_machine_gets_no_other_processors_layer() {
        let layers = read_of(None, "hsqs").unwrap();
        assert_eq!(layers.of(Some("aarch64")).unwrap(), layers.arm64.as_ref().unwrap());
        assert_eq!(layers.of(None).unwrap(), layers.arm64.as_ref().unwrap(), "not known: the only one");
        let hint = layers.of(Some("x86_64")).unwrap_err().hint;
        assert!(hint.contains("boot.tools"), "{hint}");
        let hint = ToolsLayers::default().of(Some("aarch64")).unwrap_err().hint;
        assert!(hint.contains("boot.arm64.tools"), "{hint}");
        assert!(layers.of(Some("riscv64")).unwrap_err().message.contains("riscv64"));
    }
}
