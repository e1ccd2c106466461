//! A machine's serial console.

use landfall_api::{ConsoleInput, ConsoleLine, ConsoleRequest, ConsoleTaken, Kind};
use reqwest::Method;

use crate::routes::segment;
use crate::{Client, ClientError, Lines};

impl Client {
    /// Opens a machine's console. It ends when the lines are dropped.
    pub async fn open_console(
        &self, machine: &str, request: &ConsoleRequest,
    ) -> Result<Lines<ConsoleLine>, ClientError> {
        let path = format!("machines/{}/console", segment(machine)?);
        self.or_hint(Kind::Machine, machine, self.lines(self.request(Method::POST, &path).json(request))).await
    }

    /// Types at it: one request after the other, each with the next number. One whose answer is lost may be sent again.
    pub async fn type_at_console(&self, machine: &str, input: &ConsoleInput) -> Result<ConsoleTaken, ClientError> {
        let path = format!("machines/{}/console/input", segment(machine)?);
        self.answer(self.request(Method::POST, &path).json(input)).await
    }
}
