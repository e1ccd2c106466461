//! `landfall watch`: one line a machine, redrawn in place on a terminal, printed at each change elsewhere.

use std::{collections::BTreeMap, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use landfall_api::Kind;

use crate::{
    args::Watch,
    client::Client,
    failure::Failure,
    live::{self, Fleet, Line, News},
    output::{self, Out},
    table,
};

pub(crate) async fn run(args: &Watch, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let mut feed = live::feed(client, &[Kind::Machine, Kind::Workflow]);
    let mut fleet = Fleet::default();
    let mut display = Display::new(out, args.machines.clone(), None);
    // Counts the seconds of what goes on without news.
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
                    if let News::All(kind, _) = &news && !kinds.contains(kind) {
                        kinds.push(*kind);
                    }
                    fleet.take(news);
                }
                None => return Ok(()),
            },
            _ = tick.tick() => {}
        }
        // Before both have come a machine would be shown without its run.
        if kinds.len() == 2 {
            display.show(&fleet, out)?;
        }
    }
}

/// Where lines go.
pub(crate) struct Display {
    machines: Vec<String>,
    run: Option<String>,
    screen: Option<Screen>,
    printed: BTreeMap<String, Line>,
    told_lost: bool,
}

struct Screen {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
}

impl Display {
    /// Shows these machines, or all; `run` in place of a machine's newest.
    pub(crate) fn new(out: &Out, machines: Vec<String>, run: Option<String>) -> Self {
        let target = ProgressDrawTarget::stdout_with_hz(10);
        let screen = (out.is_terminal() && !target.is_hidden())
            .then(|| Screen { all: MultiProgress::with_draw_target(target), bars: Vec::new() });
        Self { machines, run, screen, printed: BTreeMap::new(), told_lost: false }
    }

    pub(crate) fn show(&mut self, fleet: &Fleet, out: &mut Out) -> Result<(), Failure> {
        let lines = fleet.lines(&self.machines, self.run.as_deref(), Timestamp::now());
        match &mut self.screen {
            Some(screen) => screen.draw(&lines, out),
            None => self.print(lines, out)?,
        }
        Ok(())
    }

    fn print(&mut self, lines: Vec<Line>, out: &mut Out) -> Result<(), Failure> {
        let new: Vec<Line> = lines
            .into_iter()
            .filter(|line| self.printed.get(&line.name).is_none_or(|last| last.milestone() != line.milestone()))
            .collect();
        let clock = Timestamp::now().strftime("%H:%M:%S").to_string();
        for (line, text) in new.iter().zip(live::columns(&new)) {
            out.line(&format!("{clock}  {text}"))?;
            self.printed.insert(line.name.clone(), line.clone());
            self.told_lost = false;
        }
        Ok(())
    }

    /// Says once that the connection is lost; on a terminal above the lines.
    pub(crate) fn lost(&mut self, failure: &Failure, wait: Duration) {
        if std::mem::replace(&mut self.told_lost, true) {
            return;
        }
        let text = format!("{failure}; trying again, first in {:.1} s", wait.as_secs_f64());
        match &self.screen {
            // A terminal that is gone shows nothing anyhow.
            Some(screen) => drop(screen.all.println(text)),
            None => output::to_stderr(&text),
        }
    }

    /// Leaves the terminal as it is, with the lines as they were last.
    pub(crate) fn clear(&mut self) {
        if let Some(screen) = self.screen.take() {
            screen.bars.iter().for_each(ProgressBar::abandon);
        }
    }
}

impl Screen {
    fn draw(&mut self, lines: &[Line], out: &Out) {
        let none = [String::from("No machines yet; landfall apply -f FILE describes some.")];
        let texts = live::columns(lines);
        let texts: &[String] = if lines.is_empty() { &none } else { &texts };
        while self.bars.len() > texts.len() {
            if let Some(bar) = self.bars.pop() {
                self.all.remove(&bar);
            }
        }
        while self.bars.len() < texts.len() {
            let bar = self.all.add(ProgressBar::new_spinner());
            // "{wide_msg}" cuts a line at the terminal's width, so that redrawing never smears.
            bar.set_style(
                ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            self.bars.push(bar);
        }
        for (i, (bar, text)) in self.bars.iter().zip(texts).enumerate() {
            let phase = lines.get(i).map(|l| l.phase.as_str()).unwrap_or_default();
            let coloured = match text.find(phase) {
                Some(at) if !phase.is_empty() => {
                    let (before, after) = (&text[..at], &text[at + phase.len()..]);
                    format!("{before}{}{after}", out.paint(phase, table::colour(phase)))
                }
                _ => text.clone(),
            };
            bar.set_message(coloured);
        }
    }
}
