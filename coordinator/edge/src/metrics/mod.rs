//! What is counted, for `GET /metrics` in Prometheus' text form.
//!
//! The counters are the process's, like those under `/proc`, and so are one static: threading a handle to them through
//! every service would couple all of them for the sake of a number. Labels come from sets fixed in the code (phases,
//! kinds, codes), never from a machine's name: ten thousand machines make no more series than one.
//!
//! Written by hand: counters, histograms and their text form are two hundred lines, and need no registry.

mod number;
pub mod process;

pub use number::{Counter, Family, Gauge, Held, Histogram, Samples, escaped, head, sample};

/// Seconds, of what should take milliseconds.
const SHORT: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Seconds, of what takes up to hours.
const LONG: &[f64] = &[0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0];
/// How many at once.
const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $field:ident: $kind:ty = $new:expr, $name:literal;)+) => {
        /// Everything that is counted as it happens.
        #[derive(Debug)]
        pub struct Metrics { $($(#[doc = $help])+ pub $field: $kind,)+ }
        impl Metrics {
            const fn new() -> Self {
                Self { $($field: $new,)+ }
            }
            /// All of them, as text.
            pub fn write(&self, out: &mut String) {
                $(
                    number::head(out, $name, <$kind as Samples>::TYPE, concat!($($help),+));
                    self.$field.write($name, "", out);
                )+
            }
        }
    };
}

metrics! {
    /// Agents connected now.
    sessions: Gauge = Gauge::new(), "landfall_sessions";
    /// Sessions that were accepted.
    sessions_opened: Counter = Counter::new(), "landfall_sessions_opened_total";
    /// What was refused: where, and by which error code.
    refusals: Family<Counter> = Family::new(Counter::new), "landfall_refusals_total";
    /// Events of agents made durable.
    events_stored: Counter = Counter::new(), "landfall_events_stored_total";
    /// From the arrival of an event to its acknowledgement, durable by then.
    ack_seconds: Histogram = Histogram::new(SHORT), "landfall_event_ack_seconds";
    /// Attempts at actions, from their start as the coordinator learnt of it to their end, by kind and outcome.
    action_seconds: Family<Histogram> = Family::new(|| Histogram::new(LONG)), "landfall_action_seconds";
    /// Stages of image writes, as the agents' progress tells them.
    stage_seconds: Family<Histogram> = Family::new(|| Histogram::new(LONG)), "landfall_write_stage_seconds";
    /// Bytes of stored images taken in by writes that succeeded.
    image_stored_bytes: Counter = Counter::new(), "landfall_image_stored_bytes_total";
    /// Bytes put on disks by writes that succeeded.
    image_written_bytes: Counter = Counter::new(), "landfall_image_written_bytes_total";
    /// Log lines dropped because a workflow logged too fast.
    log_lines_left_out: Counter = Counter::new(), "landfall_log_lines_left_out_total";
    /// Progress that a newer one replaced before anybody saw it.
    progress_thinned: Counter = Counter::new(), "landfall_progress_thinned_total";
    /// Telemetry streams closed because they would not let up.
    telemetry_streams_closed: Counter = Counter::new(), "landfall_telemetry_streams_closed_total";
    /// Operations in one transaction of the store.
    commit_operations: Histogram = Histogram::new(SIZES), "landfall_store_commit_operations";
    /// One transaction of the store, flushed to the disk.
    commit_seconds: Histogram = Histogram::new(SHORT), "landfall_store_commit_seconds";
    /// Transactions that the database refused.
    commit_failures: Counter = Counter::new(), "landfall_store_commit_failures_total";
    /// DHCP answers, by kind.
    dhcp_answers: Family<Counter> = Family::new(Counter::new), "landfall_dhcp_answers_total";
    /// DHCP packets that got no answer.
    dhcp_unanswered: Counter = Counter::new(), "landfall_dhcp_unanswered_total";
    /// Requests that name another DHCP server, while this one is meant to be the only one.
    dhcp_other_server: Counter = Counter::new(), "landfall_dhcp_other_server_total";
    /// TFTP transfers, by how they ended.
    tftp_transfers: Family<Counter> = Family::new(Counter::new), "landfall_tftp_transfers_total";
    /// Plain HTTP requests of machines, by status.
    boot_requests: Family<Counter> = Family::new(Counter::new), "landfall_boot_http_requests_total";
    /// Bytes sent to machines over plain HTTP.
    boot_bytes: Counter = Counter::new(), "landfall_boot_http_bytes_total";
    /// Requests of the operators' API, by status.
    api_requests: Family<Counter> = Family::new(Counter::new), "landfall_api_requests_total";
    /// Until a request of the operators' API had its answer's head.
    api_seconds: Histogram = Histogram::new(SHORT), "landfall_api_request_seconds";
    /// Files in the directory of manifests, by whether all of their documents stand in the store.
    manifest_files: Family<Gauge> = Family::new(Gauge::new), "landfall_manifest_files";
    /// Faults in the manifests at the last look.
    manifest_problems: Gauge = Gauge::new(), "landfall_manifest_problems";
    /// Unix time of the last look at deadlines and silent agents.
    ticked: Gauge = Gauge::new(), "landfall_last_tick_timestamp_seconds";
    /// Whether this coordinator leads: 1. Of several with one database one does.
    active: Gauge = Gauge::new(), "landfall_active";
    /// Unix time of the last look at the manifests.
    manifest_scanned: Gauge = Gauge::new(), "landfall_manifest_last_scan_timestamp_seconds";
}

static METRICS: Metrics = Metrics::new();

/// The process's counters.
pub fn metrics() -> &'static Metrics {
    &METRICS
}

/// Counts something refused: `at` is the door (`session`, `enroll`, `api`).
pub fn refused(at: &str, code: landfall_api::ErrorCode) {
    metrics().refusals.of(&[("at", at), ("code", code.as_str())]).add(1);
}
