//! Running a program to its end, with what it prints in the log as it comes.

use std::collections::VecDeque;
use std::io;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};

use landfall_api::{ErrorCode, Problem, SecretText};

use crate::{Failure, Reporter};

/// The last lines of a program's output that go into its failure.
const LAST_LINES: usize = 40;
/// The longest line that is shown whole, bytes.
const LONGEST: usize = 4096;

/// Runs it; `name` is what people call it, and `input` its standard input. `each` gets each line that it prints, on whichever
/// output; blanks at a line's ends are gone.
///
/// # Errors
/// It cannot be started, or its exit code is not 0.
pub(crate) fn run(
    report: &Reporter, name: &str, command: &mut Command, input: Option<&SecretText>, missing: &str,
    each: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let named = |said: String| Problem::new(ErrorCode::ProgramFailed, said).at(name);
    let cannot = |error: io::Error| Failure::last(named(format!("cannot run {name}: {error}")).hint(missing));
    let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    report.info(format_args!("{name} {}", arguments.join(" ")));
    let (output, write) = io::pipe().map_err(cannot)?;
    let errors = write.try_clone().map_err(cannot)?;
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() }).stdout(write).stderr(errors);
    let mut child = command.spawn().map_err(cannot)?;
    // This process' ends of the pipe: the output has an end when the program's are closed.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        // A program that ends without reading it says why itself. The pipe closes here: the input has an end.
        let _ = pipe.write_all(input.expose().as_bytes());
    }
    let mut last = VecDeque::new();
    let mut output = BufReader::new(output);
    while let Some(line) = line(&mut output).map_err(cannot)? {
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if line.is_empty() {
            continue;
        }
        report.info(format_args!("{name}: {line}"));
        each(&line);
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    let status = child.wait().map_err(cannot)?;
    if status.success() {
        return Ok(());
    }
    let mut problem =
        named(format!("{name} failed with {status}: {}", last.back().map_or("no output", String::as_str)));
    problem.last_log_lines = last.into();
    Err(Failure::last(problem.hint("the log has what it said before")))
}

/// The next line, without its end; of a longer one the first [`LONGEST`] bytes, and the rest is never in memory.
fn line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let (mut line, mut any) = (Vec::new(), false);
    loop {
        let buffer = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if buffer.is_empty() {
            return Ok(any.then_some(line));
        }
        any = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let piece = end.unwrap_or(buffer.len());
        line.extend(buffer.iter().take(piece.min(LONGEST - line.len())));
        input.consume(end.map_or(piece, |end| end + 1));
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: Option<&str>) -> Result<(), Failure> {
        let input = input.map(SecretText::new);
        let mut shell = Command::new("sh");
        run(&Reporter::new(io::sink()), "sh", shell.args(["-c", script]), input.as_ref(), "install it", &mut |_| {})
    }

    #[test]
    fn each_line_of_both_outputs_is_handed_on() {
        let mut lines = Vec::new();
        let mut shell = Command::new("sh");
        let script = "echo '  one  '; echo; echo two >&2; echo three";
        let each = &mut |line: &str| lines.push(line.to_owned());
        run(&Reporter::new(io::sink()), "sh", shell.args(["-c", script]), None, "install it", each).unwrap();
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[test]
    fn an_endless_line_is_never_in_memory() {
        use std::io::Read as _;
        let endless = io::repeat(b'x').take(64 << 20).chain(&b"\n\nnext\nlast"[..]);
        let mut input = BufReader::new(endless);
        let first = line(&mut input).unwrap().unwrap();
        assert_eq!((first.len(), first.capacity() < 2 * LONGEST), (LONGEST, true));
        let rest = std::iter::from_fn(|| line(&mut input).unwrap()).collect::<Vec<_>>();
        assert_eq!(rest, [&b""[..], b"next", b"last"]);
    }

    #[test]
    fn a_failure_has_the_exit_code_and_the_last_lines() {
        shell("read a; test \"$a\" = geheim", Some("geheim\n")).unwrap();
        let script = "i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done; echo worst >&2; exit 3";
        let Failure { problem, retryable } = shell(script, None).unwrap_err();
        assert!(!retryable && problem.message.contains("exit status: 3: worst"), "{problem}");
        assert_eq!((problem.last_log_lines.len(), problem.last_log_lines[0].as_str()), (LAST_LINES, "line 11"));
        let mut absent = Command::new("/nosuch");
        let absent = run(&Reporter::new(io::sink()), "nosuch", &mut absent, None, "install it", &mut |_| {});
        let problem = absent.unwrap_err().problem;
        assert!(problem.message.starts_with("cannot run nosuch") && problem.hint == "install it", "{problem}");
    }
}
