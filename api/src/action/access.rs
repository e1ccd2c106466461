//! Rules of how servers are asked: for every action that fetches.

use serde_json::Value;

use super::rules::Rules;
use crate::ImageUrl;
use crate::issue::{has_expression, join};

/// More than any private hierarchy has.
const MAX_CERTIFICATES: usize = 16;

impl Rules<'_> {
    /// Certificates, a proxy, and credentials for the servers of `urls`.
    pub(super) fn access(&mut self, access: Option<&Value>, urls: &[&str], path: &str) {
        let Some(access) = access else { return };
        let certificates =
            access.get("caCertificates").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (i, pem) in certificates.iter().enumerate() {
            let Some(pem) = pem.as_str().filter(|pem| !has_expression(pem)) else { continue };
            let at = format!("{path}.caCertificates[{i}]");
            if pem.contains("PRIVATE KEY") {
                let hint = "write only the certificate, and create a new key: this one is no longer secret";
                self.say(at, "this contains a private key", hint);
            } else if !(pem.contains("-----BEGIN CERTIFICATE-----") && pem.contains("-----END CERTIFICATE-----")) {
                let hint = "write the block from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----";
                self.say(at, "this is not a certificate in PEM", hint);
            }
        }
        if certificates.len() > MAX_CERTIFICATES {
            let message = format!("there are {} certificates; the limit is {MAX_CERTIFICATES}", certificates.len());
            self.say(join(path, "caCertificates"), message, "list only the authorities of the image's servers");
        }
        if let Some(proxy) = access.get("proxy").and_then(Value::as_str).filter(|proxy| !has_expression(proxy)) {
            let host = proxy.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
            match (ImageUrl::parse(proxy), host) {
                (Ok(ImageUrl::Http), Some(host)) if !host.contains(['/', '?', '#']) => {}
                (Err(error), Some(_)) => self.say(join(path, "proxy"), error.message, error.hint),
                // Not repeated: it may hold a password.
                _ => self.say(join(path, "proxy"), "this is not a proxy".to_owned(), "write http://host:port"),
            }
        }
        self.authorization(access.get("authorization"), urls, &join(path, "authorization"));
    }

    /// Credentials of exactly one kind, with a separate secret, and never over an unencrypted connection.
    fn authorization(&mut self, stated: Option<&Value>, urls: &[&str], path: &str) {
        let Some(stated) = stated.and_then(Value::as_object) else { return };
        let has = |name: &str| stated.get(name).is_some_and(|value| !value.is_null());
        match (has("username"), has("password"), has("token")) {
            (true, true, false) | (false, false, true) => {}
            _ => self.say(path, "the credentials are incomplete", "write username and password, or only token"),
        }
        for name in ["password", "token"] {
            // What stands here once it is rendered is a reference: a value of anything else has no expression left.
            if stated.get(name).and_then(Value::as_str).is_some_and(|text| !has_expression(text)) {
                let hint = "apply it as a Secret, and write {{ secrets.NAME.KEY }}; change this value: it is no \
                    longer secret";
                self.say(join(path, name), format!("a {name} must not be in a template"), hint);
            }
        }
        let plain = |url: &&&str| url.starts_with("http://") || url.starts_with("oci+http://");
        if let Some(url) = urls.iter().find(plain) {
            let url = url.split("://").next().unwrap_or_default();
            let message = format!("{url}:// would send the credentials unencrypted");
            self.say(path, message, "serve the image over https:// or oci://");
        }
    }
}
