//! Over a network: certificates on both sides, and a password.

use std::path::PathBuf;

use landfall_postgres::Server;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::server::Databases as _;
use super::*;

struct Ca(Issuer<'static, KeyPair>, String);

impl Ca {
    fn new() -> Self {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    /// A certificate for a name, and its key.
    fn issue(&self, name: &str) -> (String, String) {
        let (mut params, key) = (CertificateParams::new([name.to_owned()]).unwrap(), KeyPair::generate().unwrap());
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

struct Files(tempfile::TempDir);

impl Files {
    fn put(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

/// With TLS, and these rules for who may connect.
fn server(ca: &Ca, name: &str, rules: &str) -> (Server, u16) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (certificate, key) = ca.issue(name);
    let rules = format!("local all all trust\n{rules}\n");
    let files = [("server.crt", certificate), ("server.key", key), ("ca.crt", ca.1.clone()), ("pg_hba.conf", rules)];
    let settings = ["listen_addresses=127.0.0.1", "ssl=on", "ssl_ca_file=ca.crt"];
    (Server::prepared(&settings, port, &files), port)
}

async fn refused(options: PostgresOptions) -> String {
    PostgresStore::open(options).await.err().expect("it is refused").to_string()
}

#[tokio::test]
async fn both_sides_prove_who_they_are() {
    let (ca, other, files) = (Ca::new(), Ca::new(), Files(tempfile::tempdir().unwrap()));
    let (server, port) = server(&ca, "localhost", "hostssl all landfall 127.0.0.1/32 cert");
    let url = format!("postgresql://landfall@localhost:{port}/test0");
    let of = || PostgresOptions::new(&url, &server.database().key_dir).unwrap();
    let (certificate, key) = ca.issue("landfall");
    let identity = (files.put("own.crt", &certificate), files.put("own.key", &key));
    let identity = Some((identity.0.as_path(), identity.1.as_path()));
    let (trusted, another) = (files.put("ca.crt", &ca.1), files.put("other.crt", &other.1));
    PostgresStore::open(of().with_tls(&trusted, identity).unwrap()).await.unwrap();
    let said = refused(of().with_tls(&another, identity).unwrap()).await;
    assert!(said.contains("invalid peer certificate"), "{said}");
    let said = refused(of().with_tls(&trusted, None).unwrap()).await;
    assert!(said.contains("certificate"), "{said}");
    let by_address = url.replace("localhost", "127.0.0.1");
    let by_address = PostgresOptions::new(&by_address, &server.database().key_dir).unwrap();
    let said = refused(by_address.with_tls(&trusted, identity).unwrap()).await;
    assert!(said.contains("not valid for name"), "{said}");
    let Err(said) = of().with_tls(&files.put("empty", ""), None) else { panic!("an empty file is no CA") };
    assert!(said.to_string().contains("no certificate"), "{said}");
}

#[tokio::test]
async fn a_password_comes_from_a_private_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let (ca, files) = (Ca::new(), Files(tempfile::tempdir().unwrap()));
    let (server, port) = server(&ca, "localhost", "hostssl all landfall 127.0.0.1/32 scram-sha-256");
    server.sql("postgres", "ALTER USER landfall PASSWORD 'hunter2'");
    let key_dir = server.database().key_dir;
    let trusted = files.put("ca.crt", &ca.1);
    let of = || {
        let options = PostgresOptions::new(&format!("postgresql://landfall@localhost:{port}/test0"), &key_dir);
        options.unwrap().with_tls(&trusted, None).unwrap()
    };
    let right = files.put("right", "hunter2\n");
    PostgresStore::open(of().with_password_file(&right).unwrap()).await.unwrap();
    let said = refused(of().with_password_file(&files.put("wrong", "hunter3")).unwrap()).await;
    assert!(said.contains("password authentication failed") && !said.contains("hunter"), "{said}");
    std::fs::set_permissions(&right, std::fs::Permissions::from_mode(0o644)).unwrap();
    let Err(said) = of().with_password_file(&right) else { panic!("others may read it") };
    assert!(said.to_string().contains("0600"), "{said}");
}
