//! `exec`.

use landfall_api::{Exec, ExecProgram, ExecResult, ExecVariable};

use crate::convert::{ConvertError, codec::*};
use crate::v1::{self, exec::Program as Wire};

wire! {
    Exec = v1::Exec { program: oneof, variables: list, directory: text, disk: selector_if_any }
    ExecVariable = v1::ExecVariable { name: text, value: secret, secret }
    ExecResult = v1::ExecResult { root_device }
}

impl TryFrom<Wire> for ExecProgram {
    type Error = ConvertError;

    fn try_from(wire: Wire) -> Result<Self, ConvertError> {
        match wire {
            Wire::Command(v1::ExecCommand { words }) if words.is_empty() => Err(ConvertError::missing("command.words")),
            Wire::Command(v1::ExecCommand { words }) => Ok(Self::Command(words)),
            Wire::Script(script) => Ok(Self::Script(text::from("script", script)?)),
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

#[cfg(test)]
mod tests {
    use landfall_api::SecretText;

    use super::*;
    use crate::convert::testing::{disk, refused, survives};

    fn exec(program: ExecProgram) -> Exec {
        let variable =
            |name: &str, secret| ExecVariable { name: name.into(), value: SecretText::new("geheim"), secret };
        Exec {
            program,
            variables: vec![variable("MODE", false), variable("TOKEN", true)],
            directory: "/opt".into(),
            disk: Some(disk("D1")),
        }
    }

    #[test]
    fn a_program_survives_the_wire_and_shows_no_variable() {
        for program in [ExecProgram::Command(vec!["id".into(), String::new()]), ExecProgram::Script("id\n".into())] {
            survives::<v1::Exec, _>(exec(program));
        }
    }

    #[test]
    fn an_exec_without_a_program_or_name_is_refused() {
        refused::<v1::Exec, _>(
            exec(ExecProgram::Script("id".into())),
            &[
                ("program", |w| w.program = None),
                ("command.words", |w| w.program = Some(Wire::Command(v1::ExecCommand { words: Vec::new() }))),
                ("script", |w| w.program = Some(Wire::Script(String::new()))),
                ("variables.name", |w| w.variables[0].name.clear()),
                ("directory", |w| w.directory.clear()),
            ],
        );
    }
}
