//! Modules on their way into the kernel, each on a thread of its own: the probe of a driver may take minutes or never end, and
//! a driver that crashes takes its thread with it, without a word to who waits for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use landfall_api::ModuleName;
use nix::unistd::{Pid, gettid};

/// How often a thread that loads a module is looked at.
const TICK: Duration = Duration::from_millis(100);
/// Bytes of a thread's name that the kernel keeps (`TASK_COMM_LEN`, include/linux/sched.h, less the zero).
const NAME: usize = 15;

/// The agent loads drivers for one machine, from its first moment on, and what became of them is asked far from there.
static LOADS: Mutex<BTreeMap<ModuleName, Load>> = Mutex::new(BTreeMap::new());
static CHANGED: Condvar = Condvar::new();

/// What became of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The kernel has not answered yet.
    Loading,
    /// It is loaded; `new`: now, and not earlier.
    Loaded { new: bool },
    /// The kernel refused it, and why.
    Refused(String),
    /// It crashed the thread that loaded it (a kernel oops). The kernel keeps it half loaded until the next boot.
    Crashed,
}

/// For what a module is loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Purpose {
    /// A device of the machine, and not a name that something asks for.
    pub(super) device: bool,
    /// Disks may be behind the device.
    pub(super) disks: bool,
}

struct Load {
    state: State,
    /// Once it runs.
    thread: Option<Pid>,
    /// The thread's.
    name: String,
    purpose: Purpose,
}

/// Loads a module with `insert`, which answers whether it is new, and waits for it, at most for `patience`: the state then. What it
/// `needs` and is still being loaded, its own thread awaits first.
/// The kernel gets a module again only if it refused it: one that crashed would hold every later caller for ever.
pub(super) fn load(
    module: &ModuleName, purpose: Purpose, needs: &[ModuleName], patience: Duration,
    insert: impl FnOnce() -> io::Result<bool> + Send + 'static,
) -> State {
    let begun = Instant::now();
    let known = {
        let mut loads = loads();
        let known = loads.get_mut(module).map(Load::now);
        if matches!(known, None | Some(State::Refused(_))) {
            let purpose = loads.get(module).map_or(purpose, |load| load.purpose);
            let name = thread_name(module);
            loads.insert(module.clone(), Load { state: State::Loading, thread: None, name, purpose });
        }
        known
    };
    serves(module, purpose);
    match known {
        Some(State::Loaded { .. }) => return State::Loaded { new: false },
        Some(State::Loading | State::Crashed) => {}
        None | Some(State::Refused(_)) => {
            let (name, of, needs) = (thread_name(module), module.clone(), needs.to_vec());
            if let Err(e) = thread::Builder::new().name(name).spawn(move || run(&of, &needs, begun, patience, insert)) {
                set(module, State::Refused(format!("no thread could be started for it: {e}")));
            }
        }
    }
    wait(module, begun + patience)
}

/// The state of a module once it is no more [`State::Loading`], or at `end`.
fn wait(module: &ModuleName, end: Instant) -> State {
    let mut loads = loads();
    loop {
        let state = loads.get_mut(module).map_or(State::Loading, Load::now);
        let left = end.saturating_duration_since(Instant::now());
        if state != State::Loading || left.is_zero() {
            return state;
        }
        loads = CHANGED.wait_timeout(loads, left.min(TICK)).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// The thread of one module.
fn run(
    module: &ModuleName, needs: &[ModuleName], begun: Instant, patience: Duration,
    insert: impl FnOnce() -> io::Result<bool>,
) {
    if let Some(load) = loads().get_mut(module) {
        load.thread = Some(gettid());
    }
    // The kernel waits for them too, but refuses this one after 30 s (`resolve_symbol_wait` in kernel/module/main.c).
    for need in needs {
        while state(need) == Some(State::Loading) {
            wait(need, Instant::now() + Duration::from_secs(60));
        }
    }
    let state = match insert() {
        Ok(new) => State::Loaded { new },
        Err(e) => State::Refused(missing(needs).unwrap_or_else(|| e.to_string())),
    };
    if begun.elapsed() > patience {
        let took = begun.elapsed().as_secs();
        match &state {
            State::Refused(why) => tracing::warn!("cannot load driver {} after {took} s: {why}", module.as_str()),
            _ => tracing::info!("driver {} is loaded after {took} s", module.as_str()),
        }
    }
    set(module, state);
}

/// What is missing of what a module needs. The kernel says of it that a symbol is missing.
fn missing(needs: &[ModuleName]) -> Option<String> {
    needs.iter().find_map(|need| match state(need)? {
        State::Refused(why) => Some(format!("it needs {}: {why}", need.as_str())),
        State::Crashed => Some(format!("it needs {}, which crashed", need.as_str())),
        State::Loaded { .. } | State::Loading => None,
    })
}

/// A module serves this purpose too.
pub(super) fn serves(module: &ModuleName, purpose: Purpose) {
    if let Some(load) = loads().get_mut(module) {
        load.purpose.device |= purpose.device;
        load.purpose.disks |= purpose.disks;
    }
}

/// What became of a module; `None` of one that was never to be loaded.
pub(super) fn state(module: &ModuleName) -> Option<State> {
    loads().get_mut(module).map(Load::now)
}

/// What may hide disks, for people: drivers that are being loaded, and those that crashed.
pub(crate) fn hiding_disks() -> Vec<String> {
    let mut loads = loads();
    let for_disks = loads.iter_mut().filter(|(_, load)| load.purpose.disks);
    let sentences = for_disks.filter_map(|(module, load)| match load.now() {
        State::Loading => Some(format!("driver {} is being loaded", module.as_str())),
        State::Crashed => Some(format!("driver {} crashed while it was loaded", module.as_str())),
        State::Loaded { .. } | State::Refused(_) => None,
    });
    sentences.collect()
}

/// Whether the kernel has yet to answer for a module with a purpose like this.
pub(super) fn is_busy(with: impl Fn(Purpose) -> bool) -> bool {
    loads().values_mut().any(|load| with(load.purpose) && load.now() == State::Loading)
}

impl Load {
    /// The state, after a look at the thread. Under the lock that the thread takes before it ends: one that has gone and left no
    /// state was ended by the kernel.
    fn now(&mut self) -> State {
        let tasks = Path::new("/proc/self/task");
        if let (State::Loading, Some(thread)) = (&self.state, self.thread)
            && tasks.exists()
            // Another thread may have the number by now, and has another name.
            && !fs::read_to_string(tasks.join(thread.to_string()).join("comm")).is_ok_and(|name| name.trim_end() == self.name)
        {
            self.state = State::Crashed;
        }
        self.state.clone()
    }
}

fn thread_name(module: &ModuleName) -> String {
    format!("load {}", module.as_str()).chars().take(NAME).collect()
}

fn loads() -> MutexGuard<'static, BTreeMap<ModuleName, Load>> {
    // Every critical section leaves the map whole, so a poisoned lock is still good.
    LOADS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(module: &ModuleName, state: State) {
    if let Some(load) = loads().get_mut(module) {
        load.state = state;
    }
    CHANGED.notify_all();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const NONE: Purpose = Purpose { device: false, disks: false };
    const DISKS: Purpose = Purpose { device: true, disks: true };

    fn never() -> io::Result<bool> {
        panic!("the kernel gets it again")
    }

    #[test]
    fn what_became_of_a_module_is_known() {
        let module = ModuleName::new;
        assert_eq!(state(&module("never")), None);
        assert_eq!(load(&module("new"), NONE, &[], LONG, || Ok(true)), State::Loaded { new: true });
        assert_eq!(load(&module("new"), NONE, &[], LONG, never), State::Loaded { new: false });
        assert_eq!(load(&module("there"), NONE, &[], LONG, || Ok(false)), State::Loaded { new: false });
        let refused = || Err(io::Error::other("ENOEXEC"));
        assert_eq!(load(&module("refused"), DISKS, &[], LONG, refused), State::Refused("ENOEXEC".into()));
        let dependent = load(&module("dependent"), NONE, &[module("new"), module("refused")], LONG, refused);
        assert_eq!(dependent, State::Refused("it needs refused: ENOEXEC".into()));
        assert_eq!(load(&module("refused"), DISKS, &[], LONG, || Ok(true)), State::Loaded { new: true }, "once more");
        assert!(!hiding_disks().iter().any(|driver| driver.contains("refused")));
    }

    #[test]
    fn a_slow_driver_is_waited_for_with_patience_alone() {
        let (end, ends) = mpsc::channel::<()>();
        let (slow, dependent) = (ModuleName::new("slow"), ModuleName::new("on_slow"));
        let probe = move || ends.recv().map(|()| true).map_err(io::Error::other);
        assert_eq!(load(&slow, Purpose { device: true, disks: false }, &[], Duration::ZERO, probe), State::Loading);
        let says = "driver slow is being loaded".to_owned();
        assert!(is_busy(|purpose| purpose.device) && !hiding_disks().contains(&says));
        // First for a port, then for a disk.
        assert_eq!(load(&slow, DISKS, &[], Duration::ZERO, never), State::Loading);
        assert!(is_busy(|purpose| purpose.disks) && hiding_disks().contains(&says));
        let came_first = slow.clone();
        let after = move || {
            assert!(matches!(state(&came_first), Some(State::Loaded { .. })), "it was not awaited");
            Ok(true)
        };
        assert_eq!(load(&dependent, DISKS, std::slice::from_ref(&slow), Duration::ZERO, after), State::Loading);
        end.send(()).unwrap();
        assert_eq!(load(&dependent, DISKS, &[], LONG, never), State::Loaded { new: true });
        assert_eq!(load(&slow, DISKS, &[], LONG, never), State::Loaded { new: false });
    }

    #[test]
    fn a_driver_that_takes_its_thread_with_it_has_crashed() {
        let crashed = ModuleName::new("crashed");
        // A panic ends the thread as an oops of the kernel does: nothing says what became of the module.
        assert_eq!(load(&crashed, DISKS, &[], LONG, || panic!("as expected")), State::Crashed);
        assert!(hiding_disks().contains(&"driver crashed crashed while it was loaded".to_owned()));
        assert_eq!(load(&crashed, NONE, &[], LONG, never), State::Crashed);
        let refused = || Err(io::Error::other("ENOENT"));
        let dependent = load(&ModuleName::new("on_crashed"), NONE, &[crashed], LONG, refused);
        assert_eq!(dependent, State::Refused("it needs crashed, which crashed".into()));
    }
}
