//! The items of a template's list, one after the other: an action, the list of another template, or either of them once
//! for each of several disks.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use landfall_api::{
    Action, ActionSpec, DiskFacts, DiskSelector, ErrorCode, Folded, ForEachSpec, IncludeSpec, LeftOut, MAX_ACTIONS,
    Machine, NamedAction, Problem, Shared, Template, When, WhenFault,
};
use minijinja::{Environment, context, value::Serde};
use serde_json::{Map, Value, json};

use super::scalar::{Room, Scope, render_tree};
use super::secret_ref::Secrets;
use super::{parameters, secret_ref};

/// Templates that a workflow's template includes, also through others, by name.
pub type Fragments = BTreeMap<String, Shared<Template>>;

/// Items, and copies of those in loops, that are expanded before the rest is given up: a list may have far fewer actions.
const MAX_ITEMS: usize = 1024;

/// What all the lists of one rendering have in common.
pub(super) struct Expander<'a> {
    /// Where expressions are evaluated.
    pub(super) environment: Environment<'static>,
    /// Whose disks loops mean.
    pub(super) machine: &'a Machine,
    /// What expressions see of it.
    pub(super) machine_scope: Scope,
    /// What conditions see, `machine` at first: it is large, and the same for every condition.
    pub(super) seen: RefCell<Value>,
    /// What may be included.
    pub(super) fragments: &'a Fragments,
    /// Items expanded so far, loops that match nothing included.
    pub(super) items: Cell<usize>,
    /// What may still be rendered.
    pub(super) room: Room,
}

/// One list of one template.
pub(super) struct Place<'a> {
    /// Which template it is in, outermost first.
    pub(super) chain: Vec<&'a str>,
    /// Where it stands, such as `Template/debian: spec.actions`.
    pub(super) path: String,
    /// What expressions see as `params`.
    pub(super) params: minijinja::Value,
    /// Bytes of it, as JSON.
    pub(super) params_bytes: usize,
    /// The same for conditions.
    pub(super) seen_params: RefCell<Value>,
    /// Stands before the names of its actions and branches.
    pub(super) prefix: String,
    /// The branch that all of it is in.
    pub(super) branch: Option<String>,
    /// Whether it is one of several copies that follow one another.
    pub(super) repeated: bool,
    /// What is left of the condition under which all of it is done.
    pub(super) when: Option<When>,
}

/// What a list comes to.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    /// What is done, in order.
    pub(super) actions: Vec<Action>,
    /// Items whose condition does not hold.
    pub(super) left_out: Vec<LeftOut>,
}

/// The fields of an item that are no action's.
const FOR_EACH: &str = "forEach";
const INCLUDE: &str = "include";
const WHEN: &str = "when";

impl<'a> Expander<'a> {
    /// Adds the actions of a list.
    pub(super) fn list(&self, items: &'a [Value], place: &Place<'a>, out: &mut Expanded) -> Result<(), Problem> {
        for (index, item) in items.iter().enumerate() {
            let path = format!("{}[{index}]", place.path);
            self.count(&path)?;
            let mut item = item.clone();
            let loops = item.as_object_mut().and_then(|fields| fields.shift_remove(FOR_EACH));
            match loops {
                None => self.item(&item, &path, None, place, out)?,
                Some(loops) => {
                    // A condition that names no disk says the same of every copy, and no disk has to match if it fails.
                    if of_no_disk(&item) {
                        match self.decide(&item, &path, None, place, out)? {
                            Decided::LeftOut => continue,
                            Decided::In => drop(item.as_object_mut().and_then(|fields| fields.shift_remove(WHEN))),
                            // Each copy carries it.
                            Decided::Depends(_) => {}
                        }
                    }
                    let disks = self.disks(&loops, &path, place)?;
                    for (n, disk) in disks.into_iter().enumerate() {
                        self.count(&path)?;
                        self.item(&numbered(&item, n + 1), &path, Some(disk), place, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Before an item is looked into: one whose condition fails, or whose loop matches nothing, costs as much.
    fn count(&self, path: &str) -> Result<(), Problem> {
        self.items.update(|items| items + 1);
        if self.items.get() <= MAX_ITEMS {
            return Ok(());
        }
        let message = format!("the list and those that it includes have more than {MAX_ITEMS} items");
        Err(Problem::new(ErrorCode::InvalidTemplate, message).at(path).hint("include and repeat less"))
    }

    fn item(
        &self, item: &Value, path: &str, disk: Option<Value>, place: &Place<'a>, out: &mut Expanded,
    ) -> Result<(), Problem> {
        let mut item = item.clone();
        let own = match self.decide(&item, path, disk.as_ref(), place, out)? {
            Decided::LeftOut => return Ok(()),
            Decided::In => None,
            Decided::Depends(when) => Some(when),
        };
        let when = match (place.when.clone(), own) {
            (Some(whole), Some(own)) => Some(whole.and(own).map_err(|fault| refused(fault, path, Vec::new()))?),
            (whole, own) => whole.or(own),
        };
        if let Some(fields) = item.as_object_mut() {
            fields.shift_remove(WHEN);
        }
        if out.actions.len() >= MAX_ACTIONS {
            let message = format!("there are more than {MAX_ACTIONS} actions, which is the limit");
            return Err(Problem::new(ErrorCode::InvalidTemplate, message).at(path).hint("include and repeat less"));
        }
        let in_loop = disk.is_some();
        let scope = self.scope(place, disk);
        let tree = render_tree(&self.environment, &scope, &item, path, &self.room)?;
        match tree.get(INCLUDE) {
            Some(_) => self.include(&tree, path, place, in_loop, when, out),
            None => {
                if let Some(place) = secret_ref::misplaced(&tree) {
                    let message = "a secret is not allowed here, because this field is logged and shown";
                    let places = ActionSpec::secret_places().collect::<Vec<_>>().join(", ");
                    return Err(Problem::new(ErrorCode::InvalidTemplate, message)
                        .at(format!("{path}.{place}"))
                        .hint(format!("a secret may stand in {places}")));
                }
                let mut action: Action = typed(tree, path)?;
                action.name.insert_str(0, &place.prefix);
                action.branch = branch_of(action.branch, place, path)?;
                action.when = when.map(|when| when.to_string());
                out.actions.push(action);
                Ok(())
            }
        }
    }

    /// The list of another template, with the values that this one states for its parameters.
    fn include(
        &self, tree: &Value, path: &str, place: &Place<'a>, in_loop: bool, when: Option<When>, out: &mut Expanded,
    ) -> Result<(), Problem> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Included {
            name: String,
            include: IncludeSpec,
            #[serde(default)]
            branch: Option<String>,
        }
        let Included { name, include: IncludeSpec { template, parameters }, branch } = typed(tree.clone(), path)?;
        let refused = |message: String, hint: &str| {
            Err(Problem::new(ErrorCode::InvalidTemplate, message).at(format!("{path}.include.template")).hint(hint))
        };
        if place.chain.contains(&template.as_str()) {
            let chain = place.chain.iter().copied().chain([template.as_str()]).collect::<Vec<_>>().join(" → ");
            return refused(format!("templates include each other in a circle: {chain}"), "remove one of the includes");
        }
        let Some((key, included)) = self.fragments.get_key_value(&template) else {
            return refused(format!("there is no template \"{template}\""), "landfall get templates lists them");
        };
        if let Some((field, _)) = included.spec.of_whole_lists().into_iter().find(|(_, stated)| *stated) {
            let message = format!("template \"{template}\" cannot be included: it has {field}");
            return refused(message, "remove that field there, or copy its actions");
        }
        let within = |mut problem: Problem| {
            problem.causes.push(format!("included at {path}"));
            problem
        };
        let passed = parameters::passed(included, parameters).map_err(within)?;
        let params = parameters::scope(included, parameters::resolved(included, &passed).map_err(within)?);
        let seen_params = seen(&params, path)?;
        let params_bytes = seen_params.to_string().len();
        self.room.take(params_bytes, path)?;
        let mut chain = place.chain.clone();
        chain.push(key);
        let below = Place {
            chain,
            path: format!("Template/{template}: spec.actions"),
            params,
            params_bytes,
            seen_params: RefCell::new(seen_params),
            prefix: format!("{}{name}-", place.prefix),
            repeated: place.repeated || (in_loop && branch.is_none()),
            branch: branch_of(branch, place, path)?,
            when,
        };
        self.list(&included.spec.actions, &below, out).map_err(within)
    }

    /// Decides the condition of an item as far as it can be. If it does not hold, the item is noted as left out.
    fn decide(
        &self, item: &Value, path: &str, disk: Option<&Value>, place: &Place<'_>, out: &mut Expanded,
    ) -> Result<Decided, Problem> {
        let Some(when) = item.get(WHEN) else { return Ok(Decided::In) };
        match self.fold(when, place, disk, path, out)? {
            Folded::Decided(true) => return Ok(Decided::In),
            Folded::Depends(left) => return Ok(Decided::Depends(left)),
            Folded::Decided(false) => {}
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = format!("{}{}", place.prefix, item.get("name").map(text).unwrap_or_default());
        let when = text(when);
        self.room.take(name.len() + when.len(), path)?;
        out.left_out.push(LeftOut { name, when });
        Ok(Decided::LeftOut)
    }

    /// What an item's condition comes to. A secret is in none: it is not in what conditions see.
    fn fold(
        &self, when: &Value, place: &Place<'_>, disk: Option<&Value>, path: &str, out: &Expanded,
    ) -> Result<Folded, Problem> {
        let text = when.as_str().unwrap_or_default();
        let condition = When::parse(text).map_err(|fault| refused(fault, path, Vec::new()))?;
        let (mut seen, mut params) = (self.seen.borrow_mut(), place.seen_params.borrow_mut());
        // Lent for this condition, since neither is small.
        seen["params"] = params.take();
        seen["disk"] = disk.cloned().unwrap_or_default();
        // Names are those of its own template; in the list they have a prefix.
        let action = |name: &str| {
            let name = format!("{}{name}", place.prefix);
            if out.left_out.iter().any(|item| item.name == name) {
                return Some(NamedAction::LeftOut);
            }
            out.actions.iter().any(|action| action.name == name).then_some(NamedAction::Listed(name))
        };
        let folded = condition.fold(&seen, &action);
        *params = seen["params"].take();
        folded.map_err(|fault| refused(fault, path, vec![format!("in the condition {text}")]))
    }

    fn scope(&self, place: &Place<'_>, disk: Option<Value>) -> Scope {
        let machine = self.machine_scope.values.clone();
        let secrets = minijinja::Value::from_object(Secrets);
        // A disk is a part of the facts.
        let bytes = self.machine_scope.bytes.saturating_add(place.params_bytes);
        let values = match disk {
            None => context! { machine, params => place.params.clone(), secrets },
            Some(disk) => {
                context! { machine, params => place.params.clone(), secrets, disk => minijinja::Value::from(Serde(disk)) }
            }
        };
        Scope { values, bytes }
    }

    /// What expressions see of each disk that a loop means, in the order of the facts.
    fn disks(&self, loops: &Value, path: &str, place: &Place<'_>) -> Result<Vec<Value>, Problem> {
        let path = format!("{path}.{FOR_EACH}");
        let loops = render_tree(&self.environment, &self.scope(place, None), loops, &path, &self.room)?;
        let spec: ForEachSpec = typed(loops, &path)?;
        if spec.disks.0.is_empty() {
            return unfit(
                &path,
                "the selector is empty and would match every disk".into(),
                "name what the disks have in common",
            );
        }
        let name = &self.machine.metadata.name;
        let Some(facts) = self.machine.status.as_ref().and_then(|status| status.facts.as_ref()) else {
            let message = format!("the disks of machine \"{name}\" are unknown: no agent has reported them yet");
            return unfit(&path, message, "netboot it once without a workflow, then request this again");
        };
        let mut matching = Vec::new();
        let mut others = Vec::new();
        for disk in &facts.disks {
            match spec.disks.mismatches(disk) {
                Ok(why) if why.is_empty() => matching.push(disk),
                Ok(why) => others.push(format!("{}: {}", disk.id.name, why.join(", "))),
                Err(error) => {
                    return unfit(&path, error.to_string(), "landfall explain template.spec.actions.writeImage.disk");
                }
            }
        }
        if matching.is_empty() && !spec.allow_none {
            let message = format!("no disk of machine \"{name}\" matches");
            let hint = "correct the selector, or write allowNone: true to do nothing in that case";
            return unfit(&path, message, hint).map_err(|mut problem: Problem| {
                problem.causes = others;
                problem
            });
        }
        let scope = |(n, disk): (usize, &DiskFacts)| match selector_of(disk, &facts.disks) {
            Some(selector) => Ok(disk_scope(disk, &selector, n + 1)),
            None => unfit(
                &path,
                format!("disk {} has no wwn, serial number or path that no other disk has", disk.id.name),
                "select disks that differ in one of them",
            ),
        };
        matching.into_iter().enumerate().map(scope).collect()
    }
}

/// What an item's condition says of it before the list begins.
enum Decided {
    /// It is part of the list.
    In,
    /// It is not.
    LeftOut,
    /// It is, and is done only if this holds when its turn comes.
    Depends(When),
}

/// A condition that cannot be decided, and cannot be carried to the agent.
fn refused(fault: WhenFault, path: &str, causes: Vec<String>) -> Problem {
    let mut problem = Problem::new(ErrorCode::InvalidTemplate, fault.message);
    problem.causes = causes;
    problem.at(format!("{path}.{WHEN}")).hint(fault.hint)
}

/// Whether an item has a condition, and it names no disk.
fn of_no_disk(item: &Value) -> bool {
    let when = item.get(WHEN).and_then(Value::as_str).and_then(|text| When::parse(text).ok());
    when.is_some_and(|when| !when.names_disk())
}

/// Parameters as conditions see them.
pub(super) fn seen(params: &minijinja::Value, path: &str) -> Result<Value, Problem> {
    serde_json::to_value(params).map_err(|error| {
        Problem::new(ErrorCode::InvalidTemplate, format!("a parameter is not a plain value: {error}")).at(path)
    })
}

/// A loop that cannot be made.
fn unfit<T>(path: &str, message: String, hint: &str) -> Result<T, Problem> {
    Err(Problem::new(ErrorCode::InvalidTemplate, message).at(format!("{path}.disks")).hint(hint))
}

/// Refuses templates that include each other in a circle, as far as they are known.
///
/// # Errors
/// [`Problem`] with code `InvalidTemplate` naming the whole circle.
pub fn refuse_circles(template: &Template, fragments: &Fragments) -> Result<(), Problem> {
    fn look<'a>(
        template: &'a Template, fragments: &'a Fragments, chain: &mut Vec<&'a str>, seen: &mut BTreeSet<&'a str>,
    ) -> Result<(), Problem> {
        chain.push(&template.metadata.name);
        for (index, name) in template.spec.includes() {
            if let Some(at) = chain.iter().position(|above| *above == name) {
                let circle = chain.iter().skip(at).copied().chain([name]).collect::<Vec<_>>().join(" → ");
                let message = format!("templates include each other in a circle: {circle}");
                return Err(Problem::new(ErrorCode::InvalidTemplate, message)
                    .at(format!("Template/{}: spec.actions[{index}].include.template", template.metadata.name))
                    .hint("remove one of the includes"));
            }
            if let Some(below) = fragments.get(name).filter(|_| seen.insert(name)) {
                look(below, fragments, chain, seen)?;
            }
        }
        chain.pop();
        Ok(())
    }
    look(template, fragments, &mut Vec::new(), &mut BTreeSet::new())
}

/// The branch of an action which names `own`: two lists that are included keep theirs apart, as they keep their actions.
fn branch_of(own: Option<String>, place: &Place<'_>, path: &str) -> Result<Option<String>, Problem> {
    let Some(own) = own else { return Ok(place.branch.clone()) };
    let message = match (&place.branch, place.repeated) {
        (None, false) => return Ok(Some(format!("{}{own}", place.prefix))),
        (Some(_), _) => "the list is included in a branch, and this action names another",
        // The branches of one copy would run at the same time as those of the next.
        (None, true) => "the list is repeated, one copy after another, and this action names a branch",
    };
    Err(Problem::new(ErrorCode::InvalidTemplate, message).at(format!("{path}.branch")).hint("remove the branch"))
}

/// The item for the `n`th disk, from 1: its own name, and a branch of its own if it is in one.
fn numbered(item: &Value, n: usize) -> Value {
    let mut item = item.clone();
    for field in ["name", "branch"] {
        if let Some(Value::String(text)) = item.get_mut(field) {
            text.push_str(&format!("-{n}"));
        }
    }
    item
}

/// What expressions see as `disk`.
fn disk_scope(disk: &DiskFacts, selector: &DiskSelector, number: usize) -> Value {
    let mut scope = Map::new();
    for tree in [json!(disk.id), json!(disk)] {
        if let Value::Object(fields) = tree {
            scope.extend(fields.into_iter().filter(|(name, _)| name != "id"));
        }
    }
    // Every field is defined, also where the disk has no such value.
    for name in ["wwn", "serial", "path", "name", "model"] {
        scope.entry(name).or_insert_with(|| Value::String(String::new()));
    }
    scope.entry("byId").or_insert_with(|| json!([]));
    scope.insert("number".into(), number.into());
    scope.insert("selector".into(), json!(selector));
    scope.into()
}

/// A selector that matches this disk alone, by what does not move.
fn selector_of(disk: &DiskFacts, all: &[DiskFacts]) -> Option<DiskSelector> {
    type Field = fn(&DiskFacts) -> &String;
    let fields: [(&str, Field); 3] = [("wwn", |d| &d.id.wwn), ("serial", |d| &d.id.serial), ("path", |d| &d.id.path)];
    let (name, value) = fields.into_iter().find_map(|(name, of)| {
        let alone = || all.iter().filter(|other| of(other) == of(disk)).count() <= 1;
        (!of(disk).is_empty() && alone()).then(|| (name, of(disk)))
    })?;
    let mut selector = BTreeMap::from([(name.to_owned(), Value::from(format!("= {value}")))]);
    if disk.transport == "usb" {
        // Only a selector that names it matches such a disk.
        selector.insert("transport".into(), "usb".into());
    }
    Some(DiskSelector(selector))
}

fn typed<T: serde::de::DeserializeOwned>(tree: Value, root: &str) -> Result<T, Problem> {
    serde_path_to_error::deserialize(tree).map_err(|error| {
        let path = error.path().to_string();
        let subject = if path == "." { root.to_owned() } else { format!("{root}.{path}") };
        Problem::new(ErrorCode::InvalidTemplate, error.into_inner().to_string())
            .at(subject)
            .hint("landfall explain templates lists the fields")
    })
}

#[cfg(test)]
mod tests;
