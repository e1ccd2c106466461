//! What a list of actions must be, beyond each action's own shape. Every error comes before the first step.

use std::collections::BTreeSet;

use landfall_api::{Action, ActionSpec, CloudInitSpec, DiskSelector, ErrorCode, Problem, RetrySpec, WriteImageSpec};

/// Largest number of actions in a list: what a status document of one MiB holds with room for problems and progress.
pub const MAX_ACTIONS: usize = 64;

/// Largest number of attempts at one action.
pub const MAX_ATTEMPTS: u32 = 100;

/// Checks a rendered list.
///
/// # Errors
/// [`Problem`] whose `subject` is the path inside the list, such as `[1].retry.maxAttempts`.
pub fn check_actions(actions: &[Action]) -> Result<(), Problem> {
    if actions.is_empty() {
        return Err(problem("the list of actions is empty", "").hint("add at least one action, such as writeImage"));
    }
    if actions.len() > MAX_ACTIONS {
        let message = format!("the list has {} actions; at most {MAX_ACTIONS} are taken", actions.len());
        return Err(problem(message, "").hint("split it into several templates"));
    }
    let mut names = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        let at = |field: &str| format!("[{index}].{field}");
        check_name(&action.name, &at("name"))?;
        if !names.insert(action.name.as_str()) {
            return Err(problem(format!("two actions are named \"{}\"", action.name), &at("name"))
                .hint("give each action a name of its own"));
        }
        if let Some(retry) = &action.retry {
            check_retry(retry, &at("retry"))?;
        }
        match &action.spec {
            ActionSpec::WriteImage(spec) => check_write_image(spec, &at("writeImage"))?,
            ActionSpec::CloudInit(spec) => check_cloud_init(spec, &actions[..index], &at("cloudInit"))?,
            ActionSpec::Reboot(_) if index + 1 != actions.len() => {
                return Err(problem("reboot is not the last action", &at("reboot"))
                    .hint("nothing can run after the machine went down: move it to the end of the list"));
            }
            ActionSpec::Reboot(_) => {}
        }
    }
    Ok(())
}

fn problem(message: impl Into<String>, at: &str) -> Problem {
    Problem::new(ErrorCode::InvalidTemplate, message).at(at)
}

fn check_name(name: &str, at: &str) -> Result<(), Problem> {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fine = (1..=63).contains(&name.len())
        && name.chars().all(|c| letter(c) || c == '-')
        && name.starts_with(letter)
        && name.ends_with(letter);
    if fine {
        return Ok(());
    }
    Err(problem(format!("\"{name}\" is not a name for an action"), at)
        .hint("write lower-case letters, digits and -, at most 63, such as write-debian"))
}

fn check_retry(retry: &RetrySpec, at: &str) -> Result<(), Problem> {
    if (1..=MAX_ATTEMPTS).contains(&retry.max_attempts) {
        return Ok(());
    }
    Err(problem(format!("{} attempts are not possible", retry.max_attempts), &format!("{at}.maxAttempts"))
        .hint(format!("write 1 (no retry) to {MAX_ATTEMPTS}")))
}

fn check_selector(selector: &DiskSelector, at: &str) -> Result<(), Problem> {
    selector.validate().map_err(|error| problem(error.to_string(), at))
}

fn check_write_image(spec: &WriteImageSpec, at: &str) -> Result<(), Problem> {
    check_selector(&spec.disk, &format!("{at}.disk"))?;
    let image = &spec.image;
    let url_at = format!("{at}.image.url");
    let rest = image.url.strip_prefix("http://").or_else(|| image.url.strip_prefix("https://"));
    match rest {
        None => {
            return Err(problem(format!("\"{}\" is not a URL the agent can fetch", image.url), &url_at)
                .hint("write http://host/path or https://host/path"));
        }
        Some(rest) if rest.split('/').next().is_none_or(str::is_empty) => {
            return Err(problem(format!("\"{}\" names no host", image.url), &url_at).hint("write http://host/path"));
        }
        // A URL ends up in logs and statuses; a secret must not.
        Some(rest) if rest.split('/').next().is_some_and(|authority| authority.contains('@')) => {
            return Err(problem("the URL carries a user name or password", &url_at).hint(
                "URLs are shown in logs and statuses; serve the image without credentials, its digest protects it",
            ));
        }
        Some(_) => {}
    }
    match (image.digest.is_some(), image.digest_waived) {
        (true, false) | (false, true) => {}
        (true, true) => {
            return Err(problem("the image has a digest and digestWaived both", &format!("{at}.image"))
                .hint("keep the digest and remove digestWaived"));
        }
        (false, false) => {
            return Err(problem("the image has no digest", &format!("{at}.image.digest")).hint(
                "write sha256: and what sha256sum prints for the file; digestWaived: true gives the protection up",
            ));
        }
    }
    match image.format.as_deref() {
        None | Some("raw" | "zstd") => Ok(()),
        Some(other) => Err(problem(format!("format \"{other}\" is not known"), &format!("{at}.image.format"))
            .hint("write raw or zstd, or leave it out: the format is told by the content")),
    }
}

fn check_cloud_init(spec: &CloudInitSpec, before: &[Action], at: &str) -> Result<(), Problem> {
    match &spec.disk {
        Some(disk) => check_selector(disk, &format!("{at}.disk"))?,
        None => {
            let written = before.iter().filter(|action| matches!(action.spec, ActionSpec::WriteImage(_))).count();
            if written > 1 {
                return Err(problem(
                    "several disks are written before, and disk does not say which is meant",
                    &format!("{at}.disk"),
                )
                .hint("add a disk selector"));
            }
            if written == 0 {
                return Err(problem(
                    "no disk is written before, and disk does not say which is meant",
                    &format!("{at}.disk"),
                )
                .hint("add a disk selector, or a writeImage action before this one"));
            }
        }
    }
    for (index, user) in spec.users.iter().enumerate() {
        if user.name.is_empty() || user.name.contains([':', '/', '\n']) {
            return Err(problem(
                format!("\"{}\" is not a login name", user.name),
                &format!("{at}.users[{index}].name"),
            )
            .hint("write a name such as admin"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(actions: Value) -> Problem {
        check_actions(&serde_json::from_value::<Vec<Action>>(actions).unwrap()).expect_err("refused")
    }

    fn write(name: &str, image: Value) -> Value {
        json!({"name": name, "writeImage": {"image": image}})
    }

    fn good_image() -> Value {
        json!({"url": "http://10.0.0.1/a.zst", "digest": format!("sha256:{}", "00".repeat(32))})
    }

    #[test]
    fn the_usual_list_is_taken() {
        let list =
            json!([write("write", good_image()), {"name": "seed", "cloudInit": {}}, {"name": "reboot", "reboot": {}}]);
        check_actions(&serde_json::from_value::<Vec<Action>>(list).unwrap()).unwrap();
    }

    #[test]
    fn each_fault_is_refused_at_its_field() {
        let image = |field: &str, value: Value| {
            let mut image = good_image();
            image[field] = value;
            json!([write("write", image)])
        };
        let mut no_digest = good_image();
        no_digest.as_object_mut().unwrap().remove("digest");
        let reboot = json!({"name": "reboot", "reboot": {}});
        for (list, at) in [
            (json!([]), ""),
            (json!([write("Write", good_image())]), "[0].name"),
            (json!([write("w", good_image()), write("w", good_image())]), "[1].name"),
            (image("url", json!("ftp://x/y")), "[0].writeImage.image.url"),
            (image("url", json!("http:///y")), "[0].writeImage.image.url"),
            (image("url", json!("http://me:secret@x/y")), "[0].writeImage.image.url"),
            (image("digestWaived", json!(true)), "[0].writeImage.image"),
            (image("format", json!("vhd")), "[0].writeImage.image.format"),
            (json!([write("w", no_digest)]), "[0].writeImage.image.digest"),
            (json!([reboot, write("w", good_image())]), "[0].reboot"),
            (json!([{"name": "s", "cloudInit": {}}]), "[0].cloudInit.disk"),
            (
                json!([write("a", good_image()), write("b", good_image()), {"name": "s", "cloudInit": {}}]),
                "[2].cloudInit.disk",
            ),
            (json!([{"name": "r", "retry": {"maxAttempts": 0}, "reboot": {}}]), "[0].retry.maxAttempts"),
            (json!([{"name": "r", "retry": {"maxAttempts": 101}, "reboot": {}}]), "[0].retry.maxAttempts"),
        ] {
            let problem = refusal(list.clone());
            assert_eq!(problem.subject, at, "{list}: {problem}");
            assert!(!problem.hint.is_empty(), "{problem}");
        }
    }
}
