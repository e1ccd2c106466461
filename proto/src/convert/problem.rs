//! Failures as a person reads them. A code that this version does not know arrives as `ErrorCode`'s own catch-all.

use landfall_api::{ErrorCode, Problem};

use crate::v1;

impl From<v1::Problem> for Problem {
    fn from(wire: v1::Problem) -> Self {
        let v1::Problem { code, message, causes, hint, subject, last_log_lines } = wire;
        Self { code: ErrorCode::from_wire(&code), message, causes, hint, subject, last_log_lines }
    }
}

impl From<Problem> for v1::Problem {
    fn from(problem: Problem) -> Self {
        let Problem { code, message, causes, hint, subject, last_log_lines } = problem;
        Self { code: code.as_str().to_owned(), message, causes, hint, subject, last_log_lines }
    }
}
