//! The numbers that are counted: counters, gauges, histograms, and the same by a few labels.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Label sets of one family; what comes after them is counted under the last. No label is ever per machine, so this is
/// only a fence against a fault here.
const MOST_LABELS: usize = 100;
/// Room for the buckets of any histogram.
const BUCKETS: usize = 16;

/// Something that can be written as samples of one metric.
pub trait Samples {
    /// `counter`, `gauge` or `histogram`.
    const TYPE: &'static str;
    /// Appends the samples; `labels` is empty or `a="b",c="d"`.
    fn write(&self, name: &str, labels: &str, out: &mut String);
}

/// One sample.
pub fn sample(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let written =
        if labels.is_empty() { writeln!(out, "{name} {value}") } else { writeln!(out, "{name}{{{labels}}} {value}") };
    // Writing to a String does not fail.
    written.unwrap_or_default();
}

/// The two lines before a metric's samples.
pub fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", help.trim()).unwrap_or_default();
}

/// Only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// At zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
    /// How many there have been.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Samples for Counter {
    const TYPE: &'static str = "counter";
    fn write(&self, name: &str, labels: &str, out: &mut String) {
        sample(out, name, labels, self.get());
    }
}

/// Rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// At zero.
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }
    /// Is this now.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }
    /// One more, until the guard is dropped.
    pub fn hold(&'static self) -> Held {
        self.0.fetch_add(1, Ordering::Relaxed);
        Held(self)
    }
    /// What it is.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Samples for Gauge {
    const TYPE: &'static str = "gauge";
    fn write(&self, name: &str, labels: &str, out: &mut String) {
        sample(out, name, labels, self.get());
    }
}

/// Counted as one by a [`Gauge`] until dropped.
#[derive(Debug)]
pub struct Held(&'static Gauge);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How often a value fell below each of some bounds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: [AtomicU64; BUCKETS],
    above: AtomicU64,
    /// In millionths: atomics have no fractions.
    sum: AtomicU64,
}

impl Histogram {
    /// With these upper bounds, rising; at most 16 count.
    pub const fn new(bounds: &'static [f64]) -> Self {
        let counts = [const { AtomicU64::new(0) }; BUCKETS];
        Self { bounds, counts, above: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }
    /// One more value; negative ones count as zero.
    pub fn observe(&self, value: f64) {
        let bucket = self.bounds.iter().zip(&self.counts).find(|(bound, _)| value <= **bound);
        bucket.map_or(&self.above, |(_, count)| count).fetch_add(1, Ordering::Relaxed);
        // A cast of a float saturates.
        self.sum.fetch_add((value.max(0.0) * 1e6) as u64, Ordering::Relaxed);
    }
    /// One more duration, in seconds.
    pub fn took(&self, duration: Duration) {
        self.observe(duration.as_secs_f64());
    }
    /// How many values there were.
    pub fn count(&self) -> u64 {
        let counts = self.counts.iter().take(self.bounds.len()).chain([&self.above]);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl Samples for Histogram {
    const TYPE: &'static str = "histogram";
    fn write(&self, name: &str, labels: &str, out: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        let bucket = format!("{name}_bucket");
        let mut total = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            total += count.load(Ordering::Relaxed);
            sample(out, &bucket, &format!("{labels}{comma}le=\"{bound}\""), total);
        }
        total += self.above.load(Ordering::Relaxed);
        sample(out, &bucket, &format!("{labels}{comma}le=\"+Inf\""), total);
        let sum = self.sum.load(Ordering::Relaxed) as f64 / 1e6;
        sample(out, &format!("{name}_sum"), labels, sum);
        sample(out, &format!("{name}_count"), labels, total);
    }
}

/// The same number for each of a few label sets.
#[derive(Debug)]
pub struct Family<T> {
    new: fn() -> T,
    of: Mutex<BTreeMap<String, Arc<T>>>,
}

impl<T> Family<T> {
    /// Empty; `new` makes the number of a label set met for the first time.
    pub const fn new(new: fn() -> T) -> Self {
        Self { new, of: Mutex::new(BTreeMap::new()) }
    }
    /// The number of these labels. Values must come from a set that is fixed in the code.
    pub fn of(&self, labels: &[(&str, &str)]) -> Arc<T> {
        let mut key = String::new();
        for (name, value) in labels {
            let comma = if key.is_empty() { "" } else { "," };
            write!(key, "{comma}{name}=\"{}\"", escaped(value)).unwrap_or_default();
        }
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if !of.contains_key(&key)
            && of.len() >= MOST_LABELS
            && let Some(last) = of.values().next_back()
        {
            return last.clone();
        }
        of.entry(key).or_insert_with(|| Arc::new((self.new)())).clone()
    }
}

impl<T: Samples> Samples for Family<T> {
    const TYPE: &'static str = T::TYPE;
    fn write(&self, name: &str, _: &str, out: &mut String) {
        for (labels, number) in &*self.of.lock().unwrap_or_else(PoisonError::into_inner) {
            number.write(name, labels, out);
        }
    }
}

/// A label's value as the text form wants it.
pub fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_values_in_all_higher_buckets() {
        let histogram = Histogram::new(&[0.1, 1.0, 10.0]);
        [0.05, 0.1, 0.5, 5.0, 50.0, -1.0].into_iter().for_each(|value| histogram.observe(value));
        let mut out = String::new();
        histogram.write("t", "kind=\"a\"", &mut out);
        assert_eq!(
            out,
            "t_bucket{kind=\"a\",le=\"0.1\"} 3\nt_bucket{kind=\"a\",le=\"1\"} 4\nt_bucket{kind=\"a\",le=\"10\"} 5\n\
             t_bucket{kind=\"a\",le=\"+Inf\"} 6\nt_sum{kind=\"a\"} 55.65\nt_count{kind=\"a\"} 6\n"
        );
        assert_eq!(histogram.count(), 6);
    }

    #[test]
    fn a_metric_family_is_bounded_and_escapes_its_labels() {
        let family = Family::new(Counter::new);
        for n in 0..10 * MOST_LABELS {
            family.of(&[("n", &n.to_string())]).add(1);
        }
        let mut out = String::new();
        family.write("f", "", &mut out);
        assert_eq!(out.lines().count(), MOST_LABELS);
        let family = Family::new(Counter::new);
        family.of(&[("a", "x\"y\\z\n"), ("b", "")]).add(2);
        let mut out = String::new();
        family.write("f", "", &mut out);
        assert_eq!(out, "f{a=\"x\\\"y\\\\z\\n\",b=\"\"} 2\n");
    }

    #[test]
    fn a_held_gauge_falls_when_the_guard_goes() {
        static GAUGE: Gauge = Gauge::new();
        let held = [GAUGE.hold(), GAUGE.hold()];
        assert_eq!(GAUGE.get(), 2);
        drop(held);
        assert_eq!(GAUGE.get(), 0);
    }
}
