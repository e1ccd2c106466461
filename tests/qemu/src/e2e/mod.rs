//! The end-to-end tests: each a real boot, asserting on the machine's disk and console as well as on the API.

mod arm64;
mod bonded;
mod boot_order;
mod boot_own_disk;
mod broken_image;
mod by_bmc;
mod by_proxy;
mod clock;
mod configured;
mod crash_order;
mod cut_after_commit;
mod debian_roots;
mod disk_buses;
mod exec;
mod failing_disk;
mod fault_matrix;
mod followed;
mod four_kn;
mod grown;
mod hanging_disk;
mod health;
mod http_boot;
mod identity;
mod imported;
mod inside;
mod install;
mod interrupted;
mod kept;
mod kexec;
mod late_disk;
mod late_ports;
mod layout;
mod many_disks;
mod matrix;
mod medium;
mod oci_root;
mod one_btrfs;
mod own_initramfs;
mod pair;
mod passed;
mod paused;
mod pooled;
mod power_loss;
mod proxy_dhcp;
mod raw;
mod relayed;
mod restored;
mod says;
mod scene;
mod second_disk;
mod secure_boot;
mod selectors;
mod small_memory;
mod still_kvm;
mod three_ports;
mod tools;
mod twins;
mod undriven;
mod unpacked;
mod usb;
mod whole_image;
mod wiped;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use landfall_lab::artefacts::Artefacts;
use landfall_lab::{Accel, CPUINFO, DiskBus, Firmware, Medium, choose_accel};

use self::by_bmc::Lie;
use self::late_ports::Fault;
use self::matrix::Way;
use self::own_initramfs::Maker;

/// No test may take longer, even if its own waits allow more.
const TEST_LIMIT: Duration = Duration::from_secs(12 * 60);
/// What the small set may take in all, on a machine like CI's (two processors, no KVM): a new test retires another or goes
/// into the full set.
const SMALL_SET: Duration = Duration::from_secs(15 * 60);
/// Lines of each log shown when a test fails.
const TAIL: usize = 30;

/// What every test gets.
#[derive(Clone)]
pub(crate) struct Context {
    artefacts: Arc<Artefacts>,
    accel: Accel,
    /// The operator's program.
    cli: PathBuf,
    /// This program, for its subcommands.
    program: PathBuf,
    /// The test's own directory.
    dir: PathBuf,
}

type Run = fn(Context) -> BoxFuture<'static, anyhow::Result<()>>;

/// One test: letter of the list, name, whether it is in the small set, and what it does.
struct Test {
    letter: &'static str,
    name: &'static str,
    small: bool,
    run: Run,
}

impl Test {
    /// Its folder among the logs: short, since the paths of sockets are.
    fn folder(&self) -> String {
        format!("{}-{}", self.letter, &self.name[..self.name.len().min(24)])
    }

    /// Whether a person asks for it: by its letter, or as `z.luks` by letter and a part of its name.
    fn is_meant(&self, asked: &str) -> bool {
        let (letter, part) = asked.split_once('.').unwrap_or((asked, ""));
        self.letter == letter && self.name.contains(part)
    }
}

macro_rules! tests {
    ($($letter:literal $name:ident $set:ident $run:expr;)+) => {
        &[$(Test {
            letter: $letter,
            name: stringify!($name),
            small: matches!(stringify!($set).as_bytes(), b"small"),
            run: |context| Box::pin($run(context)),
        }),+]
    };
}

const TESTS: &[Test] = tests! {
    "a" uefi_install_to_phone_home small |c| install::to_phone_home(c, Firmware::Uefi);
    "b" bios_install_to_phone_home small |c| install::to_phone_home(c, Firmware::Bios);
    "b" the_demo_survives_a_kvm_that_stands_still small still_kvm::demo;
    "c" uefi_proxy_dhcp_beside_dnsmasq full |c| proxy_dhcp::beside_dnsmasq(c, Firmware::Uefi);
    "c" uefi_two_coordinators_answer_by_proxy_dhcp full |c| proxy_dhcp::two_coordinators(c, Firmware::Uefi);
    "c" bios_proxy_dhcp_beside_dnsmasq full |c| proxy_dhcp::beside_dnsmasq(c, Firmware::Bios);
    "c" bios_a_proxy_leads_to_the_coordinator_until_phone_home full by_proxy::to_phone_home;
    "c" uefi_http_boot_starts_the_kernel_itself small |c| http_boot::to_phone_home(c, http_boot::Gives::Uki);
    "c" uefi_http_boot_starts_ipxe full |c| http_boot::to_phone_home(c, http_boot::Gives::Ipxe);
    "c" uefi_netboots_over_ipv6_alone_by_pxe_and_by_http full http_boot::over_ipv6;
    "c" arm64_firmware_boots_from_http_and_from_a_cd full arm64::by_http_and_cd;
    "c" bios_a_vlan_on_a_bond_reaches_the_coordinator full bonded::over_a_switch;
    "c" uefi_a_firmware_that_tags_netboots full bonded::by_tagging_firmware;
    "c" uefi_a_virtual_cd_installs_a_machine_that_a_rule_approves small |c| medium::installs(c, Firmware::Uefi, Medium::Cd);
    "c" uefi_a_usb_stick_installs_a_machine_that_a_rule_approves full |c| medium::installs(c, Firmware::Uefi, Medium::Usb);
    "c" bios_a_virtual_cd_installs_a_machine_that_a_rule_approves full |c| medium::installs(c, Firmware::Bios, Medium::Cd);
    "c" bios_a_usb_stick_installs_a_machine_that_a_rule_approves full |c| medium::installs(c, Firmware::Bios, Medium::Usb);
    "c" bios_a_virtual_cd_waits_for_its_machines_workflow full medium::waits_for_a_workflow;
    "c" bios_a_machine_without_dhcp_installs_from_a_cd full medium::with_a_static_address;
    "c" uefi_a_signed_stick_alone_passes_secure_boot full secure_boot::from_a_usb_stick;
    "c" uefi_a_signed_image_over_http_passes_secure_boot full secure_boot::over_http;
    "c" uefi_shim_starts_what_the_machine_owners_key_signed full secure_boot::by_way_of_shim;
    "c" uefi_the_agent_enrols_keys_of_secure_boot full secure_boot::enrolled_by_the_agent;
    "d" uefi_second_power_on_boots_own_disk full |c| boot_own_disk::second_power_on(c, Firmware::Uefi);
    "d" bios_second_power_on_boots_own_disk full |c| boot_own_disk::second_power_on(c, Firmware::Bios);
    "e" image_cut_in_half_fails_with_reason_and_a_mended_one_installs small broken_image::cut_in_half;
    "f" uefi_another_coordinator_takes_over_in_mid_write full interrupted::coordinator_taken_over;
    "f" coordinator_killed_in_mid_write_and_the_install_completes full interrupted::coordinator_killed;
    "g" power_cut_in_mid_write_and_the_install_completes small interrupted::power_cut;
    "g" disk_names_that_change_move_no_begun_write full interrupted::disk_names_change;
    "g" a_disk_that_starts_early_ends_no_open_action full interrupted::disk_starts_early;
    "h" a_selector_that_matches_two_disks_touches_neither full selectors::two_disks;
    "h" a_rule_changes_no_system_of_another full kept::from_a_rule;
    "h" two_paths_to_one_disk_are_refused full usb::two_paths;
    "i" power_cut_after_the_commit_installs_nothing_again small cut_after_commit::before_the_ack;
    "j" the_second_of_two_machines_with_one_identity_is_refused small twins::one_identity;
    "k" every_state_a_power_cut_can_leave_is_old_unbootable_or_new full crash_order::replayed;
    "l" bios_one_machine_with_a_disk_on_every_bus small |c| disk_buses::every_bus(c, Firmware::Bios, false);
    "l" uefi_a_disk_of_every_bus_boots_alone full |c| disk_buses::every_bus(c, Firmware::Uefi, true);
    "l" disks_are_wiped_to_each_level_and_read_from_outside full wiped::to_each_level;
    "l" bios_a_failing_disk_makes_its_machine_unhealthy full health::of_every_part;
    "m" a_failing_disk_is_named_and_a_mended_one_installs small failing_disk::each_way;
    "m" every_fault_of_a_virtio_disk_ends_in_an_error_or_the_right_bytes full |c| fault_matrix::column(c, DiskBus::Virtio);
    "m" every_fault_of_an_nvme_disk_ends_in_an_error_or_the_right_bytes full |c| fault_matrix::column(c, DiskBus::Nvme);
    "n" a_person_follows_and_learns_why_a_workflow_failed small followed::as_it_happens;
    "o" a_machine_that_restarts_under_its_session_fences_its_older_self full interrupted::older_self_fenced;
    "o" a_hanging_kernel_is_restarted_by_the_watchdog_and_installs full interrupted::kernel_hung;
    "o" bios_a_hanging_agent_is_restarted_by_the_watchdog_and_installs full interrupted::agent_hung;
    "o" bios_the_screen_shows_the_write_and_the_keyboard_restarts_it full interrupted::restarted_at_the_keyboard;
    "o" bios_a_bmc_decides_when_a_machine_starts_and_from_where full |c| by_bmc::switches(c, Firmware::Bios);
    "o" uefi_a_bmc_decides_when_a_machine_starts_and_from_where full |c| by_bmc::switches(c, Firmware::Uefi);
    "o" bios_provision_switches_a_machine_on_through_its_bmc full |c| by_bmc::provisions(c, Firmware::Bios);
    "o" uefi_provision_switches_a_machine_on_through_its_bmc full |c| by_bmc::provisions(c, Firmware::Uefi);
    "o" bios_virtual_media_start_and_install_a_machine full |c| by_bmc::from_virtual_media(c, Firmware::Bios);
    "o" uefi_virtual_media_start_and_install_a_machine full |c| by_bmc::from_virtual_media(c, Firmware::Uefi);
    "o" bios_over_ipmi_provision_switches_a_machine_on small |c| by_bmc::over_ipmi(c, Firmware::Bios);
    "o" bios_the_agent_sets_the_account_that_reads_its_power full by_bmc::in_band;
    "o" bios_a_bmc_that_reverts_its_boot_device_is_found_out full |c| by_bmc::is_found_out(c, Lie::BootDevice);
    "o" bios_a_bmc_that_pretends_to_switch_on_is_found_out full |c| by_bmc::is_found_out(c, Lie::PowerOn);
    "o" bios_a_bmc_that_ignores_its_boot_device_is_found_out full |c| by_bmc::is_found_out(c, Lie::Start);
    "o" bios_a_bmc_that_dies_before_and_after_power_on full by_bmc::outages_end_well;
    "o" bios_a_pool_claims_replaces_releases_and_wipes_machines full pooled::of_three;
    "p" a_restored_store_installs_nothing_and_holds_the_machine small restored::installs_nothing;
    "q" uefi_the_installed_kernel_starts_without_the_firmware full |c| kexec::past_the_firmware(c, Firmware::Uefi);
    "q" bios_the_installed_kernel_starts_without_the_firmware full |c| kexec::past_the_firmware(c, Firmware::Bios);
    "r" the_coordinator_loses_power_and_nothing_it_acknowledged full power_loss::nothing_acknowledged_is_lost;
    "s" a_second_disk_plugged_in_late_is_never_overlooked small late_disk::plugged_in;
    "s" a_usb_disk_is_waited_for_and_chosen_only_by_name full usb::beside_an_empty_bay;
    "s" machines_of_1970_and_2099_install_and_have_the_time full clock::far_off;
    "s" bios_of_three_ports_the_one_that_leads_somewhere_wins full three_ports::one_good;
    "s" devices_without_a_driver_say_why full undriven::in_the_facts;
    "s" bios_pxe_in_a_matrix_of_machines full |c| matrix::rows(c, Way::BiosPxe);
    "s" uefi_pxe_in_a_matrix_of_machines full |c| matrix::rows(c, Way::UefiPxe);
    "s" uefi_http_in_a_matrix_of_machines full |c| matrix::rows(c, Way::UefiHttp);
    "s" bios_cd_in_a_matrix_of_machines full |c| matrix::rows(c, Way::Cd);
    "s" uefi_usb_in_a_matrix_of_machines full |c| matrix::rows(c, Way::Usb);
    "s" bios_one_of_thirty_disks_is_chosen_by_serial full |c| many_disks::one_of_thirty(c, Firmware::Bios, 12);
    "s" uefi_the_last_of_thirty_disks_is_chosen_by_serial full |c| many_disks::one_of_thirty(c, Firmware::Uefi, 29);
    "s" a_retry_or_a_wait_finds_a_disk_that_comes_late full late_disk::found_by_retry_and_wait;
    "s" a_pulled_cable_moves_a_write_to_another_port full |c| late_ports::take_over(c, Fault::Cable);
    "s" a_silent_network_moves_a_write_to_another_port full |c| late_ports::take_over(c, Fault::Silence);
    "s" bios_a_machine_behind_a_dhcp_relay_installs full relayed::by_a_router;
    "t" a_disk_that_hangs_delays_no_other full hanging_disk::beside_a_healthy_one;
    "u" bios_the_second_of_two_disks_boots full second_disk::boots;
    "u" bios_the_system_boots_before_data_of_its_list full second_disk::boots_beside_data;
    "u" uefi_the_disk_installed_last_boots full second_disk::boots_on_uefi;
    "u" uefi_the_boot_order_follows_each_policy full boot_order::by_each_policy;
    "v" uefi_a_4kn_disk_from_power_on_to_phone_home full four_kn::to_phone_home;
    "w" machines_of_256_and_192_mib_write_whole_images full small_memory::whole_images;
    "x" uefi_two_disks_with_one_btrfs_image_are_seeded_at_once full one_btrfs::seeded_at_once;
    "y" bios_debian_is_written_in_192_mib full small_memory::debian;
    "y" uefi_debian_on_xfs full |c| debian_roots::to_phone_home(c, Firmware::Uefi, debian_roots::Layout::Xfs);
    "y" bios_debian_on_btrfs_subvolumes full |c| debian_roots::to_phone_home(c, Firmware::Bios, debian_roots::Layout::Btrfs);
    "y" uefi_debian_with_a_separate_var full |c| debian_roots::to_phone_home(c, Firmware::Uefi, debian_roots::Layout::SeparateVar);
    "y" uefi_cloud_init_reads_each_kind_of_seed full configured::by_cloud_init;
    "y" bios_debians_ignition_reads_the_config full configured::by_ignition;
    "z" uefi_programs_run_inside_the_new_system_before_its_first_boot full exec::inside_the_new_system;
    "z" bios_the_worker_unpacks_into_the_new_system full unpacked::by_the_worker;
    "z" bios_a_root_tar_on_gpt_and_ext4_boots full |c| layout::from_a_root_tar(c, Firmware::Bios);
    "z" uefi_a_root_tar_on_gpt_and_ext4_boots full |c| layout::from_a_root_tar(c, Firmware::Uefi);
    "z" bios_a_root_on_lvm_and_xfs_boots full layout::xfs_on_lvm;
    "z" bios_a_layout_survives_a_power_cut_in_each_action full layout::cut_in_each_action;
    "z" uefi_a_luks_root_opens_with_its_secret_alone full layout::on_luks;
    "z" uefi_a_mirrored_lvm_root_boots_without_its_first_disk full layout::on_a_mirror;
    "z" whiteouts_remove_nothing_of_a_preserved_partition full kept::from_whiteouts;
    "z" bios_a_layout_is_wiped_and_an_image_written full layout::then_wiped_and_written;
    "z" uefi_an_oci_root_on_btrfs_starts_by_systemd_boot full oci_root::by_systemd_boot;
    "z" bios_an_imported_tinkerbell_template_installs full imported::from_tinkerbell;
    "z" uefi_an_imported_curtin_config_installs full imported::from_curtin;
    "z" a_root_tar_becomes_a_machine_without_cloud_init full identity::without_cloud_init;
    "c" bios_an_init_of_ones_own_starts_the_agent full own_initramfs::with_a_script;
    "c" bios_the_agent_in_a_container_installs full own_initramfs::in_a_container;
    "z" uefi_dracuts_initramfs_with_the_agent_installs full |c| own_initramfs::with_systemd(c, Maker::Dracut);
    "z" uefi_a_systemd_initramfs_of_packages_installs full |c| own_initramfs::with_systemd(c, Maker::Packages);
    "z" the_root_of_an_image_grows_to_the_end_of_its_disk full grown::to_the_end;
};

/// Which tests run, and how.
pub(crate) struct Choice<'a> {
    /// All, not the small set.
    pub(crate) full: bool,
    /// How many at once.
    pub(crate) jobs: usize,
    /// Only these; none means the set.
    pub(crate) letters: &'a [String],
    /// Names the tests that passed with these programs; each that passes is added.
    pub(crate) record: Option<&'a Path>,
    /// Leaves out what the record names.
    pub(crate) resume: bool,
}

/// Runs tests, prints a line for each, the minutes of each letter, and a closing line.
pub(crate) async fn run(artefacts: Artefacts, cli: &Path, logs: &Path, choice: Choice<'_>) -> anyhow::Result<ExitCode> {
    for letter in choice.letters {
        anyhow::ensure!(
            TESTS.iter().any(|test| test.is_meant(letter)),
            "there is no test \"{letter}\"; use a to z, or a letter, a dot and a part of the name"
        );
    }
    let passed_before = match choice.record {
        Some(record) if choice.resume => passed::read(record)?,
        _ => Vec::new(),
    };
    let (accel, why) = choose_accel(&artefacts.kernel, Path::new(CPUINFO), logs).await?;
    let artefacts = Arc::new(artefacts);
    let program = std::env::current_exe()?;
    println!("end-to-end tests under {}: {why}; logs in {}", accel.as_str(), logs.display());
    let chosen = TESTS.iter().filter(|test| match choice.letters {
        [] => choice.full || test.small,
        some => some.iter().any(|letter| test.is_meant(letter)),
    });
    let (before, chosen): (Vec<_>, Vec<_>) =
        chosen.partition(|test| passed_before.iter().any(|name| name == test.name));
    for test in &before {
        println!("skip {} {}  passed before with these programs", test.letter, test.name);
    }
    let begun = Instant::now();
    let runs = chosen.into_iter().map(|test| {
        let dir = logs.join(test.folder());
        let context =
            Context { artefacts: Arc::clone(&artefacts), accel, cli: cli.to_owned(), program: program.clone(), dir };
        one(test, context, choice.record)
    });
    let results: Vec<Outcome> = futures::stream::iter(runs).buffer_unordered(choice.jobs).collect().await;
    print_minutes(&results);
    if choice.letters.is_empty() && !choice.full && before.is_empty() {
        let verdict = if begun.elapsed() <= SMALL_SET { "" } else { ": too long, move a test into the full set" };
        println!("the small set took {} of at most {} minutes{verdict}", minutes(begun.elapsed()), minutes(SMALL_SET));
    }
    let passed = results.iter().filter(|outcome| outcome.passed).count();
    let failed = results.len() - passed;
    println!("end-to-end tests: {passed} passed, {failed} failed, {} passed before", before.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How a test ended.
struct Outcome {
    letter: &'static str,
    passed: bool,
    took: Duration,
}

/// A line for each letter: the minutes of its tests, one after another.
fn print_minutes(results: &[Outcome]) {
    let letters: BTreeSet<_> = results.iter().map(|outcome| outcome.letter).collect();
    println!("letter  minutes");
    for letter in letters {
        let took = results.iter().filter(|outcome| outcome.letter == letter).map(|outcome| outcome.took).sum();
        println!("{letter:<6} {:>8}", minutes(took));
    }
}

fn minutes(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() / 60.0)
}

async fn one(test: &Test, context: Context, record: Option<&Path>) -> Outcome {
    let dir = context.dir.clone();
    let begun = Instant::now();
    // On the runtime's own threads, so that tests do not delay one another.
    let result = match std::fs::create_dir_all(&dir) {
        Ok(()) => match tokio::time::timeout(TEST_LIMIT, (test.run)(context)).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("not done within {TEST_LIMIT:?}")),
        },
        Err(error) => Err(error.into()),
    };
    let took = begun.elapsed();
    let seconds = took.as_secs_f64();
    let passed = match result {
        Ok(()) => {
            println!("ok   {} {}  {seconds:.1}s", test.letter, test.name);
            remove_disks(&dir);
            if let Some(Err(error)) = record.map(|record| passed::add(record, test.name)) {
                // The test counts; a resumed run repeats it.
                tracing::warn!(%error, "cannot record that the test passed");
            }
            true
        }
        Err(error) => {
            println!("FAIL {} {}  {seconds:.1}s\n     {error:#}", test.letter, test.name);
            show_logs(&dir);
            false
        }
    };
    Outcome { letter: test.letter, passed, took }
}

/// The ends of every log below a directory.
fn show_logs(dir: &Path) {
    for path in files(dir).into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "log")) {
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        println!("     ---- the end of {}", path.display());
        for line in &lines[lines.len().saturating_sub(TAIL)..] {
            println!("     | {}", landfall_lab::printable(line));
        }
    }
}

/// Removes disks and images of a test that passed; its logs stay.
fn remove_disks(dir: &Path) {
    let large =
        |path: &PathBuf| path.extension().is_some_and(|e| ["raw", "writes", "zst"].iter().any(|large| e == *large));
    for path in files(dir).into_iter().filter(large) {
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove");
        }
    }
}

/// The files below a directory. A link is not followed: a test may have a root file system with links to anywhere.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_has_a_folder_of_its_own() {
        let folders: BTreeSet<String> = TESTS.iter().map(Test::folder).collect();
        assert_eq!(folders.len(), TESTS.len());
    }

    #[test]
    fn links_lead_to_no_file_of_a_test() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("disk.raw"), "").unwrap();
        std::os::unix::fs::symlink("/", below.join("loop")).unwrap();
        std::os::unix::fs::symlink(below.join("disk.raw"), below.join("link.raw")).unwrap();
        assert_eq!(files(dir.path()), [below.join("disk.raw")]);
    }
}
