//! Log lines to standard error, and a filter that can be changed while they are written.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How a line looks.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The filter in force.
pub(crate) struct Logs {
    replace: Box<dyn Fn(EnvFilter) -> bool + Send>,
    /// RUST_LOG says which lines, and goes before the configuration.
    by_environment: bool,
}

impl Logs {
    /// Goes by another filter from now on; `false` if RUST_LOG stands in the way, or the filter does not read.
    pub(crate) fn filter(&self, filter: &str) -> bool {
        !self.by_environment && EnvFilter::try_new(filter).is_ok_and(|filter| (self.replace)(filter))
    }
}

/// Starts logging. `filter` is the configuration's, which was checked.
pub(crate) fn start(format: LogFormat, filter: &str) -> Logs {
    let environment = EnvFilter::try_from_default_env().ok();
    let by_environment = environment.is_some();
    let filter = environment.unwrap_or_else(|| EnvFilter::new(filter));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let replace: Box<dyn Fn(EnvFilter) -> bool + Send> = match format {
        LogFormat::Text => {
            let logs = logs.with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |filter| handle.reload(filter).is_ok())
        }
        LogFormat::Json => {
            let logs = logs.json().with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |filter| handle.reload(filter).is_ok())
        }
    };
    Logs { replace, by_environment }
}
