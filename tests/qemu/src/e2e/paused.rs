//! A server whose download stands still, so that a test can act in mid-write.

use landfall_lab::faulty::Notice;
use landfall_lab::{FaultyHttp, FileFault};

use super::scene::Scene;

/// A server that sends the image up to one of its bytes and waits there until its faults are set anew.
pub(super) struct Paused {
    pub(super) server: FaultyHttp,
    /// The image's URL there.
    pub(super) url: String,
    /// What the server says when it waits.
    pub(super) waits: Notice,
}

impl Paused {
    /// At the image's middle.
    pub(super) async fn midway(scene: &Scene) -> anyhow::Result<Self> {
        Self::at(scene, scene.image().stored_bytes / 2).await
    }

    pub(super) async fn at(scene: &Scene, at: u64) -> anyhow::Result<Self> {
        let (mut server, file) = (scene.faulty().await?, scene.image().file_name());
        server.set([(file.clone(), FileFault { pause_at: Some(at), ..FileFault::default() })]).await?;
        Ok(Self { url: server.url(&file), waits: Notice::Paused { file, at }, server })
    }
}
