//! What the rules of several actions need: a place for faults, and the rules for disk selectors, URLs and names.

use serde_json::{Map, Value};

use crate::dns_label::is_dns_label;
use crate::issue::{Issue, has_expression, join};
use crate::{DiskSelector, ImageUrl, SelectorError};

/// What is wrong with a text, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl Fault {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// Collects faults of a list of actions.
pub(crate) struct Rules<'a> {
    issues: &'a mut Vec<Issue>,
}

impl<'a> Rules<'a> {
    pub(crate) fn new(issues: &'a mut Vec<Issue>) -> Self {
        Self { issues }
    }

    pub(crate) fn issues(&mut self) -> &mut Vec<Issue> {
        self.issues
    }

    pub(crate) fn say(&mut self, path: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) {
        self.issues.push(Issue::new(path, message, hint));
    }

    /// A fault at `path`, if there is one.
    pub(crate) fn fault(&mut self, path: impl Into<String>, fault: Option<Fault>) {
        if let Some(Fault { message, hint }) = fault {
            self.say(path, message, hint);
        }
    }

    /// Fields and expressions of a selector; entries that are still to be rendered are left out.
    pub(crate) fn selector(&mut self, selector: Option<&Value>, path: &str) {
        let Some(fields) = selector.and_then(Value::as_object) else { return };
        for (field, value) in fields {
            let pending = value.as_str().is_some_and(has_expression);
            let value = if pending { Value::from("x") } else { value.clone() };
            let single = DiskSelector([(field.clone(), value)].into());
            if let Err(error) = single.validate()
                && (!pending || matches!(error, SelectorError::UnknownField(_)))
            {
                self.say(
                    join(path, field),
                    error.to_string(),
                    "landfall explain template.spec.actions.writeImage.disk",
                );
            }
        }
    }

    /// The field `url` of the action at `path`, where it names a file that is no image.
    pub(crate) fn file_url(&mut self, spec: &Map<String, Value>, path: &str) {
        let Some(url) = plain_text(spec, "url") else { return };
        match ImageUrl::parse(url) {
            Ok(ImageUrl::Http | ImageUrl::File(_)) => {}
            Ok(ImageUrl::Oci { .. }) => {
                let hint = "write http://host/path, https://host/path or file:///path";
                self.say(join(path, "url"), format!("{url} is not a file's URL"), hint);
            }
            Err(error) => {
                let (message, hint) = if error.is_unknown_place() {
                    let hint = "write http://host/path, https://host/path or file:///path";
                    (format!("\"{url}\" is not a file's URL"), hint)
                } else {
                    (error.message, error.hint)
                };
                self.say(join(path, "url"), message, hint);
            }
        }
    }

    /// The URL of a file that the worker of the tools layer fetches: it sees no file of the agent's.
    pub(crate) fn web_url(&mut self, spec: &Map<String, Value>, path: &str) {
        self.file_url(spec, path);
        if let Some(url) = plain_text(spec, "url")
            && let Ok(ImageUrl::File(_)) = ImageUrl::parse(url)
        {
            let message = format!("{url} names a file of the agent, which the tools layer does not see");
            self.say(join(path, "url"), message, "serve the file, and write http://host/path or https://host/path");
        }
    }

    /// The field `image` of the action at `path`: a container image by digest.
    pub(crate) fn oci_image(&mut self, spec: &Map<String, Value>, path: &str) {
        const BY_DIGEST: &str = "write oci://registry/repository@sha256:… with the digest of its manifest";
        let Some(image) = plain_text(spec, "image") else { return };
        match ImageUrl::parse(image) {
            Ok(ImageUrl::Oci { pin: Some(_), .. }) if !image.contains('?') => {}
            Ok(_) => self.say(join(path, "image"), format!("\"{image}\" is not an OCI image by digest"), BY_DIGEST),
            Err(error) if error.is_unknown_place() => {
                self.say(join(path, "image"), format!("\"{image}\" is not an OCI image by digest"), BY_DIGEST);
            }
            Err(error) => self.say(join(path, "image"), error.message, error.hint),
        }
    }
}

/// Whether it is an absolute path without `..`.
pub(crate) fn is_directory(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| part != "..")
}

/// The text of a field that is no expression.
pub(crate) fn plain_text<'v>(spec: &'v Map<String, Value>, field: &str) -> Option<&'v str> {
    spec.get(field).and_then(Value::as_str).filter(|text| !has_expression(text))
}

/// Labels between dots, in either case.
pub(crate) fn is_host_name(name: &str) -> bool {
    name.split('.').all(|part| is_dns_label(&part.to_ascii_lowercase()))
}

/// What to do about a name that is none of [`is_login_name`].
pub(crate) const LOGIN_NAME_HINT: &str =
    "use 1 to 32 lower-case letters, digits, \"_\" and \"-\", beginning with a letter";

/// What useradd takes.
pub(crate) fn is_login_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.".contains(&b))
}
