//! How a command fails: what a person reads, and the exit code a program reads.

use std::{borrow::Cow, io};

use landfall_api::{ErrorCode, Kind, Problem};
use landfall_client::ClientError;

use crate::output;
use crate::text::{Text, set_in};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The coordinator, or an equivalent check here, refused.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// Documents were refused; nothing was applied.
    #[error("{} problems", .0.len())]
    Refused(Vec<Problem>),
    /// Documents are invalid, and nothing was meant to be applied.
    #[error("{} problems", .0.len())]
    Invalid(Vec<Problem>),
    /// Files are invalid; no document was written.
    #[error("{} problems", .0.len())]
    NotImported(Vec<Problem>),
    /// No answer.
    #[error("{what}")]
    Unreachable { what: String, causes: Vec<String>, hint: String },
    /// The command line is contradictory.
    #[error("{0}")]
    Usage(String),
    /// Something here failed, such as reading a file.
    #[error("{what}: {cause}")]
    Local { what: String, cause: String, hint: String },
    /// The wait timed out.
    #[error("{what}")]
    TimedOut { what: String, hint: String },
    /// The workflow did not succeed; its failure has been shown.
    #[error("the workflow did not succeed")]
    NotSucceeded,
    /// Some of several requests failed; their failures have been shown.
    #[error("{failed} of {of} failed{}", if *left == 0 { String::new() } else { format!("; {left} were not begun") })]
    Partly { failed: usize, left: usize, of: usize },
    /// An import has findings that ask for something; they have been shown.
    #[error("something has no counterpart")]
    Incomplete,
    /// The reader of the output has gone: `| head`.
    #[error("the output is closed")]
    Closed,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Problem(problem) => Self::Problem(problem),
            ClientError::Unreachable { what, causes, hint } => Self::Unreachable { what, causes, hint },
            ClientError::Usage(what) => Self::Usage(what),
            ClientError::Local { what, cause, hint } => Self::Local { what, cause, hint },
        }
    }
}

impl From<io::Error> for Failure {
    /// Of writing output only.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Local { what: "cannot write the output".into(), cause: error.to_string(), hint: String::new() },
        }
    }
}

impl Failure {
    pub(crate) fn local(what: impl Into<String>, cause: impl ToString, hint: impl Into<String>) -> Self {
        Self::Local { what: what.into(), cause: cause.to_string(), hint: hint.into() }
    }

    /// Documented in `landfall help exit-codes`.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Problem(problem) => match problem.code {
                ErrorCode::NotFound => 3,
                ErrorCode::Internal | ErrorCode::StoreUnavailable | ErrorCode::Timeout => 1,
                _ => 4,
            },
            Self::Refused(_) | Self::Invalid(_) | Self::NotImported(_) => 4,
            Self::Unreachable { .. } => 5,
            Self::Usage(_) => 2,
            Self::TimedOut { .. } => 6,
            Self::Incomplete => 7,
            Self::Local { .. } | Self::NotSucceeded | Self::Partly { .. } => 1,
            Self::Closed => 0,
        }
    }

    /// The document does not exist; with the nearest existing name; `more`: another hint.
    pub(crate) fn missing(kind: Kind, name: &str, there: &[&str], more: &str) -> Self {
        let meant = landfall_api::nearest(name, there).map(|n| format!("did you mean {n}? ")).unwrap_or_default();
        Problem::new(ErrorCode::NotFound, format!("there is no {} \"{name}\"", kind.singular()))
            .hint(format!("{meant}list them with landfall get {}{more}", kind.plural()))
            .into()
    }

    /// For a command that was not done when its output was closed: that is not a success.
    pub(crate) fn cut_off(self) -> Self {
        match self {
            Self::Closed => Self::local("the reader of the output has gone", "it was closed before the end", ""),
            other => other,
        }
    }

    /// Whether a later retry may help: the coordinator is gone, or has lost its store, or asks one that is gone.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
            || matches!(self, Self::Problem(problem) if problem.code == ErrorCode::StoreUnavailable)
    }

    /// As a person reads it, in plain text.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.parts().iter().map(|part| part.text("error:".into()).as_str().to_owned()).collect()
    }

    pub(crate) fn print(&self) {
        let error = output::paint_stderr("error:", output::RED);
        self.parts().iter().for_each(|part| output::text_to_stderr(&part.text(error.clone())));
        if let Self::Refused(problems) | Self::Invalid(problems) | Self::NotImported(problems) = self {
            let (count, s) = (problems.len(), if problems.len() == 1 { "" } else { "s" });
            let end = match self {
                Self::Refused(_) => "; nothing was applied",
                Self::NotImported(_) => "; no document was written",
                _ => "",
            };
            output::to_stderr(&format!("{count} problem{s}{end}"));
        }
    }

    fn parts(&self) -> Vec<Parts<'_>> {
        let parts = |what: &str, causes, hint| Parts { what: what.to_owned(), at: "", causes, hint };
        match self {
            Self::Problem(problem) => vec![Parts::of(problem)],
            Self::Refused(problems) | Self::Invalid(problems) | Self::NotImported(problems) => {
                problems.iter().map(Parts::of).collect()
            }
            Self::Unreachable { what, causes, hint } => vec![parts(what, causes, hint)],
            Self::Usage(what) => vec![parts(what, &[], "see landfall --help for all commands")],
            Self::Local { what, cause, hint } => vec![parts(what, std::slice::from_ref(cause), hint)],
            Self::TimedOut { what, hint } => vec![parts(what, &[], hint)],
            Self::Partly { .. } => vec![parts(&self.to_string(), &[], "")],
            Self::NotSucceeded | Self::Incomplete | Self::Closed => Vec::new(),
        }
    }
}

/// A text whose end says something too keeps both ends: an error may repeat a value of a megabyte.
fn shortened(text: &str) -> Cow<'_, str> {
    /// Characters kept of the start, and of the end.
    const KEPT: (usize, usize) = (1500, 500);
    let Some((middle, _)) = text.char_indices().nth(KEPT.0) else { return text.into() };
    let Some((end, _)) = text.char_indices().rev().nth(KEPT.1 - 1).filter(|(end, _)| *end > middle) else {
        return text.into();
    };
    let left_out = end - middle;
    // A few bytes less are not worth the mark.
    if left_out < 100 {
        return text.into();
    }
    format!("{} … {left_out} bytes left out … {}", &text[..middle], &text[end..]).into()
}

/// What every failure consists of.
struct Parts<'a> {
    what: String,
    at: &'a str,
    causes: &'a [String],
    hint: &'a str,
}

impl<'a> Parts<'a> {
    fn of(problem: &'a Problem) -> Self {
        let what = format!("{} [{}]", problem.message, problem.code);
        Self { what, at: &problem.subject, causes: &problem.causes, hint: &problem.hint }
    }

    fn text(&self, error: Text) -> Text {
        let Self { what, at, causes, hint } = self;
        let further = |text: &str| set_in(&shortened(text), "    ");
        let mut text =
            if at.is_empty() { format!(" {}", further(what)) } else { format!(" {}: {}", further(at), further(what)) };
        for cause in *causes {
            text.push_str(&format!("\n  because: {}", further(cause)));
        }
        if !hint.is_empty() {
            text.push_str(&format!("\n  hint: {}", further(hint)));
        }
        error.then(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_megabyte_is_shown_by_its_ends() {
        let text = format!("\"{}\" is not a label's name; use fewer", "ö".repeat(500_000));
        let said = Failure::from(Problem::new(ErrorCode::InvalidDocument, text.clone()).hint(text)).lines().concat();
        assert!(said.len() < 10_000, "{} bytes", said.len());
        assert!(
            said.contains("\"ööö") && said.contains("is not a label's name; use fewer [InvalidDocument]"),
            "{said}"
        );
        assert!(said.contains("bytes left out"), "{said}");
        let short = "x".repeat(2000);
        assert!(
            Failure::from(Problem::new(ErrorCode::InvalidDocument, short.clone())).lines().concat().contains(&short)
        );
    }

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
        assert_eq!(Failure::Incomplete.exit_code(), 7);
        assert_eq!(Failure::TimedOut { what: String::new(), hint: String::new() }.exit_code(), 6);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit_code(), 0);
    }
}
