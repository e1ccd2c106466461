#!/usr/bin/env python3
"""Runs one command line and appends what it took to a file of JSON lines.

    measure.py --out FILE --group G --name N --kind K --round R [--timeout S] [--served LOG] [--attach REPORT] COMMAND

Wall seconds are from start to the end of the last process of the pipeline; CPU seconds are user + system of the whole
process tree (its kernel threads' and the server's are in `otherCpuSeconds`, together with whatever else the machine
did); peak RSS is that of the largest single process of the tree. With --served, the body bytes the server
logged meanwhile. With --attach, the JSON that the command itself wrote there, if it did.

No process is told as smaller than this program itself (some 14 MiB): the kernel counts what was there before exec.

Exits 0 also if the command failed: a peer that cannot do a thing is a result. The sample then says how.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")


def machine_cpu():
    """CPU seconds of the whole machine since boot: user, nice, system, irq, softirq."""
    with open("/proc/stat") as stat:
        fields = [int(field) for field in stat.readline().split()[1:]]
    return (sum(fields[0:3]) + sum(fields[5:7])) / TICK


def served_bytes(log):
    """Sum of the numbers in the server's log, one a line."""
    with open(log) as lines:
        return sum(int(line) for line in lines if line.strip())


class Stopped(Exception):
    """A signal that ends the command came; its number."""


def stopped(number, _frame):
    raise Stopped(number)


def main():
    parser = argparse.ArgumentParser()
    for name in ("out", "group", "name", "kind"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--round", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=900)
    parser.add_argument("--served")
    parser.add_argument("--attach")
    parser.add_argument("command")
    arguments = parser.parse_args()

    if arguments.served:
        open(arguments.served, "w").close()
    if arguments.attach and os.path.exists(arguments.attach):
        os.remove(arguments.attach)
    complaints = tempfile.TemporaryFile()
    # Of children that whatever started this program (such as a shim for python3) had before its exec.
    earlier = resource.getrusage(resource.RUSAGE_CHILDREN)
    others = machine_cpu()
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, stopped)
    signal.signal(signal.SIGINT, stopped)
    signal.signal(signal.SIGALRM, stopped)
    child = None
    over = False
    try:
        # A session of its own, so that a whole pipeline can be ended at once.
        child = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", arguments.command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaints, start_new_session=True,
        )
        signal.setitimer(signal.ITIMER_REAL, arguments.timeout)
        status = child.wait()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Stopped as reason:
        if child is None:
            sys.exit(143)
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended by itself meanwhile
        status = child.wait()
        if reason.args[0] != signal.SIGALRM:
            sys.exit(143)
        over = True
    wall = time.monotonic() - begun

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = usage.ru_utime - earlier.ru_utime, usage.ru_stime - earlier.ru_stime
    cpu = user + system
    sample = {
        "group": arguments.group,
        "name": arguments.name,
        "kind": arguments.kind,
        "command": arguments.command,
        "round": arguments.round,
        "ok": status == 0,
        "wallSeconds": round(wall, 4),
        "userSeconds": round(user, 4),
        "systemSeconds": round(system, 4),
        "cpuSeconds": round(cpu, 4),
        "otherCpuSeconds": round(max(0, machine_cpu() - others - cpu), 2),
        "peakRssBytes": usage.ru_maxrss * 1024,
    }
    if arguments.served:
        sample["servedBytes"] = served_bytes(arguments.served)
    if arguments.attach and os.path.exists(arguments.attach):
        try:
            with open(arguments.attach) as report:
                sample["report"] = json.load(report)
        except ValueError as error:
            sample["report"] = f"not JSON: {error}"
    if status != 0:
        complaints.seek(max(0, os.fstat(complaints.fileno()).st_size - 2000))
        tail = complaints.read().decode(errors="replace").strip()
        sample["failure"] = f"exit status {status}{' (over the time limit)' if over else ''}: {tail}"
    with open(arguments.out, "a") as out:
        out.write(json.dumps(sample) + "\n")
    last = sample.get("failure", "").splitlines()
    print(f"{wall:8.3f} s  {cpu:7.2f} CPU s  {usage.ru_maxrss // 1024:5d} MiB" + (f"  FAILED: {last[-1][:160]}" if last else ""))


main()
