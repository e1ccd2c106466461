//! Copies single private functions out of the agent's sources, for `src/lib.rs`: files whose other parts need a kernel or a
//! network. A function that is gone or renamed ends the build with its name.

use std::{env, fs, path::Path};

const FUNCTIONS: [(&str, &str); 2] = [("kexec/kernel.rs", "file_name"), ("phone_home.rs", "pretty_name")];

fn main() {
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    for (file, name) in FUNCTIONS {
        let path = Path::new("../src").join(file);
        println!("cargo:rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("agent/src/{file}: {e}"));
        let start =
            text.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("agent/src/{file} has no function {name}"));
        let body = &text[start..];
        let end = body.find("\n}\n").unwrap_or_else(|| panic!("agent/src/{file}: {name} does not end"));
        fs::write(Path::new(&out).join(format!("{name}.rs")), format!("pub(crate) {}", &body[..end + 3]))
            .unwrap_or_else(|e| panic!("{out}: {e}"));
    }
}
