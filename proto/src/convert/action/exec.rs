//! `exec`.

use landfall_api::{Exec, ExecProgram, ExecResult, ExecVariable, SecretText};

use super::super::{
    ConvertError, Within as _,
    scalar::text,
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1::{self, exec::Program as Wire};

impl TryFrom<v1::Exec> for Exec {
    type Error = ConvertError;

    fn try_from(wire: v1::Exec) -> Result<Self, ConvertError> {
        Ok(Self {
            program: wire.program.ok_or_else(|| ConvertError::missing("program"))?.try_into()?,
            variables: wire
                .variables
                .into_iter()
                .map(ExecVariable::try_from)
                .collect::<Result<_, _>>()
                .within("variables")?,
            directory: text("directory", wire.directory)?,
            disk: selector_if_any(wire.disk),
        })
    }
}

impl From<Exec> for v1::Exec {
    fn from(spec: Exec) -> Self {
        Self {
            program: Some(spec.program.into()),
            variables: spec.variables.into_iter().map(Into::into).collect(),
            directory: spec.directory,
            disk: spec.disk.map(selector_to_wire).unwrap_or_default(),
        }
    }
}

impl TryFrom<Wire> for ExecProgram {
    type Error = ConvertError;

    fn try_from(wire: Wire) -> Result<Self, ConvertError> {
        match wire {
            Wire::Command(v1::ExecCommand { words }) if words.is_empty() => Err(ConvertError::missing("command.words")),
            Wire::Command(v1::ExecCommand { words }) => Ok(Self::Command(words)),
            Wire::Script(script) => Ok(Self::Script(text("script", script)?)),
        }
    }
}

impl From<ExecProgram> for Wire {
    fn from(program: ExecProgram) -> Self {
        match program {
            ExecProgram::Command(words) => Self::Command(v1::ExecCommand { words }),
            ExecProgram::Script(text) => Self::Script(text),
        }
    }
}

impl TryFrom<v1::ExecVariable> for ExecVariable {
    type Error = ConvertError;

    fn try_from(wire: v1::ExecVariable) -> Result<Self, ConvertError> {
        Ok(Self { name: text("name", wire.name)?, value: SecretText::new(wire.value), secret: wire.secret })
    }
}

impl From<ExecVariable> for v1::ExecVariable {
    fn from(variable: ExecVariable) -> Self {
        Self { name: variable.name, value: variable.value.into_exposed(), secret: variable.secret }
    }
}

impl From<v1::ExecResult> for ExecResult {
    fn from(wire: v1::ExecResult) -> Self {
        Self { root_device: wire.root_device }
    }
}

impl From<ExecResult> for v1::ExecResult {
    fn from(result: ExecResult) -> Self {
        Self { root_device: result.root_device }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::DiskSelector;

    use super::*;

    fn exec(program: ExecProgram) -> Exec {
        let variable =
            |name: &str, secret| ExecVariable { name: name.into(), value: SecretText::new("geheim"), secret };
        Exec {
            program,
            variables: vec![variable("MODE", false), variable("TOKEN", true)],
            directory: "/opt".into(),
            disk: Some(DiskSelector([("serial".to_owned(), "D1".into())].into())),
        }
    }

    #[test]
    fn a_program_survives_the_wire_and_shows_no_variable() {
        for program in [ExecProgram::Command(vec!["id".into(), String::new()]), ExecProgram::Script("id\n".into())] {
            let spec = exec(program);
            assert!(!format!("{spec:?}").contains("geheim"), "{spec:?}");
            assert_eq!(Exec::try_from(v1::Exec::from(spec.clone())), Ok(spec));
        }
    }

    #[test]
    fn an_exec_without_a_program_or_name_is_refused() {
        let whole = v1::Exec::from(exec(ExecProgram::Script("id".into())));
        let unnamed = v1::ExecVariable { name: String::new(), value: "x".into(), secret: false };
        let nothing = v1::ExecCommand { words: Vec::new() };
        for (wire, field) in [
            (v1::Exec { program: None, ..whole.clone() }, "program"),
            (v1::Exec { program: Some(Wire::Command(nothing)), ..whole.clone() }, "command.words"),
            (v1::Exec { program: Some(Wire::Script(String::new())), ..whole.clone() }, "script"),
            (v1::Exec { variables: vec![unnamed], ..whole.clone() }, "variables.name"),
            (v1::Exec { directory: String::new(), ..whole }, "directory"),
        ] {
            assert_eq!(Exec::try_from(wire).unwrap_err().field(), field);
        }
    }
}
