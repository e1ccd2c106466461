//! oci2disk: a disk image in a registry.

use landfall_api::ImageUrl;
use serde_json::json;

use super::{Context, List, Source, image2disk, with};
use crate::{fields::is_true, todo};

pub(super) fn add(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    source.not_needed(&["COMPRESSED"], "the content shows how it is compressed", context);
    let line = source.env("IMG_URL").map_or(source.line, |text| text.line);
    let reference = source.required("IMG_URL", context);
    let reference = reference.trim_start_matches("docker://").trim_start_matches("https://").to_owned();
    let url = image2disk::checked(format!("oci://{reference}"), line, context.report);
    let access = access(&mut source, context);
    let Some(disk) = image2disk::disk(&mut source, list, context) else {
        list.items.push(source.without_counterpart(image2disk::PARTITION, context));
        return false;
    };
    let mut image = json!({ "url": url });
    if !ImageUrl::parse(&url).is_ok_and(ImageUrl::is_pinned) {
        let message = "the image has no digest; write @sha256:… behind its name, or digest: of the layer";
        context.report.todo(line, message);
        image = with(image, "digest", Some(todo::value("digest")));
    }
    image = with(image, "access", access);
    list.items.push(source.done("writeImage", json!({"disk": disk, "image": image}), context));
    true
}

/// How the registry is asked. A password is never repeated.
fn access(source: &mut Source<'_>, context: &mut Context<'_>) -> Option<serde_json::Value> {
    if let Some(skip) = source.env("SKIP_VERIFY").filter(|skip| is_true(&skip.text)) {
        let message = "SKIP_VERIFY has no counterpart: the server's certificate is always checked; write its authority \
            into access.caCertificates";
        context.report.todo(skip.line, message);
    }
    let username = source.env("REGISTRY_USERNAME").map(|text| context.text(&text));
    let password = source.env("REGISTRY_PASSWORD");
    if let Some(password) = &password {
        let message = "the password is not copied; apply it as a Secret named registry with the key password, and change \
            it if others read this file";
        context.report.todo(password.line, message);
    }
    (username.is_some() || password.is_some()).then(|| {
        let username = username.unwrap_or_else(|| todo::value("username"));
        json!({"authorization": {"username": username, "password": "{{ secrets.registry.password }}"}})
    })
}
