# What the report says of the machine, the tools and the inputs: NUL-separated key=value.
# shellcheck shell=bash

# fact KEY VALUE
fact() { printf '%s=%s\0' "$1" "$2" >>"$FACTS"; }

# first_line COMMAND...: of what it prints, on either stream; its exit status is no matter.
first_line() { { "$@" 2>&1 || true; } | awk 'NF && !seen { print; seen = 1 }'; }

machine_facts() {
    fact machine.kernel "$(uname -srm)"
    fact machine.processor "$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)"
    fact machine.cores "$(nproc)"
    fact machine.sha-ni "$(grep -qw sha_ni /proc/cpuinfo && echo yes || echo no)"
    fact machine.memory-mib "$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)"
    fact machine.load-before "$(cut -d' ' -f1-3 /proc/loadavg)"
    fact machine.file-system "$(stat -f -c %T "$BENCH")"
    fact tool.landfall-agent "$(first_line "$LANDFALL_AGENT" --version)"
    fact tool.landfall-agent.sha256 "$(sha256sum <"$LANDFALL_AGENT" | cut -d' ' -f1)"
    fact tool.commit "$(git -C "$LANDFALL_ROOT" rev-parse --short HEAD 2>/dev/null || echo none)"
    fact tool.coreos-installer "$(first_line "$(coreos_installer)" --version)"
    local name
    for name in nginx-light curl zstd xz-utils libdeflate-tools isal bmap-tools qemu-utils openssl coreutils udev; do
        fact "tool.$name" "$(dpkg-query -W -f '${Version}' "$name" 2>/dev/null || echo none)"
    done
}

# input_facts GROUP FILE RAW_BYTES
input_facts() {
    fact "input.$1.stored-bytes" "$(stat -c %s "$2")"
    fact "input.$1.raw-bytes" "$3"
    fact "input.$1.window-bytes" "$("$HERE/window.py" "$2")"
}
