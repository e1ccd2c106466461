//! Compiles the wire contracts with protox, so that no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    // First the one that uses the other's messages: what it leaves of the other's file is made anew.
    let worker = protox::compile(["landfall/worker/v1/worker.proto"], ["proto"])?;
    let agent = protox::compile(["landfall/agent/v1/agent.proto"], ["proto"])?;
    let with_others = tonic_prost_build::configure().extern_path(".landfall.agent.v1", "crate::v1");
    with_others.build_client(false).build_server(false).compile_fds(worker)?;
    let with_small_buffers = tonic_prost_build::configure().codec_path("crate::codec::SmallCodec");
    with_small_buffers.build_transport(false).compile_fds(agent)?;
    Ok(())
}
