//! Calls of a web server in the place of a BMC. What they are is in the machine's document.

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{BmcSpec, BmcSystem, HttpMethod, PowerState, Webhook, WebhookCall};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::error::BmcError;
use crate::http::{Answer, Http};
use crate::{Account, Bmc, BootDevice, BootOverride, Inserted, PowerChange};

/// A web server, and what it is asked.
pub(crate) struct Calls {
    http: Http,
    /// The path of the address, before that of each call.
    prefix: String,
    account: Account,
    /// With every expression replaced by its value.
    calls: Webhook,
    /// As the document has it: values of a Secret are not shown.
    stated: Webhook,
}

impl Calls {
    /// Nothing is called yet.
    ///
    /// # Errors
    /// [`BmcError::Calls`] if an expression or a header's value is not one that may be sent; [`BmcError::Authorities`].
    pub(crate) fn new(spec: &BmcSpec, stated: &Webhook, account: Account, machine: &str) -> Result<Self, BmcError> {
        let values = |name: &str| match name {
            Webhook::MACHINE => Some(machine.to_owned()),
            Webhook::USERNAME => Some(account.username.clone()),
            Webhook::PASSWORD => Some(account.password.clone()),
            _ => None,
        };
        let render = |text: &str| Webhook::filled(text, values).map_err(BmcError::Calls);
        let mut calls = stated.clone();
        let of_power = [&mut calls.on, &mut calls.off].into_iter();
        for call in of_power.chain(calls.shutdown.as_mut()).chain(calls.netboot.as_mut()) {
            call.path = render(&call.path)?;
            call.body.iter_mut().try_for_each(|body| render_tree(body, &render))?;
        }
        calls.status.path = render(&calls.status.path)?;
        for (name, value) in &mut calls.headers {
            *value = render(value)?;
            if HeaderValue::from_str(value).is_err() {
                return Err(BmcError::Calls(format!(
                    "the value of the header {name} has characters that no header may have"
                )));
            }
        }
        let (http, prefix) = (Http::new(spec)?, spec.address.path().to_owned());
        Ok(Self { http, prefix, account, calls, stated: stated.clone() })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{}{path}", self.http.base(), self.prefix)
    }

    /// Sends a call. Only one with success is an answer; of any other the status alone is said: its body may repeat a secret.
    async fn send(&self, method: Method, path: &str, body: Option<&Value>, shown: &str) -> Result<Answer, BmcError> {
        let shown = self.url(shown);
        let mut request = self.http.request(method, &self.url(path));
        if let Some(body) = body {
            let (kind, bytes) = match body {
                Value::String(text) => ("text/plain; charset=utf-8", text.clone()),
                tree => ("application/json", tree.to_string()),
            };
            if !self.has(&CONTENT_TYPE) {
                request = request.header(CONTENT_TYPE, kind);
            }
            request = request.body(bytes);
        }
        if !self.has(&AUTHORIZATION) {
            request = request.basic_auth(&self.account.username, Some(&self.account.password));
        }
        request = self.calls.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let answer = self.http.send(request, &shown).await?;
        let (username, said) = (self.account.username.clone(), String::new());
        match answer.status {
            status if status.is_success() => Ok(answer),
            // Some services say the second of a wrong password.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(BmcError::Refused { url: shown, username, said }),
            status => Err(BmcError::Failed { url: shown, status: status.as_u16(), said }),
        }
    }

    /// Whether the document states this header.
    fn has(&self, header: &HeaderName) -> bool {
        self.calls.headers.keys().any(|name| name.eq_ignore_ascii_case(header.as_str()))
    }

    async fn call(&self, call: &WebhookCall, stated: &WebhookCall) -> Result<(), BmcError> {
        let word = call.method.unwrap_or(HttpMethod::Post).as_str();
        let method =
            Method::from_bytes(word.as_bytes()).map_err(|_| BmcError::Calls(format!("{word} is no method of HTTP")))?;
        self.send(method, &call.path, call.body.as_ref(), &stated.path).await.map(drop)
    }

    fn unsupported(&self, what: &str) -> BmcError {
        BmcError::Unsupported { url: self.url(""), what: what.to_owned() }
    }
}

/// Replaces the expressions in the texts of a tree.
fn render_tree(tree: &mut Value, render: &impl Fn(&str) -> Result<String, BmcError>) -> Result<(), BmcError> {
    match tree {
        Value::String(text) => *text = render(text)?,
        Value::Array(items) => items.iter_mut().try_for_each(|item| render_tree(item, render))?,
        Value::Object(fields) => fields.values_mut().try_for_each(|field| render_tree(field, render))?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

#[async_trait]
impl Bmc for Calls {
    async fn power(&mut self) -> Result<Option<PowerState>, BmcError> {
        let answer = self.send(Method::GET, &self.calls.status.path, None, &self.stated.status.path).await?;
        let says = self.calls.status.says(&String::from_utf8_lossy(&answer.body));
        Ok(says.map(|is_on| if is_on { PowerState::On } else { PowerState::Off }))
    }

    async fn inventory(&mut self) -> Result<BmcSystem, BmcError> {
        Ok(BmcSystem::default())
    }

    async fn set_boot(&mut self, boot: BootOverride) -> Result<(), BmcError> {
        match (boot.device, &self.calls.netboot, &self.stated.netboot) {
            // It is for the next start alone: nothing lasts that could be taken back.
            (BootDevice::None, ..) => Ok(()),
            (BootDevice::Pxe, Some(call), Some(stated)) if boot.once => self.call(call, stated).await,
            _ => Err(self.unsupported("this boot device")),
        }
    }

    async fn insert(&mut self, _url: &str) -> Result<Inserted, BmcError> {
        Err(self.unsupported("virtual media"))
    }

    async fn eject(&mut self, _url: &str, _drive: Option<&str>) -> Result<(), BmcError> {
        Ok(())
    }

    async fn change_power(&mut self, change: PowerChange) -> Result<(), BmcError> {
        let (call, stated) = match change {
            PowerChange::On => (&self.calls.on, &self.stated.on),
            PowerChange::Off => (&self.calls.off, &self.stated.off),
            PowerChange::Shutdown => match (&self.calls.shutdown, &self.stated.shutdown) {
                (Some(call), Some(stated)) => (call, stated),
                _ => return Err(self.unsupported("a shutdown")),
            },
        };
        self.call(call, stated).await
    }

    async fn signs(&mut self, _since: Timestamp, _now: Timestamp) -> Result<Vec<String>, BmcError> {
        Ok(Vec::new())
    }

    async fn close(&mut self) {}
}
