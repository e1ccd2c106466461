# The disk that everybody writes to: a loop device with direct I/O over one file.
#
# The file lies on a real file system, not in memory: its device's flushes are real. With direct I/O the data goes past
# the page cache, so that no contestant is fast by leaving the work to the kernel's flusher.
# shellcheck shell=bash

# open_device BYTES PREALLOCATE: sets DEVICE and DEVICE_FILE.
open_device() {
    DEVICE_BYTES=$1 DEVICE_PREALLOCATED=$2
    DEVICE_FILE=$BENCH/device.img
    close_device
    rm -f "$DEVICE_FILE"
    truncate -s "$DEVICE_BYTES" "$DEVICE_FILE"
    DEVICE=$(losetup --find --show --direct-io=on --partscan "$DEVICE_FILE")
    [ "$(losetup -n -O DIO "$DEVICE" | tr -d ' ')" = 1 ] || die "$DEVICE has no direct I/O; is $BENCH on a file system without it?"
}

# close_device: also detaches what a killed benchmark left behind.
close_device() {
    local device
    [ -e "${DEVICE_FILE:-}" ] || return 0
    for device in $(losetup -n -O NAME -j "$DEVICE_FILE"); do
        # udevd may hold it a moment longer; detaching is then done when it lets go.
        losetup -d "$device" || true
    done
    rm -f "$DEVICE_FILE"
}

# wipe_device: the same state before every run: no data, no partitions, every block preallocated and unwritten.
#
# Discarding through the device punches the whole file and empties the device's page cache; allocating again takes the
# file system's allocator out of the timed window. A disk fresh from the factory or a secure erase looks the same.
# The machine's page cache stays: dropping it would make each run pay for loading its own program.
wipe_device() {
    local try
    udevadm settle --timeout=20 || true
    # It warns of the data it was asked to discard.
    blkdiscard -f "$DEVICE" 2>"$WORK/blkdiscard" || die "cannot wipe $DEVICE: $(<"$WORK/blkdiscard")"
    blockdev --flushbufs "$DEVICE"
    [ "$DEVICE_PREALLOCATED" = 0 ] || fallocate -l "$DEVICE_BYTES" "$DEVICE_FILE"
    for ((try = 0; try < 20; try++)); do
        # Busy while udevd looks at a partition.
        blockdev --rereadpt "$DEVICE" 2>/dev/null && break
        udevadm settle --timeout=5 || true
        sleep 0.1
    done
    sync "$DEVICE_FILE"
    udevadm settle --timeout=20 || true
}

# start_udevd: coreos-installer waits for udev's events; where no udevd runs (a container), one does for the benchmark.
start_udevd() {
    local try
    udevadm control --ping --timeout=2 2>/dev/null && return 0
    log "starting udevd for coreos-installer"
    /usr/lib/systemd/systemd-udevd >"$WORK/udevd.log" 2>&1 9>&- &
    undo "end_process $!"
    for ((try = 0; try < 50; try++)); do
        udevadm control --ping --timeout=1 2>/dev/null && return 0
        sleep 0.1
    done
    log "udevd does not answer; coreos-installer may fail: $(tail -1 "$WORK/udevd.log")"
}
