//! The values of a template's parameters: stated, or by default; each as its type and its rules allow.

use std::collections::BTreeMap;

use landfall_api::{ErrorCode, ParameterType, Problem, Template};
use minijinja::value::Serde;
use serde_json::{Value, json};

use super::secret_ref;

/// What expressions see as `params`: a secret as a reference to it, everything else as it is.
pub(super) fn scope(template: &Template, parameters: BTreeMap<String, Value>) -> minijinja::Value {
    let seen = |(name, value): (String, Value)| {
        let secret = value.as_str().filter(|_| is_secret(template, &name)).and_then(secret_ref::parameter);
        let seen = secret.unwrap_or_else(|| minijinja::Value::from(Serde(value)));
        (name, seen)
    };
    parameters.into_iter().map(seen).collect::<BTreeMap<_, _>>().into()
}

fn is_secret(template: &Template, name: &str) -> bool {
    template.spec.parameters.get(name).is_some_and(|declared| declared.kind == Some(ParameterType::Secret))
}

/// The values that an including template states, once they are rendered: a reference to a secret as a parameter of type
/// secret has it.
///
/// # Errors
/// [`Problem`] with code `InvalidTemplate` if a secret goes to any other parameter: it could be shown then.
pub(super) fn passed(template: &Template, values: BTreeMap<String, Value>) -> Result<BTreeMap<String, Value>, Problem> {
    let one = |(name, value): (String, Value)| {
        let found = secret_ref::references(&value);
        let alone = found.first().filter(|reference| value.as_str().is_some_and(|text| text == reference.to_string()));
        match alone {
            _ if found.is_empty() => Ok((name, value)),
            Some(reference) if is_secret(template, &name) => {
                let value = format!("{}.{}", reference.secret, reference.key).into();
                Ok((name, value))
            }
            _ => {
                let message = format!("parameter \"{name}\" gets a secret, and is not of type secret");
                Err(problem(template, &name, message)
                    .hint("declare it with type: secret, and pass the secret alone: {{ secrets.NAME.KEY }}"))
            }
        }
    };
    values.into_iter().map(one).collect()
}

fn problem(template: &Template, parameter: &str, message: String) -> Problem {
    let field = if parameter.is_empty() { String::new() } else { format!(".{parameter}") };
    Problem::new(ErrorCode::InvalidTemplate, message)
        .at(format!("Template/{}: spec.parameters{field}", template.metadata.name))
}

/// The stated values over the declared defaults.
///
/// # Errors
/// [`Problem`] with code `InvalidTemplate` naming the parameter, its value (of a secret nothing), the rule that it breaks
/// and what to write.
pub(super) fn resolved(
    template: &Template, stated: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, Value>, Problem> {
    let declared = &template.spec.parameters;
    let known = || match declared.keys().cloned().collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => format!("Template/{} takes no parameters", template.metadata.name),
        list => format!("Template/{} takes: {list}", template.metadata.name),
    };
    if let Some(unknown) = stated.keys().find(|key| !declared.contains_key(*key)) {
        return Err(problem(template, "", format!("parameter \"{unknown}\" is not declared")).hint(known()));
    }
    let one = |(name, parameter): (&String, &landfall_api::Parameter)| {
        let Some(value) = stated.get(name).or(parameter.default.as_ref()) else {
            let message = format!("parameter \"{name}\" is required and was not stated");
            return Err(problem(template, "", message).hint(known()));
        };
        parameter.check(name, value).map_err(|fault| problem(template, name, fault.message).hint(fault.hint))?;
        Ok((name.clone(), value.clone()))
    };
    let values = declared.iter().map(one).collect::<Result<BTreeMap<_, _>, Problem>>()?;
    if secret_ref::has_placeholder(&json!(values).to_string()) {
        return Err(problem(template, "", secret_ref::UNUSABLE.into()).hint("remove them"));
    }
    Ok(values)
}
