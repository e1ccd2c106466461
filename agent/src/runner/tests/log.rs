//! Lines of the log go to the session under the attempt that they belong to.

use super::*;

#[tokio::test(start_paused = true)]
async fn lines_are_sent_only_while_an_attempt_runs() {
    let mut scene = play(&[1], (0, 1), vec![Act::Hang]);
    let _logging = tracing::subscriber::set_default(tracing_subscriber::registry().with(scene.tail.clone()));
    tracing::info!("before");
    scene.begun.wait_for(|n| *n == 1).await.unwrap();
    tracing::info!("meanwhile");
    scene.stop.send_replace(Some(Stop::Cancelled("x".into())));
    assert!(matches!(scene.task.await.unwrap(), Outcome::Stopped(_)));
    tracing::info!("after");
    let reports = scene.reports.all();
    let has = |text: &str| reports.iter().any(|line| line == text);
    assert!(has("0.1 logged meanwhile"), "{reports:?}");
    assert!(!has("0.1 logged before") && !has("0.1 logged after"), "{reports:?}");
}
