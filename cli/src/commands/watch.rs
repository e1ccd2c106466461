//! `landfall watch`: one line per machine, redrawn in place on a terminal, printed at each change elsewhere.

use std::{collections::BTreeMap, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use landfall_api::{Document, Kind};
use landfall_client::{Client, Scope};

use crate::args::Watch;
use crate::failure::Failure;
use crate::live::{Fleet, Line, News, Shown};
use crate::output::Out;
use crate::text::Text;
use crate::{live, output, table};

pub(crate) async fn run(args: &Watch, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let mut feed = live::feed(
        client,
        vec![Scope::of(Kind::Machine, args.labels.selector.as_ref()), Scope::of(Kind::Workflow, None)],
    );
    let mut fleet = Fleet::default();
    let shown = if args.machines.is_empty() { Shown::All } else { Shown::Machines(args.machines.clone()) };
    let mut display = Display::new(out, shown);
    // Updates elapsed times while there are no news.
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut kinds = Vec::new();
    loop {
        tokio::select! {
            news = feed.recv() => match news {
                Some(News::Ended(failure)) => {
                    display.clear();
                    return Err(failure);
                }
                Some(News::Lost(failure, wait)) => display.lost(&failure, wait),
                Some(news) => {
                    if let News::All(Scope { kind, .. }, documents, _) = &news && !kinds.contains(kind) {
                        kinds.push(*kind);
                        if *kind == Kind::Machine {
                            all_there(&args.machines, documents)?;
                        }
                    }
                    fleet.take(news);
                }
                None => return Ok(()),
            },
            _ = tick.tick() => {}
        }
        // Before both lists have arrived, a machine would appear without its workflow.
        if kinds.len() == 2 {
            display.show(&fleet, out)?;
        }
    }
}

/// Refuses names without a machine: the command would never show anything for them.
fn all_there(machines: &[String], documents: &[Document]) -> Result<(), Failure> {
    let there: Vec<&str> = documents.iter().map(|d| d.metadata().name.as_str()).collect();
    match machines.iter().find(|name| !there.contains(&name.as_str())) {
        Some(name) => Err(Failure::missing(Kind::Machine, name, &there, "")),
        None => Ok(()),
    }
}

/// Where lines go.
pub(crate) struct Display {
    shown: Shown,
    screen: Option<Screen>,
    printed: BTreeMap<String, Line>,
    told_lost: bool,
}

struct Screen {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
}

impl Display {
    pub(crate) fn new(out: &Out, shown: Shown) -> Self {
        let target = ProgressDrawTarget::stdout_with_hz(10);
        let screen = (out.is_terminal() && !target.is_hidden())
            .then(|| Screen { all: MultiProgress::with_draw_target(target), bars: Vec::new() });
        Self { shown, screen, printed: BTreeMap::new(), told_lost: false }
    }

    /// Shows one machine and workflow more, where workflows are shown.
    pub(crate) fn add(&mut self, machine: &str, run: &str) {
        if let Shown::Runs(runs) = &mut self.shown {
            runs.insert(machine.to_owned(), run.to_owned());
        }
    }

    /// Prints above the lines that are redrawn in place.
    pub(crate) fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.screen {
            Some(screen) => screen.all.suspend(print),
            None => print(),
        }
    }

    pub(crate) fn show(&mut self, fleet: &Fleet, out: &mut Out) -> Result<(), Failure> {
        let lines = fleet.lines(&self.shown, Timestamp::now());
        match &mut self.screen {
            Some(screen) => screen.draw(&lines, &self.shown, out),
            None => self.print(lines, out)?,
        }
        Ok(())
    }

    fn print(&mut self, lines: Vec<Line>, out: &mut Out) -> Result<(), Failure> {
        let gone = self.gone(&lines);
        let new: Vec<Line> = lines
            .into_iter()
            .filter(|line| self.printed.get(&line.name).is_none_or(|last| last.milestone() != line.milestone()))
            .collect();
        let clock = Timestamp::now().strftime("%H:%M:%S").to_string();
        for name in gone {
            out.line(&format!("{clock}  {name}  is gone"))?;
        }
        for (line, text) in new.iter().zip(live::columns(&new)) {
            out.line(&format!("{clock}  {text}"))?;
            self.printed.insert(line.name.clone(), line.clone());
            self.told_lost = false;
        }
        Ok(())
    }

    /// Machines with a line in the last output and none now.
    fn gone(&mut self, lines: &[Line]) -> Vec<String> {
        let there = |name: &String| lines.iter().any(|line| line.name == *name);
        let gone: Vec<String> = self.printed.keys().filter(|name| !there(name)).cloned().collect();
        self.printed.retain(|name, _| !gone.contains(name));
        gone
    }

    /// Prints once that the connection is lost; on a terminal above the lines.
    pub(crate) fn lost(&mut self, failure: &Failure, wait: Duration) {
        if std::mem::replace(&mut self.told_lost, true) {
            return;
        }
        let text = format!("{failure}; the command reconnects, first attempt in {:.1} s", wait.as_secs_f64());
        match &self.screen {
            // If the terminal is gone, the output does not matter.
            Some(screen) => drop(screen.all.println(Text::from(text).as_str())),
            None => output::to_stderr(&text),
        }
    }

    /// Leaves the last lines on the terminal.
    pub(crate) fn clear(&mut self) {
        if let Some(screen) = self.screen.take() {
            screen.bars.iter().for_each(ProgressBar::abandon);
        }
    }
}

/// The lines of a fleet that does not fit on the terminal.
const LEAST_ROWS: usize = 4;

impl Screen {
    fn draw(&mut self, lines: &[Line], wanted: &Shown, out: &Out) {
        let room = usize::from(console::Term::stdout().size().0).saturating_sub(2).max(LEAST_ROWS);
        let shown = live::foremost(lines, room);
        let texts = live::columns(&shown);
        let mut rows: Vec<(Text, Option<u64>)> =
            shown.iter().zip(texts).map(|(line, text)| (painted(line, text, out), line.percent)).collect();
        if lines.is_empty() {
            let said = match wanted {
                Shown::All => Some("No machines yet; describe them with landfall apply -f FILE.".to_owned()),
                Shown::Machines(names) => Some(format!("{}: gone", names.join(", "))),
                Shown::Runs(_) => None,
            };
            rows.extend(said.map(|said| (said.into(), None)));
        }
        if shown.len() < lines.len() {
            let more = lines.len() - shown.len();
            rows.push((format!("… and {more} more: landfall get machines lists them all").into(), None));
        }
        // Without any bar, no column is reserved for bars.
        let barred = rows.iter().any(|(_, percent)| percent.is_some());
        while self.bars.len() > rows.len() {
            if let Some(bar) = self.bars.pop() {
                self.all.remove(&bar);
            }
        }
        while self.bars.len() < rows.len() {
            self.bars.push(self.all.add(ProgressBar::new(100)));
        }
        for (bar, (text, percent)) in self.bars.iter().zip(rows) {
            bar.set_style(style(percent.is_some(), barred));
            bar.set_position(percent.unwrap_or(0));
            bar.set_message(text.as_str().to_owned());
        }
    }
}

/// `{wide_msg}` cuts a line at the terminal's width, so that redrawing never smears.
fn style(bar: bool, barred: bool) -> ProgressStyle {
    let template = match (bar, barred) {
        (true, _) => "{bar:16} {wide_msg}",
        (false, true) => "                 {wide_msg}",
        (false, false) => "{wide_msg}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("━╸─")
}

fn painted(line: &Line, text: String, out: &Out) -> Text {
    match text.find(&line.phase) {
        Some(at) if !line.phase.is_empty() => {
            let (before, rest) = text.split_at(at);
            let after = rest.strip_prefix(line.phase.as_str()).unwrap_or_default();
            Text::from(before).then(out.paint(&line.phase, table::colour(&line.phase))).then(after)
        }
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_gone_is_reported_once() {
        let mut display = Display::new(&Out::plain(), Shown::All);
        let line = |name: &str| Line { name: name.into(), ..Line::default() };
        for name in ["a", "b"] {
            display.printed.insert(name.into(), line(name));
        }
        assert_eq!(display.gone(&[line("b"), line("c")]), ["a"]);
        assert!(display.gone(&[line("b"), line("c")]).is_empty());
    }
}
