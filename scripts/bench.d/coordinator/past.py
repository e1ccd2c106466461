#!/usr/bin/env python3
"""scripts/bench coordinator --past: a coordinator that starts with many past workflows, and what its lists and metrics cost then.

The rows go straight into its database: a person cannot ask for a workflow that ended long ago.
"""

import argparse
import http.client
import json
import os
import pathlib
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

API = "/apis/landfall.dev/v1alpha1"
START_LIMIT = 300
LOOKS = 5
PAGE = 500
# Seconds, milliseconds and milliseconds, on two processors.
TARGETS = {"start, s": 5, "/metrics, ms": 20, "get machines, ms": 300}


class Local(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def site(at):
    for file in ("vmlinuz", "initramfs", "images/os.raw.zst"):
        (at / file).parent.mkdir(exist_ok=True)
        (at / file).write_bytes(b"never written to a disk")
    (at / "coordinator.toml").write_text(
        f'data_dir = "{at}/data"\nadvertise = "127.0.0.1"\n[http]\nlisten = "127.0.0.1:{port()}"\n'
        f'[tls]\nlisten = "127.0.0.1:{port()}"\n[tftp]\nenabled = false\n'
        f'[boot]\nkernel = "{at}/vmlinuz"\ninitramfs = "{at}/initramfs"\nimages = "{at}/images"\n'
    )


class Coordinator:
    """Started, and ready when this returns."""

    def __init__(self, program, at):
        begun = time.monotonic()
        self.api = Local(at / "data/api.sock")
        with open(at / "log", "a") as log:
            self.process = subprocess.Popen([program, "--config", at / "coordinator.toml"], stderr=log)
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > begun + START_LIMIT:
                sys.exit("it is not ready; the end of its log:\n" + "\n".join((at / "log").read_text().splitlines()[-20:]))
            time.sleep(0.01)
        self.seconds = time.monotonic() - begun

    def ready(self):
        try:
            return self.get("/readyz", check=False)[0] == 200
        except OSError:
            self.api.close()
            return False

    def get(self, path, check=True):
        self.api.request("GET", path)
        answer = self.api.getresponse()
        body = answer.read()
        if check and answer.status != 200:
            sys.exit(f"GET {path}: {answer.status} {body[:300]!r}")
        return answer.status, body

    def resident(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) >> 10

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def document(kind, name, version, spec, status):
    metadata = {"name": name, "uid": str(uuid.uuid4()), "generation": 1, "resourceVersion": version,
                "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": "landfall.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec, "status": status}


def condition(kind, status, reason, message):
    return {"type": kind, "status": status, "reason": reason, "message": message, "since": "2026-01-01T00:10:00Z",
            "observedGeneration": 1}


def machine(number, version, newest):
    mac = "02:00:4c:{:02x}:{:02x}:{:02x}".format(*number.to_bytes(3))
    conditions = [condition("Managed", "True", "Managed", "it is installed on request"),
                  condition("Maintenance", "False", "NotRequested", ""),
                  condition("Connected", "False", "Disconnected", "the agent closed the connection"),
                  condition("Progressing", "False", "Succeeded", "the last workflow succeeded"),
                  condition("Provisioned", "True", "PhonedHome", "the installed system phoned home")]
    status = {"phase": "Provisioned", "conditions": conditions, "receipts": [], "enrolment": {}, "workflow": newest,
              "epoch": 20, "lastHeard": "2026-01-01T00:10:00Z"}
    return document("Machine", f"node-{number}", version, {"identity": {"macs": [mac]}}, status)


def workflow(name, on, version, ticket):
    image = {"url": "http://10.0.0.1:7480/images/os.raw.zst", "digest": "sha256:" + "0a" * 32}
    done = {"state": "Succeeded", "attempt": 1, "failures": 0, "startedAt": "2026-01-01T00:00:10Z",
            "endedAt": "2026-01-01T00:05:00Z", "deadline": "2026-01-01T01:00:00Z"}
    actions = [{"action": {"name": "write", "writeImage": {"image": image}}, **done},
               {"action": {"name": "seed", "cloudInit": {"hostname": on}}, **done},
               {"action": {"name": "restart", "reboot": {}}, **done}]
    conditions = [condition("Admitted", "True", "Started", "it has begun"),
                  condition("Progressing", "False", "Succeeded", "done"), condition("Paused", "False", "NotPaused", ""),
                  condition("Stuck", "False", "Ended", ""), condition("Silent", "False", "NoAgent", ""),
                  condition("Slow", "False", "NoAgent", "")]
    status = {"phase": "Succeeded", "conditions": conditions, "actions": actions, "machineGeneration": 1,
              "expectedReceipts": [], "ticket": ticket, "startedAt": "2026-01-01T00:00:10Z",
              "rebootedAt": "2026-01-01T00:06:00Z", "phonedHomeAt": "2026-01-01T00:10:00Z",
              "endedAt": "2026-01-01T00:10:00Z", "epoch": 1, "applied": ticket * 9}
    spec = {"machine": on, "template": "os", "authority": {"person": "ann", "at": "2026-01-01T00:00:00Z"}}
    return document("Workflow", name, version, spec, status)


def fill(database, machines, past):
    rows, version = [], 0
    for number in range(1, machines + 1):
        names = [f"node-{number}-{n:05x}" for n in range(past)]
        for n, name in enumerate(names):
            version += 1
            rows.append(workflow(name, f"node-{number}", version, number * past + n))
        version += 1
        rows.append(machine(number, version, names[-1] if names else None))
    with sqlite3.connect(database) as connection:
        insert = "INSERT INTO documents (kind, name, json) VALUES (?, ?, ?)"
        text = ((row["kind"], row["metadata"]["name"], json.dumps(row, separators=(",", ":"))) for row in rows)
        connection.executemany(insert, text)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'revision'", [version])
    connection.close()


def took(work):
    begun = time.monotonic()
    work()
    return (time.monotonic() - begun) * 1000


def machines_by_page(coordinator):
    path, count = f"{API}/machines?limit={PAGE}", 0
    step = path
    while step:
        _, body = coordinator.get(step)
        listed = json.loads(body)
        count += len(listed["items"])
        token = listed["metadata"].get("continue")
        step = f"{path}&continue={token}" if token else None
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--past", type=int, required=True)
    parser.add_argument("--report")
    # Of the other measurement: here every document is the same each time.
    parser.add_argument("--seed", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="landfall-past-") as at:
        at = pathlib.Path(at)
        site(at)
        Coordinator(arguments.program, at).stop()
        print(f"{arguments.agents} machines with {arguments.past} past workflows each", file=sys.stderr)
        fill(at / "data/landfall.db", arguments.agents, arguments.past)
        size = os.stat(at / "data/landfall.db").st_size >> 20
        coordinator = Coordinator(arguments.program, at)
        found = {"start, s": coordinator.seconds}
        found["/metrics, ms"] = statistics.median(took(lambda: coordinator.get("/metrics")) for _ in range(LOOKS))
        first = f"{API}/machines?limit={PAGE}"
        found[f"first page of {PAGE} machines, ms"] = statistics.median(took(lambda: coordinator.get(first)) for _ in range(LOOKS))
        found["get machines, ms"] = statistics.median(took(lambda: machines_by_page(coordinator)) for _ in range(LOOKS))
        if machines_by_page(coordinator) != arguments.agents:
            sys.exit("the pages do not have every machine")
        found["database, MiB"], found["resident, MiB"] = size, coordinator.resident()
        coordinator.stop()
    for name, value in found.items():
        wanted = TARGETS.get(name)
        word = "" if wanted is None else "met" if value <= wanted else "MISSED"
        print(f"{name:34}{value:>12.1f}  {word}{'' if wanted is None else f' (wanted {wanted})'}")
    if arguments.report:
        pathlib.Path(arguments.report).write_text(json.dumps(found))


main()
