#!/usr/bin/env python3
"""Makes the seeds of corpus/ anew. Seeds are committed; this says where they come from, and is run by hand when the layout of
a target's input changes. Needs nothing but Python."""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
MAC = bytes.fromhex("525400000001")


def seed(target, name, *parts):
    path = HERE / "corpus" / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(p.encode() if isinstance(p, str) else p for p in parts))


def sized(data):
    return struct.pack("<H", len(data)) + data


def text(words):
    return bytes([len(words)]) + words.encode()


def dhcp(kind, *options, mac=MAC, giaddr=b"\0" * 4, ciaddr=b"\0" * 4):
    head = bytes([1, 1, 6, 0]) + b"\0\0\0\7" + b"\0\0\x80\0" + ciaddr + b"\0" * 8 + giaddr + mac + b"\0" * 202
    body = b"".join(bytes([code, len(value)]) + value for code, value in ((53, bytes([kind])), *options))
    return head + bytes([99, 130, 83, 99]) + body + b"\xff"


PXE = (60, b"PXEClient:Arch:00007:UNDI:003016")
HTTP = (60, b"HTTPClient:Arch:00016")
ARCH = (93, b"\0\7")
OURS = (54, bytes([10, 77, 0, 1]))
WANTED = (50, bytes([10, 77, 0, 103]))
seed("dhcp", "pxe-proxy", b"\0", b"\0", sized(dhcp(1, PXE, ARCH)), b"\0", sized(dhcp(3, PXE, ARCH, OURS)))
seed("dhcp", "lease", b"\x12", b"\0", sized(dhcp(1, WANTED)), b"\0", sized(dhcp(3, WANTED, OURS)),
     b"\4", sized(dhcp(7, ciaddr=bytes([10, 77, 0, 103]))))
seed("dhcp", "strangers", b"\0", *(b"\1" + sized(dhcp(1, PXE, ARCH, mac=bytes([2, 0, 0, 0, 0, n]))) for n in range(8)))
seed("dhcp", "http-relayed", b"\1", b"\0", sized(dhcp(1, HTTP, (93, b"\0\x10"), (82, b"\1\2ab"), giaddr=bytes([10, 77, 0, 9]))))
seed("dhcp", "ipxe", b"\0", b"\0", sized(dhcp(1, (77, b"iPXE"), (97, b"\0" * 17), (61, b"\1" + MAC))))
seed("dhcp", "decline", b"\0", b"\0", sized(dhcp(1, WANTED)), b"\0", sized(dhcp(3, WANTED, OURS)), b"\0", sized(dhcp(4, WANTED, OURS)))



def dhcp_v6(kind, *options):
    return bytes([kind, 1, 2, 3]) + b"".join(option_v6(*one) for one in ((1, b"\0\4" + b"\7" * 16), *options))


def option_v6(code, value):
    return code.to_bytes(2, "big") + len(value).to_bytes(2, "big") + value


def word_v6(text):
    return len(text).to_bytes(2, "big") + text


NUMBER = b"\0\0\0\7" + b"\0" * 8
HTTP_V6 = (16, b"\0\0\1\x57" + word_v6(b"HTTPClient:Arch:00016:UNDI:003000"))
PXE_V6 = (16, b"\0\0\1\x57" + word_v6(b"PXEClient:Arch:00007:UNDI:003000"))
OURS_V6 = (2, bytes([0, 3, 0, 1, 2, 0, 0, 0, 0, 1]))
OLD_V6 = option_v6(5, bytes([0xfd, 0x77]) + b"\0" * 13 + b"\x09" + b"\0" * 8)
seed("dhcp_v6", "http", b"\x10", b"\0", sized(dhcp_v6(1, (3, NUMBER), (61, b"\0\x10"), HTTP_V6)), b"\0",
     sized(dhcp_v6(3, OURS_V6, (3, NUMBER), (61, b"\0\x10"), HTTP_V6)))
seed("dhcp_v6", "pxe", b"\x50", b"\0", sized(dhcp_v6(1, (3, NUMBER), (61, b"\0\7"), PXE_V6)))
seed("dhcp_v6", "ipxe", b"\0", b"\0", sized(dhcp_v6(1, (3, NUMBER), PXE_V6, (15, word_v6(b"iPXE")))))
seed("dhcp_v6", "renew", b"\xd0", b"\0", sized(dhcp_v6(5, OURS_V6, (3, NUMBER + OLD_V6))), b"\0", sized(dhcp_v6(4, (3, NUMBER + OLD_V6))),
     b"\0", sized(dhcp_v6(8, OURS_V6, (3, NUMBER + OLD_V6))))
seed("dhcp_v6", "strangers", b"\x10", b"\2", sized(dhcp_v6(1, (3, NUMBER), HTTP_V6)), b"\4", sized(dhcp_v6(1, (3, NUMBER))))
seed("dhcp_v6", "many", b"\x10", b"\0", sized(dhcp_v6(6, *((3, NUMBER + OLD_V6 * 9) for _ in range(9)))))
seed("dhcp_v6", "lengths", b"\x10", b"\0", sized(b"\1\0\0\1" + b"\0\1\0\2ab" + b"\0\x10\0\1a" + b"\0\3\xff\xff"))

seed("tftp", "plain", b"\0\1undionly.kpxe\0octet\0")
seed("tftp", "options", b"\0\1snponly.efi\0octet\0tsize\x000\0blksize\x001468\0timeout\x003\0windowsize\x004\0")
seed("tftp", "ack", b"\0\4\0\1")
seed("tftp", "error", b"\0\5\0\0gone\0")

seed("boot_script", "run", "mac=52:54:00:00:00:01&uuid=11111111-2222-3333-4444-555555555555&platform=efi&chip=SNP")
seed("boot_script", "own", "mac=52:54:00:00:00:01&uuid=11111111-2222-3333-4444-555555555555&platform=pcbios&chip=82540em")
seed("boot_script", "line", "mac=02:00:00:00:00:01&uuid=%0Ashell&platform=efi&chip=e1000")
seed("boot_script", "unknown", "mac=0a:00:00:00:00:02")

seed("boot_routes", "kernel", b"\0", text("/boot/kernel"), b"\0", text("bytes=0-9"))
seed("boot_routes", "image", b"\1", text("/images/debian/disk.img"), b"\1", text('"x"'))
seed("boot_routes", "outside", b"\0", text("/images/..%2f..%2fetc/passwd"))
seed("boot_routes", "metadata", b"\0", text("/metadata/latest/meta-data/mac"))
seed("boot_routes", "script", b"\0", text("/boot/ipxe?mac=52:54:00:00:00:01"))


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


UID = "00000000-0000-0000-0000-000000000007"
IDENTITY = field(2, field(3, "52:54:00:00:00:01"))
HELLO = field(1, field(1, field(1, "0.1.0") + field(2, 1)) + IDENTITY + field(3, "boot-1") + field(4, field(2, "D1") + field(6, 1 << 30)))
STARTED = field(4, field(1, UID) + field(3, 1) + field(4, 1) + field(5, field(1, 1700000000)) + field(10, b""))
FAILED = field(4, field(1, UID) + field(3, 1) + field(4, 2) + field(5, field(1, 1700000000)) + field(12, field(1, field(1, "DeviceIo") + field(2, "no"))))
seed("agent_frames", "enroll", b"\4", sized(field(1, field(1, "0.1.0")) + IDENTITY + field(3, "boot-1") + field(4, b"csr") + field(10, field(1, "token"))))
seed("agent_frames", "session", bytes([1 | 4 | 16]), sized(HELLO), sized(field(3, field(1, 5))), sized(STARTED), sized(FAILED))
seed("agent_frames", "facts", bytes([1 | 4 | 16]), sized(HELLO), sized(field(2, field(1, '{"memoryBytes":1}'))))
seed("agent_frames", "log", bytes([2 | 4 | 16]), sized(field(1, UID) + field(3, 1) + field(11, field(1, field(1, 1700000000)) + field(2, "info") + field(3, "x"))))
seed("agent_frames", "empty", b"\4")
seed("agent_frames", "cut", bytes([1 | 16]), b"\0\0\0\0\x20", HELLO[:9])
seed("agent_frames", "giant", bytes([1 | 16]), b"\0\xff\xff\xff\xff")

# Provision, hello, started, written, seeded, rebooted; a cancel; a second boot; a restart.
PROVISION, CANCEL, RUN, RESTART = b"\x08\0", b"\x08\x80", b"\7", b"\x09"
HI, HI2 = b"\0\0", b"\0\4"
seed("session", "install", PROVISION, HI, b"\2\0\4\1", b"\2\5\4\2\1", b"\2\x19\4\3\2", b"\2\0\5\1", b"\2\2\5\2", b"\2\0\6\1", b"\2\3\6\2", RUN, RESTART)
seed("session", "failed", PROVISION, HI, b"\2\0\4\1", b"\2\4\4\2\x08DeviceIo", RUN, RESTART, PROVISION, HI, RUN)
seed("session", "cancelled", PROVISION, HI, b"\2\0\4\1", RUN, CANCEL, HI, b"\2\0\4\1", RUN)
seed("session", "again", PROVISION, HI, b"\2\0\4\1", RUN, HI2, b"\5\1", b"\6\1", RUN, RESTART, HI, RUN)

API = "/apis/landfall.dev/v1alpha1"
for name, how, target, body in (
    ("list", 0, f"{API}/machines", ""),
    ("selector", 0, f"{API}/machines?labelSelector=site%3Dnorth", ""),
    ("apply", 1, f"{API}/apply?dryRun=true", '{"apiVersion":"landfall.dev/v1alpha1","kind":"Machine","metadata":{"name":"m2"},"spec":{"identity":{"macs":["52:54:00:00:00:02"]}}}'),
    ("provision", 1, f"{API}/machines/m1/provision", '{"template":"os"}'),
    ("cancel", 1, f"{API}/workflows/x/cancel", ""),
    ("delete", 2, f"{API}/templates/os", ""),
    ("nobody", 8, f"{API}/machines/m1", ""),
    ("health", 8, "/healthz", ""),
    ("schema", 0, "/schemas/machine", ""),
    ("events", 0, f"{API}/machines/m1/events?after=0", ""),
):
    seed("operator_routes", name, bytes([how]), text(target), body)

NONE = b"\2\0{}"
seed("template", "expression", NONE, "{{ machine.name }}-{{ machine.labels.site | upper }}")
seed("template", "list", NONE, '[{"name":"write","writeImage":{"image":{"url":"http://x/{{ machine.name }}","digestWaived":true}}}]')
PARAMETERS = json.dumps({"n": 3}).encode()
seed("template", "parameter", sized(PARAMETERS), '[{"name":"seed","cloudInit":{"hostname":"{{ params.n }}"}},{"name":"r","reboot":{},"timeout":"{{ params.n * 10 }}s"}]')
seed("template", "huge", NONE, "{{ [[1] * 9999] * 9999 }}")

MACHINE = "apiVersion: landfall.dev/v1alpha1\nkind: Machine\nmetadata:\n  name: m1\n  labels: {site: north}\nspec:\n  identity:\n    macs: [52:54:00:00:00:01]\n"
TEMPLATE = "apiVersion: landfall.dev/v1alpha1\nkind: Template\nmetadata:\n  name: os\nspec:\n  actions:\n  - name: r\n    reboot: {}\n"
seed("documents", "two", b"\0", MACHINE, "---\n", TEMPLATE)
seed("documents", "anchor", b"\0", "a: &a [x, x]\nb: [*a, *a, *a]\n")
seed("documents", "secret", b"\0", "apiVersion: landfall.dev/v1alpha1\nkind: Secret\nmetadata: {name: s}\nspec: {data: {k: v}}\n")
seed("documents", "rule", b"\0", "apiVersion: landfall.dev/v1alpha1\nkind: EnrolmentRule\nmetadata: {name: r}\nspec:\n  when: {memoryBytes: '>= 1GiB'}\n  approve: true\n")
seed("documents", "json", b"\1", '{"apiVersion":"landfall.dev/v1alpha1","kind":"Machine","metadata":{"name":"m"},"spec":{"identity":{"macs":["52:54:00:00:00:01"]}}}')
seed("documents", "config", b"\2", 'data_dir = "/var/lib/landfall"\nadvertise = "10.0.0.1"\n[boot]\nkernel = "/k"\ninitramfs = "/i"\n[dhcp]\nmode = "full"\ninterface = "e"\nrange = "10.0.0.2-10.0.0.9"\nlease = "1h"\n')
