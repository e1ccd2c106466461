#!/usr/bin/env python3
"""Makes the seeds of corpus/ anew, with the tools whose formats are fuzzed. Seeds are committed; this says where they
come from, and is run by hand when the layout of a target's input changes.

Needs: sgdisk, sfdisk, qemu-img, bmaptool, gzip, xz, zstd, bzip2, lz4, sha256sum, gpg, minisign, and the path of a
landfall-image as its argument. The signatures are not made anew: the secret halves of keys/ were thrown away.
"""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
IMAGE = pathlib.Path(sys.argv[1]).resolve()
os.chdir(tempfile.mkdtemp())


def run(*words, stdin=b""):
    return subprocess.run(words, input=stdin, check=True, capture_output=True).stdout


def seed(target, name, *parts):
    path = HERE / "corpus" / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(p.encode() if isinstance(p, str) else p for p in parts))


def file(name, content=b"", size=None):
    with open(name, "wb") as out:
        out.write(content)
        if size is not None:
            out.truncate(size)
    return name


def noise(length, state=1):
    out = bytearray()
    while len(out) < length:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out += (state >> 33).to_bytes(4, "little")
    return bytes(out[:length])


# Half text, half noise, some zeroes: every kind of block.
CONTENT = b"".join(b"landfall %d\n" % (i * i) for i in range(120)) + bytes(3000) + noise(700)


def gpt(name, flags, sectors, *options):
    """A table shortened to a few entries (the target mends its checksums), with its backup."""
    size = 512
    disk = file("gpt", size=sectors * size)
    run("sgdisk", "-o", *options, disk)
    data = pathlib.Path(disk).read_bytes()
    entries = 8
    head = bytearray(data[: 2 * size] + data[2 * size : 2 * size + entries * 128])
    tail = bytearray(data[2 * size : 2 * size + entries * 128] + data[-size:])
    for part, at, lba in ((head, size, 2), (tail, len(tail) - size, sectors - 3)):
        struct.pack_into("<QI", part, at + 72, lba, entries)
    for suffix, add in (("", 0), ("-moved", 16), ("-kept", 8)):
        seed("gpt", name + suffix, bytes([flags | add]), struct.pack("<IH", sectors, len(head)), head, tail)
    seed("gpt", name + "-backup", bytes([flags]), struct.pack("<IH", sectors, size), head[:size], tail)


gpt("plain", 2, 16384, "-n", "1:2048:4095", "-c", "1:root", "-n", "2:4096:8191", "-c", "2:data")
gpt("large", 6, 4 << 20, "-n", "1:2048:4095", "-t", "1:ef00", "-n", "2:1000000:2000000", "-c", "2:data")
gpt("empty", 2, 8192)


def mbr(name, flags, script):
    disk = file("mbr", size=64 << 20)
    run("sfdisk", "-q", disk, stdin=script.encode())
    data = pathlib.Path(disk).read_bytes()
    sectors = [lba for lba in range(1, len(data) // 512) if data[lba * 512 + 510 : lba * 512 + 512] == b"\x55\xaa"]
    records = [struct.pack("<I", lba) + data[lba * 512 + 440 : lba * 512 + 512] for lba in sectors]
    seed("mbr", name, bytes([flags]), struct.pack("<I", len(data) // 512), data[440:512], *records)


mbr("primary", 0, "label: dos\nstart=2048,size=2048,type=83,bootable\nstart=4096,size=2048,type=7\n")
mbr("logical", 0, "label: dos\nstart=2048,size=2048\nstart=4096,type=5\n" + "size=2048\n" * 4)
mbr("logical-4096", 1, "label: dos\nstart=2048,size=2048\nstart=4096,type=f\n" + "size=2048\n" * 2)
mbr("protective", 0, "label: gpt\nstart=2048,size=2048\n")


def qcow2(name, raw, *options):
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, raw, "image")
    image = pathlib.Path("image").read_bytes()
    assert len(image) <= 40000, (name, len(image))
    for how in (b"\x05\x00", b"\x2a\x03"):
        seed("qcow2", f"{name}-{how[0]}", how, image)
    seed("sniff", f"{name}.qcow2", image)


raw = file("raw", CONTENT, 128 << 10)
with open(raw, "r+b") as out:
    out.seek(72 << 10)
    out.write(noise(2000, 3))
for name, options in {
    "plain": ["-o", "cluster_size=4096"],
    "deflate": ["-c", "-o", "cluster_size=4096"],
    "zstd": ["-c", "-o", "cluster_size=4096,compression_type=zstd"],
    "old": ["-o", "cluster_size=4096,compat=0.10"],
}.items():
    qcow2(name, raw, *options)



def vmdk(name, grain, front, raw):
    """A streamOptimized VMDK with its tables before the grains, as qemu-img writes it, or behind them, as VMware does. Only
    small ones are of use, and qemu-img makes none; it reads them, which shows that they are right."""
    def padded(part):
        return part + bytes(-len(part) % 512)

    def head(directory):
        fields = struct.pack("<4sIIQQQQIQQQB4sH", b"KDMV", 3, 0x30001, capacity, grain, 1, 1, 512, 0, directory, first, 0, b"\n \r\n", 1)
        return padded(fields)

    def marker(kind, sectors):
        return padded(struct.pack("<QII", sectors, 0, kind))

    capacity, first = len(raw) // 512, 7 if front else 2
    text = f'# Disk DescriptorFile\nversion=1\nparentCID=ffffffff\ncreateType="streamOptimized"\nRW {capacity} SPARSE "x"\n'
    grains, entries, at = b"", [0] * 512, first
    for number in range(-(-capacity // grain)):
        part = raw[number * grain * 512 : (number + 1) * grain * 512]
        if any(part):
            stored = zlib.compress(part)
            entries[number] = first + len(grains) // 512
            grains += padded(struct.pack("<QI", number * grain, len(stored)) + stored)
    table = struct.pack("<512I", *entries)
    start = head(2 if front else 2**64 - 1) + padded(text.encode())
    if front:
        file = start + padded(struct.pack("<I", 3)) + table + grains
    else:
        at = first + len(grains) // 512 + 1
        file = start + grains + marker(1, 4) + table + marker(2, 1) + padded(struct.pack("<I", at)) + marker(3, 1) + head(at + 5)
        file += marker(0, 0)
    pathlib.Path("image").write_bytes(file)
    run("qemu-img", "convert", "-f", "vmdk", "-O", "raw", "image", "back")
    assert pathlib.Path("back").read_bytes() == raw, name
    for how in (b"\x05", b"\x2a"):
        seed("vmdk", f"{name}-{how[0]}", how, file)
    return file


small = (CONTENT + bytes(10000) + noise(3000, 5) + CONTENT[:2000] + bytes(20000) + b"end" + bytes(600))[: 66 * 512]
small += bytes(-len(small) % 512)
for name, front in {"qemu": True, "vmware": False}.items():
    seed("sniff", f"{name}.vmdk", vmdk(name, 8, front, small))
    vmdk(name + "-large", 16, front, small)

packed = {
    "gzip": run("gzip", "-9", "-n", stdin=CONTENT),
    "xz": run("xz", "-T1", "--check=crc32", stdin=CONTENT),
    "zstd": run("zstd", "-q", "-c", stdin=CONTENT),
    "bzip2": run("bzip2", stdin=CONTENT),
    "lz4": run("lz4", "-q", "-c", stdin=CONTENT),
}
short = b"landfall " * 9
shorter = {
    "gzip": run("gzip", "-1", stdin=short) + run("gzip", "-9", "-n", stdin=b"x"),
    "xz": run("xz", "-T2", "--block-size=4096", "--check=none", stdin=CONTENT),
    "zstd": run("zstd", "-q", "-c", "--no-check", stdin=short) + run("zstd", "-q", "-c", "-19", stdin=b"x" * 5000),
    "bzip2": run("bzip2", "-1", stdin=short) + run("bzip2", stdin=b"x"),
    "lz4": run("lz4", "-q", "-c", "-BD", "-B4", "-BX", stdin=short * 30),
}
for at, kind in enumerate(packed):
    seed("decoders", kind, bytes([at, 200]), packed[kind])
    seed("decoders", kind + "-short", bytes([at, 0]), shorter[kind])
    seed("sniff", kind, packed[kind])
seed("decoders", "zstd-skippable", b"\x02\x07", struct.pack("<II", 0x184D2A50, 3), b"abc", shorter["zstd"])
seed("sniff", "raw", CONTENT[:600])

sparse = file("sparse", noise(4096), 64 << 10)
with open(sparse, "r+b") as out:
    out.seek(32 << 10)
    out.write(noise(8192, 7))
bmap = run("bmaptool", "create", sparse)
seed("bmap", "made", b"\x01", bmap)
seed("bmap", "short", b"\x01", b"\n".join(line for line in bmap.split(b"\n") if b"<!--" not in line and b"-->" not in line))

run(str(IMAGE), "pack", sparse, "--output", "packed.zst", "--chunk", "4096")
index = [name for name in os.listdir() if name.startswith("packed") and name != "packed.zst"]
seed("manifest", "packed", pathlib.Path(index[0]).read_bytes())
seed("manifest", "bmap", bmap)
packed_image = pathlib.Path("packed.zst").read_bytes()
seed("seek_table", "packed", packed_image[-400:])
seed("seek_table", "checksums", struct.pack("<IIIIIIB", 0x184D2A5E, 21, 3, 4096, 7, 1, 0x80) + struct.pack("<I", 0x8F92EAB1))
seed("sniff", "packed", packed_image[-400:])

sums = run("sha256sum", raw, sparse) + run("sha512sum", raw)
seed("sums", "gnu", b"raw\0", sums)
seed("sums", "bsd", b"raw\0", run("sha256sum", "--tag", raw, sparse), run("sha512sum", "--tag", sparse))
seed("sums", "binary-folder", b"raw\0", run("sha256sum", "-b", "./raw"), run("sha256sum", sparse).replace(b"sparse", b"/srv/images/raw"))

mark = (
    '{"disk":{"wwn":"","serial":"S","path":"","name":"sda","model":"","sizeBytes":8388608},"receipt":{"machineUid":'
    '"00000000-0000-0000-0000-000000000001","workflowUid":"00000000-0000-0000-0000-000000000002","workflowName":"w",'
    '"generation":3,"actionIndex":0,"imageDigest":"sha256:' + "09" * 32 + '","state":"%s",'
    '"writtenAt":"2023-11-14T22:13:20Z"}}'
)
slots = [(mark % state).encode() for state in ("Done", "Intent")]
slots = [struct.pack("<QH", at + 1, len(body)) + body for at, body in enumerate(slots)]
seed("receipt", "both", b"\x06", *slots)
seed("receipt", "one-4096", b"\x03", slots[0])

for name, content in {
    "range": "bytes 5-9/10", "range-open": "bytes 0-0/*", "seconds": "120", "date": "Sun, 06 Nov 1994 08:49:37 GMT",
    "type": "application/zstd; charset=binary", "encoding": "gzip",
    "challenge": 'Bearer realm="https://auth/token",service="reg \\"x\\"",scope="repository:a/b:pull",error=x',
}.items():
    seed("http_headers", name, content)

digest = "sha256:" + "0a" * 32
for name, content in {
    "pinned": f"oci://registry.example:5000/os/image@{digest}", "tagged": "oci+http://registry/a/b.c_d:v1?layer=disk.zst",
    "both": f"oci://r/i:latest@{digest}?layer={digest}", "file": "file:///srv/a%20b.zst", "http": "https://h:8/x/y.xz?s=1#f",
}.items():
    seed("reference", name, content)

layer = f'{{"mediaType":"application/zstd","digest":"{digest}","size":7,"annotations":{{"org.opencontainers.image.title":"disk.zst"}}}}'
seed("oci_manifest", "one", f'disk.zst\0{{"schemaVersion":2,"layers":[{layer}]}}')
seed("oci_manifest", "two", f'{digest}\0{{"schemaVersion":2,"mediaType":"x","layers":[{layer},{{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha512:{"0b" * 64}","size":9}}]}}')
seed("oci_manifest", "list", f'x\0{{"schemaVersion":2,"manifests":[{layer}]}}')

for name, content in {
    "sizes": '{"size":">= 400 GiB","serial":"in A, S4EVNF0M,B"}', "glob": '{"model":"glob *SSD ???","name":"/dev/sda"}',
    "plain": '{"rotational":false,"size":480000000000,"vendor":"!= ATA"}', "fraction": '{"size":"in 0.5TB,1.5TiB"}',
}.items():
    seed("selector", name, content)
