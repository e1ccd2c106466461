//! The image that the command line means.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use landfall_api::{Digest, ImageUrl, IndexSpec, SecretText, SumsSpec};
use landfall_disk::{Access, Authorization, Format, Image, Proof, Signature};

use super::Stop;

/// Keys, certificates and credentials are far smaller; a disk named by mistake is not.
const MAX_FILE: u64 = 1 << 20;

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Image")]
pub(super) struct ImageArguments {
    /// Where the image is: http://, https://, oci://, file: or a path.
    #[arg(long, value_name = "URL|PATH")]
    url: String,
    /// A mirror with the same content, tried in this order when --url fails; may be repeated.
    #[arg(long = "mirror", value_name = "URL|PATH")]
    mirrors: Vec<String>,
    /// Digest of the stored file, sha256:… or sha512:…
    #[arg(long, value_parser = digest)]
    digest: Option<Digest>,
    /// Digest of the decoded content.
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    raw_digest: Option<Digest>,
    /// A checksum file that lists the image.
    #[arg(long, value_name = "URL|PATH")]
    sums: Option<String>,
    /// A detached signature: of the checksum file if --sums is given, else of the image.
    #[arg(long, value_name = "URL|PATH", requires = "key")]
    signature: Option<String>,
    /// The public key for --signature: a file, or a minisign key (a line that begins with RW).
    #[arg(long, value_name = "FILE|KEY", requires = "signature")]
    key: Option<String>,
    /// An index with the digest of every chunk: from landfall-image pack, or a bmap.
    #[arg(long, value_name = "URL|PATH", requires = "index_digest")]
    index: Option<String>,
    /// Digest of the index's own bytes.
    #[arg(long, value_name = "DIGEST", requires = "index", value_parser = digest)]
    index_digest: Option<Digest>,
    /// Write the image without any proof of its content.
    #[arg(long)]
    digest_waived: bool,
    /// raw, gzip, xz, zstd, bzip2, lz4, qcow2 or vmdk. Default: detected from the content. Content of another format is
    /// refused.
    #[arg(long)]
    format: Option<Format>,
    /// none: the image has no partition table, and that is meant; without it, an image without a table is refused.
    #[arg(long, value_enum)]
    table: Option<Table>,
    /// Certificate authorities to trust in addition to the public ones: a PEM file; may be repeated.
    #[arg(long = "ca", value_name = "FILE")]
    certificates: Vec<PathBuf>,
    /// http://host:port of a proxy. Proxy variables of the environment are ignored.
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    /// A file that contains user:password for the image's servers.
    #[arg(long, value_name = "FILE", conflicts_with = "bearer_file")]
    auth_file: Option<PathBuf>,
    /// A file that contains a bearer token for the image's servers.
    #[arg(long, value_name = "FILE")]
    bearer_file: Option<PathBuf>,
}

/// What is stated of the image's partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Table {
    /// It has none.
    None,
}

/// With the algorithm before it or as `sha256sum` and `sha512sum` print it.
fn digest(text: &str) -> Result<Digest, String> {
    let parsed = if text.contains(':') { text.parse() } else { Digest::from_hex(text) };
    parsed.map_err(|e| e.to_string())
}

impl ImageArguments {
    /// Reads the files it names.
    pub(super) fn image(&self) -> Result<Image, Stop> {
        let urls =
            std::iter::once(&self.url).chain(&self.mirrors).map(|text| url(text)).collect::<Result<Vec<_>, _>>()?;
        let proof = self.proof(&urls)?;
        if self.proxy.as_deref().is_some_and(|proxy| !proxy.starts_with("http://")) {
            return Err(Stop::Use("--proxy is not a proxy's URL; write http://host:port".into()));
        }
        let ca_certificates = self.certificates.iter().map(|path| certificate(path)).collect::<Result<_, _>>()?;
        let access = Access { ca_certificates, proxy: self.proxy.clone(), authorization: self.authorization()? };
        let no_table = self.table == Some(Table::None);
        Ok(Image { urls, proof, format: self.format, no_table, access })
    }

    fn proof(&self, urls: &[String]) -> Result<Proof, Stop> {
        let signature = match (&self.signature, &self.key) {
            (Some(signature), Some(key)) => Some(Signature { url: file_beside(signature)?, key: public_key(key)? }),
            // clap requires both together.
            _ => None,
        };
        let mut found = Vec::new();
        found.extend(self.digest.map(|digest| ("--digest", Proof::Stored(digest))));
        found.extend(self.raw_digest.map(|digest| ("--raw-digest", Proof::Raw(digest))));
        match (&self.sums, signature) {
            (Some(sums), signature) => {
                found.push(("--sums", Proof::Sums(SumsSpec { url: file_beside(sums)?, signature })))
            }
            (None, Some(signature)) => found.push(("--signature", Proof::Signed(signature))),
            (None, None) => {}
        }
        if let (Some(index), Some(digest)) = (&self.index, self.index_digest) {
            found.push(("--index", Proof::Index(IndexSpec { url: file_beside(index)?, digest })));
        }
        if self.digest_waived {
            found.push(("--digest-waived", Proof::Waived));
        }
        if found.len() > 1 {
            let names: Vec<_> = found.iter().map(|(name, _)| *name).collect();
            return Err(Stop::Use(format!("state exactly one proof of the image; here are {}", names.join(" and "))));
        }
        match found.pop() {
            Some((_, proof)) => Ok(proof),
            None if urls.iter().all(|url| ImageUrl::parse(url).is_ok_and(ImageUrl::is_pinned)) => Ok(Proof::Pinned),
            None => Err(Stop::Use(
                "no proof of the image; add --digest (or --raw-digest, --sums, --signature, --index), or \
                    --digest-waived"
                    .into(),
            )),
        }
    }

    fn authorization(&self) -> Result<Option<Authorization>, Stop> {
        if let Some(path) = &self.auth_file {
            let text = read(path)?;
            // A user's name holds no colon (RFC 7617, section 2); a password may.
            let Some((user, password)) = line_of(&text).split_once(':') else {
                return Err(Stop::Use(format!("--auth-file {} does not contain user:password", path.display())));
            };
            return Ok(Some(Authorization::Basic { username: user.into(), password: SecretText::new(password) }));
        }
        let Some(path) = &self.bearer_file else { return Ok(None) };
        let text = read(path)?;
        match line_of(&text) {
            "" => Err(Stop::Use(format!("--bearer-file {} is empty", path.display()))),
            token => Ok(Some(Authorization::Bearer(SecretText::new(token)))),
        }
    }
}

/// The first line; a credentials file has only one.
fn line_of(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// A URL as it is, or the `file:` URL of a path.
fn url(text: &str) -> Result<String, Stop> {
    let is_url = text.contains("://") || text.starts_with("file:");
    let url = if is_url { text.to_owned() } else { url_of_path(Path::new(text))? };
    match ImageUrl::parse(&url) {
        Ok(_) => Ok(url),
        Err(e) => Err(Stop::Use(e.to_string())),
    }
}

/// The same for files that cannot come from a registry.
fn file_beside(text: &str) -> Result<String, Stop> {
    let url = url(text)?;
    match ImageUrl::parse(&url) {
        Ok(ImageUrl::Oci { .. }) => {
            Err(Stop::Use(format!("{url} is not the URL of a file; write http://, https:// or a path")))
        }
        _ => Ok(url),
    }
}

fn url_of_path(path: &Path) -> Result<String, Stop> {
    if !path.is_file() {
        let name = path.display();
        return Err(Stop::Use(format!(
            "there is no file {name}; state a URL (https://…, oci://…) or the path of a file"
        )));
    }
    let absolute = std::path::absolute(path).map_err(|e| Stop::Use(format!("{}: {e}", path.display())))?;
    let mut url = String::from("file://");
    for byte in absolute.as_os_str().as_bytes() {
        // RFC 3986, section 2.3, and the slashes between.
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            url.push(char::from(*byte));
        } else {
            // Writing to a String does not fail.
            write!(url, "%{byte:02X}").unwrap_or_default();
        }
    }
    Ok(url)
}

fn public_key(text: &str) -> Result<String, Stop> {
    let key =
        if text.starts_with("RW") && !Path::new(text).exists() { text.to_owned() } else { read(Path::new(text))? };
    if key.contains("PRIVATE KEY") || key.contains("secret key") {
        return Err(Stop::Use("--key is a private key; state the public key".into()));
    }
    Ok(key)
}

fn certificate(path: &Path) -> Result<String, Stop> {
    let text = read(path)?;
    if text.contains("-----BEGIN CERTIFICATE-----") {
        return Ok(text);
    }
    Err(Stop::Use(format!("--ca {} contains no PEM certificate", path.display())))
}

fn read(path: &Path) -> Result<String, Stop> {
    let unreadable = |what: String| Stop::Use(format!("cannot read {}: {what}", path.display()));
    let file = File::open(path).map_err(|e| unreadable(e.to_string()))?;
    let mut text = String::new();
    // One byte more, to detect a file over the limit.
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(|e| unreadable(e.to_string()))?;
    if text.len() as u64 > MAX_FILE {
        return Err(unreadable(format!("it is larger than {MAX_FILE} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(arguments: &ImageArguments) -> String {
        match arguments.image() {
            Err(Stop::Use(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    fn of(url: &str) -> ImageArguments {
        ImageArguments { url: url.into(), ..ImageArguments::default() }
    }

    #[test]
    fn every_path_becomes_a_url_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a %ü.img");
        std::fs::write(&path, "x").unwrap();
        let arguments = ImageArguments { digest_waived: true, ..of(path.to_str().unwrap()) };
        let image = arguments.image().unwrap_or_else(|_| panic!("refused"));
        assert!(
            image.urls[0].starts_with("file:///") && image.urls[0].ends_with("/a%20%25%C3%BC.img"),
            "{:?}",
            image.urls
        );
        assert!(refusal(&of("/no/such/file")).contains("there is no file /no/such/file"));
        assert!(refusal(&of(dir.path().to_str().unwrap())).contains("there is no file"), "a directory is not a file");
    }

    #[test]
    fn exactly_one_thing_proves_the_image() {
        let digest = Digest::from_sha256([1; 32]);
        assert!(refusal(&of("http://h/i")).contains("no proof of the image"));
        let two = ImageArguments { digest: Some(digest), digest_waived: true, ..of("http://h/i") };
        assert!(refusal(&two).contains("--digest and --digest-waived"), "{}", refusal(&two));
        let key = Some("RWabc".to_owned());
        let signature = Some("http://h/s".to_owned());
        let signed = ImageArguments { signature: signature.clone(), key: key.clone(), ..of("http://h/i") };
        assert!(matches!(signed.image(), Ok(Image { proof: Proof::Signed(_), .. })));
        let sums = ImageArguments { sums: Some("http://h/f".into()), signature, key, ..of("http://h/i") };
        assert!(matches!(sums.image(), Ok(Image { proof: Proof::Sums(SumsSpec { signature: Some(_), .. }), .. })));
        let pinned = of(&format!("oci://r/a@{digest}"));
        assert!(matches!(pinned.image(), Ok(Image { proof: Proof::Pinned, .. })));
        let half = ImageArguments { mirrors: vec!["http://h/i".into()], ..pinned };
        assert!(refusal(&half).contains("no proof of the image"));
    }

    #[test]
    fn secrets_come_out_of_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth");
        std::fs::write(&path, "anna:ge:heim\n").unwrap();
        let arguments = ImageArguments { digest_waived: true, auth_file: Some(path.clone()), ..of("http://h/i") };
        let basic = Authorization::Basic { username: "anna".into(), password: SecretText::new("ge:heim") };
        assert!(arguments.image().is_ok_and(|image| image.access.authorization == Some(basic)));
        let arguments = ImageArguments { digest_waived: true, bearer_file: Some(path.clone()), ..of("http://h/i") };
        assert!(
            arguments
                .image()
                .is_ok_and(|i| i.access.authorization == Some(Authorization::Bearer(SecretText::new("anna:ge:heim"))))
        );
        std::fs::write(&path, "geheim").unwrap();
        let text = refusal(&ImageArguments { digest_waived: true, auth_file: Some(path), ..of("http://h/i") });
        assert!(text.contains("user:password") && !text.contains("geheim"), "{text}");
        let text = refusal(&ImageArguments { digest_waived: true, ..of("http://anna:geheim@h/i") });
        assert!(!text.contains("geheim"), "{text}");
    }

    #[test]
    fn a_digest_may_be_as_the_tools_print_it() {
        let sum = "0a".repeat(32);
        assert_eq!(digest(&sum), digest(&format!("sha256:{sum}")));
        assert!(digest(&"0a".repeat(64)).is_ok_and(|d| d.algorithm() == "sha512"));
        assert!(digest("0a").is_err());
    }
}
