//! How a command fails: what a person reads, and the exit code a program reads.

use std::io;

use landfall_api::{ErrorCode, Problem};

use crate::output;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The coordinator, or a check made here in its stead, refused.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// Documents were refused; nothing was applied.
    #[error("{} problems", .0.len())]
    Refused(Vec<Problem>),
    /// No answer.
    #[error("{what}")]
    Unreachable { what: String, causes: Vec<String>, hint: String },
    /// The command line makes no sense together.
    #[error("{0}")]
    Usage(String),
    /// Something here failed, such as reading a file.
    #[error("{what}: {cause}")]
    Local { what: String, cause: String, hint: String },
    /// The workflow that was waited for did not succeed; it has been shown already.
    #[error("the workflow did not succeed")]
    NotSucceeded,
    /// Nobody reads the output any more: `| head`.
    #[error("the output is closed")]
    Closed,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl From<io::Error> for Failure {
    /// Of writing output only.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Local {
                what: "the output cannot be written".into(),
                cause: error.to_string(),
                hint: String::new(),
            },
        }
    }
}

impl Failure {
    pub(crate) fn local(what: impl Into<String>, cause: impl ToString, hint: impl Into<String>) -> Self {
        Self::Local { what: what.into(), cause: cause.to_string(), hint: hint.into() }
    }

    /// Documented in `--help`.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Problem(problem) => match problem.code {
                ErrorCode::NotFound => 3,
                ErrorCode::Internal | ErrorCode::Timeout => 1,
                _ => 4,
            },
            Self::Refused(_) => 4,
            Self::Unreachable { .. } => 5,
            Self::Usage(_) => 2,
            Self::Local { .. } | Self::NotSucceeded => 1,
            Self::Closed => 0,
        }
    }

    /// Whether trying again later may help.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    pub(crate) fn print(&self) {
        match self {
            Self::Problem(problem) => print_problem(problem),
            Self::Refused(problems) => {
                problems.iter().for_each(print_problem);
                let (count, s) = (problems.len(), if problems.len() == 1 { "" } else { "s" });
                output::to_stderr(&format!("{count} problem{s}; nothing was applied"));
            }
            Self::Unreachable { what, causes, hint } => print_parts(what, "", causes, hint),
            Self::Usage(what) => print_parts(what, "", &[], "landfall --help shows every command"),
            Self::Local { what, cause, hint } => print_parts(what, "", std::slice::from_ref(cause), hint),
            Self::NotSucceeded | Self::Closed => {}
        }
    }
}

fn print_problem(problem: &Problem) {
    let what = format!("{} [{}]", problem.message, problem.code);
    print_parts(&what, &problem.subject, &problem.causes, &problem.hint);
}

fn print_parts(what: &str, at: &str, causes: &[String], hint: &str) {
    let error = output::paint_stderr("error:", output::RED);
    let mut text = if at.is_empty() { format!("{error} {what}") } else { format!("{error} {at}: {what}") };
    for cause in causes {
        text.push_str(&format!("\n  because: {cause}"));
    }
    if !hint.is_empty() {
        text.push_str(&format!("\n  hint: {hint}"));
    }
    output::to_stderr(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_documented_ones() {
        let code = |code| Failure::from(Problem::new(code, "x")).exit_code();
        assert_eq!(code(ErrorCode::NotFound), 3);
        assert_eq!(code(ErrorCode::MachineBusy), 4);
        assert_eq!(code(ErrorCode::InvalidDocument), 4);
        assert_eq!(code(ErrorCode::Forbidden), 4);
        assert_eq!(code(ErrorCode::Internal), 1);
        assert_eq!(Failure::Usage(String::new()).exit_code(), 2);
        let unreachable = Failure::Unreachable { what: String::new(), causes: vec![], hint: String::new() };
        assert_eq!(unreachable.exit_code(), 5);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit_code(), 0);
    }
}
