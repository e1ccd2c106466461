//! The routes about the site itself: tokens, the audit log, backups, the coordinator's version.

use futures::StreamExt;
use landfall_api::TokenRequest;
use reqwest::Method;
use serde_json::Value;
use tokio_util::bytes::Bytes;

use crate::{Client, ClientError, Lines, routes::segment};

impl Client {
    /// Makes a bearer token; the answer is the only place that shows its value.
    pub async fn create_token(&self, body: &TokenRequest) -> Result<Value, ClientError> {
        self.answer(self.request(Method::POST, "tokens").json(body)).await
    }

    /// Entries of the audit log after a position, oldest first.
    pub async fn audit(&self, after: u64, limit: u32, follow: bool) -> Result<Lines<Value>, ClientError> {
        self.lines(self.request(Method::GET, &format!("audit?after={after}&limit={limit}&follow={follow}"))).await
    }

    /// Revokes every existing certificate of an operator.
    pub async fn revoke_operator(&self, name: &str) -> Result<Value, ClientError> {
        self.answer(self.request(Method::POST, &format!("operators/{}/revoke", segment(name)?))).await
    }

    /// Takes a bearer token away.
    pub async fn delete_token(&self, name: &str) -> Result<(), ClientError> {
        let path = format!("tokens/{}", segment(name)?);
        self.send(self.request(Method::DELETE, &path)).await.map(drop)
    }

    /// The coordinator's own version, as its OpenAPI document has it.
    pub async fn version(&self) -> Result<String, ClientError> {
        let document: Value = self.answer(self.http.get(format!("{}/openapi.json", self.base))).await?;
        let version = document.pointer("/info/version").and_then(Value::as_str);
        Ok(version.unwrap_or("unknown").to_owned())
    }

    /// A backup of all data, as a stream of bytes.
    pub async fn backup(&self) -> Result<futures::stream::BoxStream<'static, Result<Bytes, ClientError>>, ClientError> {
        let response = self.send(self.http.get(format!("{}/backup", self.base))).await?;
        let client = self.clone();
        Ok(response.bytes_stream().map(move |chunk| chunk.map_err(|e| client.unreachable(&e))).boxed())
    }
}
