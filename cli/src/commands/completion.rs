//! `landfall completion`: a small script for the shell. It gets all candidates from `landfall __complete`, so that a
//! newer command needs no newer script.

use crate::args::{Completion, Shell};
use crate::failure::Failure;
use crate::output::Out;

/// The script passes all words, the last one incomplete; it gets one candidate per line, with a description after a
/// tab, or `:files` if a file is expected.
const BASH: &str = r#"# landfall completion for bash
_landfall() {
    local IFS=$'\n' lines
    lines=($(landfall __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [[ ${lines[0]-} == :files ]]; then
        compopt -o default -o filenames 2>/dev/null
        COMPREPLY=()
        return
    fi
    COMPREPLY=("${lines[@]%%$'\t'*}")
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _landfall landfall"#;

const ZSH: &str = r#"#compdef landfall
# landfall completion for zsh
_landfall() {
    local -a lines offered
    local line
    lines=("${(@f)$(landfall __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ ${lines[1]} == :files ]]; then
        _files
        return
    fi
    for line in $lines; do
        offered+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    _describe landfall offered
}
if [[ $funcstack[1] == _landfall ]]; then
    _landfall "$@"
else
    compdef _landfall landfall
fi"#;

const FISH: &str = r"# landfall completion for fish
function __landfall_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l lines (landfall __complete -- $words[2..-1] 2>/dev/null)
    if test (count $lines) -gt 0; and test $lines[1] = :files
        __fish_complete_path (commandline -ct)
        return
    end
    printf '%s\n' $lines
end
complete -c landfall -f -a '(__landfall_complete)'";

pub(crate) fn run(args: &Completion, out: &mut Out) -> Result<(), Failure> {
    out.line(match args.shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    })?;
    Ok(())
}
