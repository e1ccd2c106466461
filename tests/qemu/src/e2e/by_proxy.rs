//! c: a machine with a proxy on its command line speaks to its coordinator by it, from enrolment to the installed system's phone-home.

use std::time::Duration;

use anyhow::ensure;
use landfall_lab::{CoordinatorOptions, Firmware, Log, Mark, Network, Process};

use super::Context;
use super::scene::{BOOT, INSTALL, Scene, require_installed};

/// The kernel's last word.
const RESTARTS: &str = "reboot: Restarting system";
/// A port that the site's proxies have.
const PORT: u16 = 3128;

/// Enrolment and session are two connections of the agent; the phone-home is one of the installed system.
pub(super) async fn to_phone_home(context: Context) -> anyhow::Result<()> {
    let network = Network::create()?;
    let neighbour = network.neighbour()?;
    let conf = context.dir.join("tinyproxy.conf");
    let only = "Allow 10.77.0.0/24\nConnectPort 7443\nLogLevel Info\nMaxClients 20\nTimeout 600";
    std::fs::write(&conf, format!("Port {PORT}\nListen {}\n{only}\n", Network::NEIGHBOUR))?;
    let mut command = neighbour.command("tinyproxy");
    command.arg("-d").arg("-c").arg(&conf);
    let mut proxy = Process::spawn("tinyproxy", command, Log::open(&context.dir.join("tinyproxy.log"))?)?;
    proxy.wait_stderr(Mark::default(), "Accepting connections", Duration::from_secs(10)).await?;

    let words = format!("landfall.proxy=http://{}:{PORT}", Network::NEIGHBOUR);
    let kernel_args = format!("{} {words}", landfall_lab::KERNEL_ARGS);
    let options = CoordinatorOptions { kernel_args, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, network, options).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(Firmware::Bios)).await?;
    scene.template(&scene.image_url()).await?;
    let asked = |since: Mark| {
        let line = format!("CONNECT {}:7443", Network::ADDRESS);
        proxy.stderr().lines_since(since).iter().filter(|said| said.text.contains(&line)).count()
    };
    let (workflow, power_on) = scene.begin(&mut machine).await?;
    machine.wait_serial(power_on, "enrolled as m1", BOOT).await?;
    ensure!(asked(Mark::default()) > 0, "the agent enrolled without the proxy");
    machine.wait_serial(power_on, RESTARTS, INSTALL).await?;
    ensure!(asked(Mark::default()) >= 2, "the agent's session went without the proxy");
    let before = proxy.stderr().mark();
    let workflow = scene.wait_end(&workflow, landfall_api::WorkflowPhase::Succeeded).await?;
    ensure!(asked(before) > 0, "the installed system phoned home without the proxy");
    require_installed(&machine, &workflow)
}
