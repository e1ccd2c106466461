//! What an image says of its program. (OCI image specification 1.1, config.md.) Pure.

use serde::Deserialize;

/// The configuration of an image, as far as it counts here.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    config: Option<Program>,
}

/// Each field may be absent or null.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Program {
    pub(super) user: Option<String>,
    pub(super) env: Option<Vec<String>>,
    pub(super) entrypoint: Option<Vec<String>>,
    pub(super) cmd: Option<Vec<String>>,
    pub(super) working_dir: Option<String>,
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    /// A clause: it is no configuration, or one for another machine. `architecture` is this machine's, as Go names it.
    pub(super) fn program(bytes: &[u8], architecture: &str) -> Result<Program, String> {
        let config: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("its configuration cannot be read: {error}"))?;
        let other = |stated: &str, ours: &str| !stated.is_empty() && stated != ours;
        if other(&config.os, "linux") || other(&config.architecture, architecture) {
            let (os, architecture_there) = (&config.os, &config.architecture);
            return Err(format!("it is for {os}/{architecture_there}, and this machine is linux/{architecture}"));
        }
        Ok(config.config.unwrap_or_default())
    }
}

impl Program {
    /// The program and its arguments, with what a template states in place of the image's, as Kubernetes has it: `command` is for the
    /// entry point, and takes the image's arguments away.
    pub(super) fn words(&self, command: Option<&[String]>, args: Option<&[String]>) -> Vec<String> {
        let image = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
        let (first, rest) = match (command, args) {
            (Some(command), args) => (command.to_vec(), args.unwrap_or_default().to_vec()),
            (None, Some(args)) => (image(&self.entrypoint), args.to_vec()),
            (None, None) => (image(&self.entrypoint), image(&self.cmd)),
        };
        [first, rest].concat()
    }

    /// The image's variables; what is none is left out.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = self.env.iter().flatten().filter_map(|variable| variable.split_once('='));
        named.filter(|(name, value)| !name.is_empty() && !name.contains('\0') && !value.contains('\0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(json: &str) -> Result<Program, String> {
        Config::program(json.as_bytes(), "amd64")
    }

    #[test]
    fn a_templates_words_replace_the_images() {
        let image = program(r#"{"config": {"Entrypoint": ["/run", "-v"], "Cmd": ["all"], "Env": null}}"#).unwrap();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let of = |command: Option<&str>, args: Option<&str>| {
            let (command, args) = (command.map(words), args.map(words));
            image.words(command.as_deref(), args.as_deref()).join(" ")
        };
        assert_eq!(of(None, None), "/run -v all");
        assert_eq!(of(None, Some("one two")), "/run -v one two");
        assert_eq!(of(None, Some("")), "/run -v");
        assert_eq!(of(Some("sh"), None), "sh");
        assert_eq!(of(Some("sh"), Some("-c x")), "sh -c x");
        assert!(program("{}").unwrap().words(None, None).is_empty());
    }

    #[test]
    fn variables_without_a_name_are_left_out() {
        let image = program(r#"{"config": {"Env": ["A=b=c", "=x", "none", "EMPTY=", "Z=a\u0000b"]}}"#).unwrap();
        assert_eq!(image.variables().collect::<Vec<_>>(), [("A", "b=c"), ("EMPTY", "")]);
    }

    #[test]
    fn an_image_for_another_machine_is_refused() {
        program(r#"{"architecture": "amd64", "os": "linux"}"#).unwrap();
        for (json, said) in [
            (r#"{"architecture": "arm64", "os": "linux"}"#, "linux/arm64"),
            (r#"{"architecture": "amd64", "os": "windows"}"#, "windows/amd64"),
            ("nonsense", "cannot be read"),
            (r#"{"config": {"Cmd": "sh"}}"#, "cannot be read"),
        ] {
            let error = program(json).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
