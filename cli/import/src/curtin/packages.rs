//! `kernel` and `debconf_selections`: what is set up with the installed system's own programs.

use landfall_api::YamlValue;
use serde_json::json;

use super::list::List;
use crate::content::literal;
use crate::fields::{Fields, text_of};
use crate::report::Report;

/// Adds an `exec` for each.
pub(super) fn add(config: &mut Fields<'_>, list: &mut List, report: &mut Report) {
    debconf(config, list, report);
    let Some(mut kernel) = config.map("kernel") else {
        if list.has_root() {
            let message = "curtin installs a kernel where the root has none; if yours has none, add an exec that does";
            report.note(config.line, message);
        }
        return;
    };
    kernel.no_counterpart(&["mapping", "fallback-package"], "write the package that you want", report);
    kernel.no_counterpart(&["remove"], "remove packages with an exec", report);
    let install = !kernel.has("install") || kernel.truth("install") == Some(true);
    if let Some(package) = kernel.text("package").filter(|_| install) {
        let command = json!(["apt-get", "install", "-y", "--no-install-recommends", literal(&package.text, false)]);
        let spec = json!({"command": command, "env": {"DEBIAN_FRONTEND": "noninteractive"}});
        let spec = list.on_target(spec);
        list.push("kernel", "exec", spec);
        report.count("kernel", true);
        report.note(package.line, "the kernel's package is installed with apt-get; other systems have another program");
    }
    kernel.finish("the kernel", report);
}

fn debconf(config: &mut Fields<'_>, list: &mut List, report: &mut Report) {
    let Some(YamlValue::Map(selections)) = config.get("debconf_selections").map(|node| &node.value) else { return };
    let lines: Vec<String> = selections.iter().filter_map(|field| text_of(&field.node)).collect();
    let mut script = "debconf-set-selections <<'SELECTIONS'\n".to_owned();
    for line in lines.iter().flat_map(|text| text.lines()) {
        script.push_str(&literal(line, false));
        script.push('\n');
    }
    script.push_str("SELECTIONS\n");
    let spec = list.on_target(json!({ "script": script }));
    list.push("debconf", "exec", spec);
    report.count("debconf_selections", true);
}
