//! s: a machine whose hardware clock shows 1970 or 2099 installs, and has the right time afterwards.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use landfall_lab::Firmware;

use super::Context;
use super::scene::{BOOT, Scene};

/// What it shows, and what the agent says of it before it has asked its coordinator.
const SHOWS: [(&str, Option<&str>); 2] =
    [("1970-01-01T00:00:00", Some("before this agent was built")), ("2099-12-31T23:00:00", None)];

pub(super) async fn far_off(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    scene.template(&scene.image_url()).await?;
    for (at, (shows, says)) in SHOWS.into_iter().enumerate() {
        let builder = scene.ordinary(&format!("m{at}")).firmware(Firmware::Bios).clock(shows);
        let mut machine = scene.described(builder).await?;
        // It succeeds when the installed system phones home, over TLS.
        let (_, power_on) = scene.install(&mut machine).await?;
        if let Some(says) = says {
            machine.wait_serial(power_on, says, BOOT).await?;
        }
        machine.wait_serial(power_on, "hardware clock set to", BOOT).await?;
        let before = now()?;
        let [year, month, day, hour] = machine.qmp().context("the machine is off")?.hardware_clock().await?;
        let after = now()?;
        let date = jiff::civil::date(year.try_into()?, month.try_into()?, day.try_into()?);
        let shown = date.at(hour.try_into()?, 0, 0, 0).to_zoned(jiff::tz::TimeZone::UTC)?.timestamp().as_second();
        let hour_of = |second: i64| second - second.rem_euclid(3600);
        ensure!(
            (hour_of(before)..=after).contains(&shown),
            "the hardware clock began with {shows} and shows {shown} s since 1970; now is {before} to {after}"
        );
        machine.power_cut().await;
    }
    Ok(())
}

/// Seconds since 1970.
fn now() -> anyhow::Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().try_into()?)
}
