//! Compiles the wire contract with protox, so that no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["landfall/agent/v1/agent.proto"], ["proto"])?;
    tonic_prost_build::configure().build_transport(false).compile_fds(files)?;
    Ok(())
}
