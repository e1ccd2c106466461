//! `landfall template`: check templates without a coordinator, and see the list that one makes for a machine.

use std::path::{Path, PathBuf};

use landfall_api::{Document, Kind, RenderRequest, RenderedList, Template, schema};
use landfall_client::Client;
use serde_json::Value;

use super::stated;
use crate::args::{Output, Render, Validate};
use crate::failure::Failure;
use crate::output::Out;
use crate::{files, show};

/// Checks files; a coordinator is not asked.
pub(crate) fn validate(args: &Validate, out: &mut Out) -> Result<(), Failure> {
    let documents = files::read(&args.filename, args.recursive).map_err(|failure| match failure {
        Failure::Refused(problems) => Failure::Invalid(problems),
        other => other,
    })?;
    for sourced in documents {
        out.line(&format!("{} is valid", sourced.document.reference()))?;
    }
    Ok(())
}

pub(crate) fn print_schema(out: &mut Out) -> Result<(), Failure> {
    Ok(out.json(&schema(Kind::Template))?)
}

pub(crate) async fn render(args: &Render, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let mut request = RenderRequest::default();
    let template = if is_file(&args.template) {
        let template = only_template(Path::new(&args.template))?;
        request.document = Some(serde_json::to_value(&template).map_err(show::unseen)?);
        template
    } else {
        request.template = Some(args.template.clone());
        stated::stored(client, &args.template).await?
    };
    request.parameters = stated::values(&args.params, &template.spec.parameters)?;
    let body = serde_json::to_value(&request).map_err(show::unseen)?;
    let answer = client.act(Kind::Machine, &args.machine, "render", Some(&body)).await?;
    list(answer, &args.output, out)
}

/// Shows a rendered list; for people as YAML.
pub(super) fn list(answer: Value, output: &Output, out: &mut Out) -> Result<(), Failure> {
    if !output.is_table() {
        return output.value(&answer, out);
    }
    let list: RenderedList = serde_json::from_value(answer).map_err(show::unseen)?;
    Ok(out.yaml(&list)?)
}

/// No document's name has a dot or a slash.
fn is_file(word: &str) -> bool {
    word == "-" || word.contains(['.', '/'])
}

fn only_template(path: &Path) -> Result<Template, Failure> {
    let mut templates: Vec<Template> = files::read(&[PathBuf::from(path)], false)?
        .into_iter()
        .filter_map(|sourced| match sourced.document {
            Document::Template(template) => Some(template.into_inner()),
            _ => None,
        })
        .collect();
    match (templates.pop(), templates.len()) {
        (Some(template), 0) => Ok(template),
        (_, others) => {
            let count = others + usize::from(others > 0);
            let what = format!("{} has {count} templates", path.display());
            Err(Failure::local(what, "one is rendered at a time", "write the template to a file of its own"))
        }
    }
}
