#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the golden vectors with nothing but Python's standard library and the format pages beside this file.

It shares no code with the broker, so it proves that the pages suffice to write a client. A vector is a pair
NAME.hex (the bytes) and NAME.json (their meaning). Each directory of vectors has one function in READERS, which
turns bytes into the meaning; add a format by adding a function. Exits 1 when any vector is read differently.

usage: decode.py [VECTORS]        (default: wire/testdata/vectors of this repository)
"""

import json
import re
import struct
import sys
from pathlib import Path

U64 = (1 << 64) - 1
MAX_BATCH = 8 << 20
MAX_COUNT = 1 << 20
MAX_SCHEDULE_US = 1 << 53
LIMITS = {"batch": 8 << 20, "record": 8 << 20, "key": 4 << 10, "headers": 64, "header_bytes": 16 << 10, "records": 10_000}


class Refused(Exception):
    """Bytes that break a rule of the format; str() is the name of the rule."""


def need(condition, rule):
    if not condition:
        raise Refused(rule)


def crc32c(data):
    """CRC-32C (Castagnoli), reflected polynomial 0x82f63b78."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def crc_row(n):
    for _ in range(8):
        n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
    return n


CRC_TABLE = [crc_row(n) for n in range(256)]


def signed(v):
    """The 64 bits of v as two's complement."""
    v &= U64
    return v - (1 << 64) if v >> 63 else v


class Cursor:
    """Reads fields front to back and never beyond its bytes."""

    def __init__(self, data):
        self.data, self.pos = data, 0

    def left(self):
        return len(self.data) - self.pos

    def take(self, n):
        need(n <= self.left(), "size")
        self.pos += n
        return self.data[self.pos - n : self.pos]

    def fixed(self, fmt):
        return struct.unpack("<" + fmt, self.take(struct.calcsize("<" + fmt)))[0]

    def uvarint(self):
        value = 0
        for i in range(10):
            byte = self.take(1)[0]
            need(i < 9 or byte <= 1, "varint")
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                need(byte or i == 0, "varint")
                return value
        raise Refused("varint")

    def u32(self):
        value = self.uvarint()
        need(value < 1 << 32, "varint")
        return value

    def varint(self):
        value = self.uvarint()
        return (value >> 1) ^ -(value & 1)

    def length(self):
        value = self.uvarint()
        need(value <= self.left(), "size")
        return value

    def blob(self):
        return self.take(self.length())

    def text(self):
        return self.blob().decode(errors="replace")  # UTF-8 is agreed upon, not checked

    def end(self):
        need(self.left() == 0, "size")


# ---- batch.md ------------------------------------------------------------------------------------------------

ATTRIBUTES = {1: "zstd", 4: "control", 8: "checkpoint", 16: "checkpoint_start", 32: "carried", 64: "settlement", 128: "scheduled", 256: "dedup"}
ATTRIBUTES |= {512: "expired"}
MAX_SLICE = MAX_BATCH + 3 * MAX_COUNT
DEDUP = "dedup-id"


def read_batch(raw, form):
    stored = form == "stored"
    need(len(raw) >= 96, "short")
    head = struct.unpack("<IIQQQqQ", raw[:48])
    crc, size, version, reserved, attributes, count, producer, sequence, first, plain, meta = struct.unpack(
        "<IIBBHIQQqII", raw[48:96]
    )
    if stored:
        need(head[1] == 0x3142474D, "magic")
    else:
        need(not any(raw[:48]), "assigned")
    need(version == 1, "version")
    need(96 <= size <= MAX_BATCH and (stored or size >= len(raw)), "size")
    if stored:
        need(crc32c(raw[4:48]) == head[0], "checksum")
    need(size <= len(raw), "short")
    raw = raw[:size]
    need(crc32c(raw[52:]) == crc, "checksum")
    need(stored or attributes & ~0x1C3 == 0, "attributes")
    need(reserved == 0 and attributes & ~0x3FF == 0 and attributes & 3 <= 1, "attributes")
    zstd, control, dedup = attributes & 1, attributes & 4, attributes & 256
    carried, expired = attributes & 32, attributes & 512
    need(meta <= size - 96, "size")
    need(plain <= MAX_BATCH - 96 - meta and (zstd or plain == size - 96 - meta), "size")
    if control:
        need(attributes & 0x3E3 == 0 and attributes & 0x18 != 0x10, "attributes")
        need(plain == 0, "size")
    else:
        need(attributes & 0x18 == 0, "attributes")
        need(not dedup or (count == 1 and not zstd), "dedup")
        need(not dedup or not attributes & 64, "settlement")
        need(not carried or attributes & ~0xA3 == 0, "attributes")
        need(not expired or attributes == 512, "attributes")
        need(not expired or plain == 0, "size")
        need(not (carried or expired) or producer == 0, "producer")
    metas = Cursor(raw[96 : 96 + meta])
    settlement = read_settlement(metas) if attributes & 64 else None
    least = 5 if carried else 3 if expired else 2
    need(0 < count <= MAX_COUNT and count * least <= metas.left(), "count")
    need((producer == 0) == (sequence == 0) and not (control and producer), "producer")
    need(not control or first == 0, "timestamp")
    out = {
        "header": {
            "sequence": head[2],
            "base_offset": head[3],
            "generation": head[4],
            "append_time": head[5],
            "flushed": head[6],
            "size": size,
            "attributes": [name for bit, name in ATTRIBUTES.items() if attributes & bit],
            "count": count,
            "producer_id": producer,
            "producer_sequence": sequence,
            "first_timestamp": first,
            "plain_size": plain,
        }
    }
    if settlement:
        out["header"]["settlement"] = settlement
    if control:
        out["entries"] = read_entries(metas, count, attributes)
        return out
    if not stored:
        need(96 + meta + plain <= LIMITS["batch"] and count <= LIMITS["records"], "limit")
    body = None if zstd else Cursor(raw[96 + meta :])
    where = Origins(head[3], head[4]) if carried else lambda _, i: {"offset": head[3] + i}
    shape = {"limited": not stored, "expired": expired}
    records = read_records(metas, body, count, where, first, plain, **shape)
    scheduled = any(r["delay_us"] or r["ttl_us"] or r.get("priority") for r in records)
    need(stored or scheduled == (attributes & 128 != 0), "schedule")
    ids = [dedup_id(r) for r in records]
    need(stored or (ids[0] is not None) == (dedup != 0) and not any(i is not None for i in ids[1:]), "dedup")
    if dedup:
        need(2 <= len(ids[0] or "") <= 256, "dedup")
        out["header"]["dedup_id"] = ids[0]
    out["records"] = records
    return out


def read_settlement(meta):
    """Stands before the records' metas; where none can stand the attributes say what is not so."""
    try:
        section = Cursor(meta.blob())
    except Refused as refused:
        raise Refused("attributes") from refused
    need(section.left() >= 13, "attributes")
    out = {"group": section.fixed("Q"), "resets": section.u32(), "generation": section.uvarint()}
    count = section.uvarint()
    need(out["group"] and 0 < count <= min(10_000, section.left() // 2), "settlement")
    out["tokens"] = [[section.uvarint(), section.uvarint()] for _ in range(count)]
    section.end()
    return out


class Origins:
    """Reads where each record of a carried batch was first."""

    def __init__(self, base, generation):
        self.base, self.generation, self.time = base, generation, 0

    def __call__(self, c, _):
        offset, generation = c.uvarint(), c.uvarint()
        self.time = signed(self.time + c.varint())
        need(offset < self.base and generation <= self.generation, "carried")
        return {"offset": offset, "generation": generation, "append_time": self.time}


def dedup_id(record):
    """The value of a first header of that name; of a compressed body nothing is known."""
    headers = record.get("headers")
    return headers[0][1] if headers and headers[0][0] == DEDUP else None


def read_slice(raw):
    need(len(raw) >= 72, "short")
    crc, magic, size, version, reserved, attributes, count, meta = struct.unpack("<IIIBBHII", raw[:24])
    sequence, base, after, generation, time, first = struct.unpack("<QQQQqq", raw[24:72])
    need(magic == 0x314C474D, "magic")
    need(version == 1, "version")
    need(72 <= size <= MAX_SLICE, "size")
    need(size <= len(raw), "short")
    raw = raw[:size]
    need(crc32c(raw[4:]) == crc, "checksum")
    need(reserved == 0 and attributes & ~512 == 0, "attributes")
    need(meta <= size - 72 and (not attributes or meta == size - 72), "size")
    need(0 <= after - base <= MAX_COUNT, "slice")
    need(0 < count <= after - base and count * 3 <= meta, "count")
    last = -1

    def place(c, _):
        nonlocal last
        at = c.uvarint()
        need(last < at < after - base, "slice")
        last = at
        return {"offset": base + at}

    metas, body = Cursor(raw[72 : 72 + meta]), Cursor(raw[72 + meta :])
    records = read_records(metas, body, count, place, first, body.left(), limited=False, expired=attributes, base=base)
    header = {"sequence": sequence, "base_offset": base, "next_offset": after, "generation": generation}
    header |= {"append_time": time, "first_timestamp": first, "size": size, "count": count}
    if attributes:
        header["attributes"] = ["expired"]
    return {"header": header, "records": records}


def read_records(meta, body, count, where, first, plain, limited, expired, base=None):
    """Where(meta, n) says of the n-th record which offset it has, and what else of it stands before its meta. Base is the
    offset of the source's first record: of a slice; in a batch the first record is the first.

    A body of None is a compressed one: then values and headers stay unknown, but for their sizes."""
    records = []
    for n in range(count):
        at = where(meta, n)
        flags = meta.fixed("B")
        need(flags & ~0x3F == 0 and (not expired or flags == 3), "attributes")
        delta = meta.varint()
        need(delta == 0 or (at["offset"] != base if base is not None else n), "timestamp")
        need(-(1 << 63) <= first + delta < 1 << 63, "timestamp")
        key = meta.blob() if flags & 1 else None
        delay = read_schedule(meta) if flags & 8 else 0
        ttl = read_schedule(meta) if flags & 16 else 0
        need(not ttl or ttl > delay, "schedule")
        priority = meta.fixed("B") if flags & 32 else 0
        need(not flags & 32 or 0 < priority <= 9, "priority")
        value_size = 0 if flags & 2 else meta.uvarint()
        need(value_size <= plain, "size")
        plain -= value_size
        headers_size = meta.uvarint() if flags & 4 else 0
        need(headers_size <= plain and (headers_size or not flags & 4), "size")
        plain -= headers_size
        if limited:
            need(len(key or b"") <= LIMITS["key"] and headers_size <= LIMITS["header_bytes"], "limit")
            need(len(key or b"") + headers_size + value_size <= LIMITS["record"], "limit")
        record = at | {
            "key": None if key is None else key.hex(),
            "timestamp": first + delta,
            "delay_us": delay,
            "ttl_us": ttl,
        }
        if priority:
            record["priority"] = priority
        if body is None:
            record["sizes"] = [None if flags & 2 else value_size, headers_size]
        else:
            record["headers"] = read_headers(Cursor(body.take(headers_size)), limited) if headers_size else []
            record["value"] = None if flags & 2 else body.take(value_size).hex()
        records.append(record)
    meta.end()
    need(plain == 0, "size")
    return records


def read_schedule(meta):
    us = meta.uvarint()
    need(0 < us <= MAX_SCHEDULE_US, "schedule")
    return us


def read_headers(section, limited):
    n = section.uvarint()
    need(0 < n <= section.left() // 2, "count")
    need(not limited or n <= LIMITS["headers"], "limit")
    headers = [[section.text(), section.blob().hex()] for _ in range(n)]
    section.end()
    return headers


def read_entries(meta, count, attributes):
    entries = []
    for i in range(count):
        kind, data = meta.uvarint(), Cursor(meta.blob())
        need(kind in ENTRIES, "unknown_entry")
        entry = ENTRIES[kind](data)
        data.end()
        need((kind == 3) == (i == 0 and attributes & 8 != 0), "entry")
        need(kind != 3 or (entry["index"] == 0) == (attributes & 16 != 0), "entry")
        entries.append(entry)
    meta.end()
    return entries


def read_opening(c):
    entry = {"type": "opening", "generation": c.uvarint(), "leader": c.text()}
    entry["replicas"] = [c.text() for _ in range(c.length())]
    entry["lossy"] = read_bool(c)
    entry["lossy_sequence"], entry["lossy_offset"] = (c.uvarint(), c.uvarint()) if entry["lossy"] else (0, 0)
    return entry


def read_log_start(c):
    return {"type": "log_start", "sequence": c.uvarint(), "offset": c.uvarint()}


def read_checkpoint_part(c):
    entry = {"type": "checkpoint_part", "index": c.u32(), "total": c.u32()}
    need(entry["index"] < entry["total"], "entry")
    return entry


def read_producer(c):
    entry = {"type": "producer", "id": c.fixed("Q"), "last_sequence": c.uvarint(), "generation": c.uvarint()}
    entry["last_append"] = c.varint()
    n = c.length()
    need(n <= 256, "entry")
    sequence = offset = time = generation = 0
    entry["window"] = []
    for _ in range(n):
        sequence = (sequence + c.varint()) & U64
        offset = (offset + c.varint()) & U64
        taken = c.u32()
        time = signed(time + c.varint())
        generation = (generation + c.varint()) & U64
        entry["window"].append(
            {"sequence": sequence, "base_offset": offset, "count": taken, "append_time": time, "generation": generation}
        )
        sequence, offset = sequence + 1, offset + taken
    return entry


def read_generations(c):
    generation = sequence = offset = 0
    table = []
    for _ in range(c.length()):
        generation = (generation + c.varint()) & U64
        sequence = (sequence + c.varint()) & U64
        offset = (offset + c.varint()) & U64
        table.append({"generation": generation, "sequence": sequence, "offset": offset})
    return {"type": "generations", "table": table}


def read_bool(c):
    value = c.fixed("B")
    need(value <= 1, "entry")
    return value == 1


def read_cursor(c):
    entry = {"type": "cursor", "name": c.text(), "offset": c.uvarint(), "generation": c.uvarint(), "epoch": c.uvarint()}
    return entry | {"updated": c.varint(), "removed": read_bool(c)}


def read_dedup(c):
    offset = time = 0
    rows = []
    for _ in range(c.length()):
        name = c.blob().hex()
        offset = (offset + c.varint()) & U64
        time = signed(time + c.varint())
        rows.append({"id": name, "offset": offset, "append_time": time})
    return {"type": "dedup", "stored": rows}


def read_last(c):
    entry = {"type": "last", "id": c.fixed("Q"), "grace_ms": c.u32(), "removed": read_bool(c)}
    need(entry["removed"] == (c.left() == 0), "entry")
    return entry | {"batch": c.take(c.left()).hex()}


SETTINGS = ("order_by_key", "fair_keys", "paused", "dead_expired")
TOTALS = ("acked", "expired", "cancelled", "lost", "discarded", "dead", "redriven", "attempts", "base")


def read_settings(c):
    out = {"ack_wait": c.uvarint(), "max_attempts": c.u32()}
    n = c.length()
    need(n <= 16, "entry")
    out["backoff"] = [c.uvarint() for _ in range(n)]
    flags = read_up_to(c, 15)
    out |= {name: flags >> bit & 1 == 1 for bit, name in enumerate(SETTINGS)}
    return out | {"priority_age": c.uvarint(), "max_dead": c.u32()}


def read_totals(c):
    return {name: c.uvarint() for name in TOTALS}


def read_up_to(c, last, least=0):
    value = c.fixed("B")
    need(least <= value <= last, "entry")
    return value


def read_most(c, most):
    raw = c.blob()
    need(len(raw) <= most, "entry")
    return raw.decode(errors="replace")


def read_group(c):
    entry = {"type": "group", "id": c.fixed("Q"), "name": read_most(c, 64), "removed": read_bool(c), "resets": c.u32()}
    entry |= {"created": c.varint(), "updated": c.varint(), "settings": read_settings(c), "cursor": c.uvarint()}
    return entry | {"totals": read_totals(c)}


def read_settled(c):
    entry = {"type": "settled", "group": c.fixed("Q"), "how": read_up_to(c, 4), "ranges": []}
    n, at = c.length(), 0
    need(n <= c.left() // 2, "size")
    for _ in range(n):
        start = at + c.uvarint()
        at = start + c.uvarint()
        need(start < at <= U64, "entry")
        entry["ranges"].append([start, at])
    return entry


def read_attempt(c):
    entry = {"type": "attempt", "group": c.fixed("Q"), "offset": c.uvarint(), "attempts": c.u32(), "due": c.varint()}
    entry |= {"expires": c.varint(), "append_time": c.varint(), "key": c.fixed("Q"), "priority": read_up_to(c, 9)}
    return entry | {"retry": read_bool(c), "count": c.fixed("B"), "error": read_most(c, 256)}


def read_dead(c):
    entry = {"type": "dead", "group": c.fixed("Q"), "offset": c.uvarint(), "removed": read_up_to(c, 3), "attempts": c.u32()}
    entry["reason"] = read_up_to(c, 3, least=0 if entry["removed"] else 1)
    entry |= {"at": c.varint(), "append_time": c.varint(), "key": c.fixed("Q"), "priority": read_up_to(c, 9)}
    return entry | {"error": read_most(c, 256)}


def read_command(c):
    return {"type": "command", "id": c.take(16).hex(), "at": c.varint(), "group": c.fixed("Q"), "count": c.uvarint()}


ENTRIES = {1: read_opening, 2: read_log_start, 3: read_checkpoint_part, 4: read_producer, 5: read_generations}
ENTRIES |= {6: read_cursor, 7: read_dedup, 8: read_last, 9: read_group, 10: read_settled, 11: read_attempt, 12: read_dead}
ENTRIES |= {13: read_command}


def check_batch(raw, want):
    """Of a compressed body the vector says more than this reader can see: compare sizes instead of contents."""
    if want["form"] == "slice":
        return read_slice(raw)
    got = read_batch(raw, want["form"])
    for record, wanted in zip(got.get("records", []), want.get("records", [])):
        if "sizes" in record:
            value, headers = wanted.pop("value"), wanted.pop("headers")
            wanted["sizes"] = [None if value is None else len(value) // 2, headers_size(headers)]
    return got


def headers_size(headers):
    if not headers:
        return 0
    sizes = [len(headers)] + [n for name, value in headers for n in (len(name.encode()), len(value) // 2)]
    return sum(max(1, -(-n.bit_length() // 7)) for n in sizes) + sum(sizes[1:])


# ---- segment.md ----------------------------------------------------------------------------------------------


def check_segment(raw, want):
    return read_index(raw) if want["form"] == "index" else read_segment(raw)


def read_file_header(raw, magic, size):
    """What segment and index files have in common; returns a cursor behind the log id."""
    need(len(raw) >= size, "short")
    need(raw[:8] == magic, "magic")
    need(crc32c(raw[: size - 4]) == struct.unpack("<I", raw[size - 4 : size])[0], "checksum")
    c = Cursor(raw[8:size])
    version, flags, shard = c.fixed("H"), c.fixed("H"), c.fixed("I")
    return c, version == 1 and flags == 0, {"log": c.take(16).hex(), "shard": shard, "base": c.fixed("Q")}


def read_segment(raw):
    c, known, header = read_file_header(raw, b"MARGAYSG", 48)
    need(known and c.fixed("I") == 0, "newer")
    out = {"header": header}
    pos, tail, run = 48, SegmentTail(header["base"]), []
    while pos < len(raw):
        batch = stored_at(raw, pos)
        if batch is None or not tail.accepts(batch):
            if not any(raw[pos:]):
                out["unwritten"] = len(raw) - pos
                pos = len(raw)
                break
            # Nothing is read of the offset of a segment's first batch: the control batch behind it has the same.
            out["damage"] = {"position": pos, "sequence": tail.sequence, "offset": tail.offset or 0}
            break
        run.append(placed(pos, batch))
        tail.take(batch)
        pos += batch["size"]
    beyond = find_beyond(raw, pos, tail) if pos < len(raw) else []
    if beyond and not run and beyond[0]["sequence"] == tail.sequence + 1:
        out["damage"]["offset"] = beyond[0]["offset"]
    return out | {k: v for k, v in (("batches", run), ("beyond", beyond)) if v}


def stored_at(raw, pos):
    """The header of the sound batch at pos, or None."""
    try:
        return read_batch(raw[pos:], "stored")["header"] | {"next": next_offset(raw, pos)}
    except Refused:
        return None


def next_offset(raw, pos):
    base, attributes, count = (struct.unpack_from(f, raw, pos + at)[0] for f, at in (("<Q", 16), ("<H", 58), ("<I", 60)))
    return base if attributes & 0x24 else base + count


def placed(pos, batch):
    out = {"position": pos, "sequence": batch["sequence"], "offset": batch["base_offset"]}
    return out | {k: batch[k] for k in ("append_time", "flushed") if batch[k]}


class SegmentTail:
    """What may come next in a run of batches."""

    def __init__(self, base):
        self.sequence, self.offset, self.generation, self.time = base, None, 0, -(1 << 63)

    def accepts(self, batch):
        return (
            batch["sequence"] == self.sequence
            and batch["flushed"] <= batch["sequence"]
            and self.offset in (None, batch["base_offset"])
            and batch["generation"] >= self.generation
            and batch["append_time"] >= self.time
        )

    def take(self, batch):
        self.sequence, self.offset = batch["sequence"] + 1, batch["next"]
        self.generation, self.time = batch["generation"], batch["append_time"]


def find_beyond(raw, damage, tail):
    """Sound batches behind damage, found by their magic, that can be later batches of this log."""
    found, pos, least, offset = [], damage + 1, tail.sequence, tail.offset or 0
    while (at := raw.find(b"MGB1", pos + 4)) >= 0:
        pos = at - 4
        batch = stored_at(raw, pos)
        if batch is None or not (
            least <= batch["sequence"] <= tail.sequence + (pos - damage) // 96
            and batch["flushed"] <= batch["sequence"]
            and batch["base_offset"] >= offset
            and batch["generation"] >= tail.generation
        ):
            pos += 1
            continue
        found.append(placed(pos, batch))
        least, offset = batch["sequence"] + 1, batch["next"]
        pos += batch["size"]
    return found


def read_index(raw):
    c, known, header = read_file_header(raw, b"MARGAYIX", 112)
    need(known, "newer")
    for name, fmt in (
        ("base_offset", "Q"),
        ("size", "q"),
        ("generation", "Q"),
        ("last", "Q"),
        ("next_offset", "Q"),
        ("last_time", "q"),
        ("first_time", "q"),
    ):
        header[name] = c.fixed(fmt)
    count, crc = c.fixed("I"), c.fixed("I")
    need(0 < count <= 1 << 19 and len(raw) == 112 + 32 * count, "index")
    need(crc32c(raw[112:]) == crc, "checksum")
    entries = []
    for at in range(112, len(raw), 32):
        offset, time, sequence, position = struct.unpack("<QqQq", raw[at : at + 32])
        entry = {"position": position, "sequence": sequence, "offset": offset}
        entries.append(entry | ({"append_time": time} if time else {}))
    need(entries[0]["sequence"] == header["base"] and entries[-1]["sequence"] == header["last"], "index")
    return {"header": header, "entries": entries}


# ---- keyindex.md ---------------------------------------------------------------------------------------------

MAX_KEY_BLOCK = (64 << 10) + MAX_BATCH + 64


def check_keyindex(raw, _):
    need(len(raw) >= 72, "short")
    need(raw[:8] == b"MARGAYKX", "magic")
    covered = summed(b"", raw[:72])
    c = Cursor(raw[8:68])
    version, flags, shard = c.fixed("H"), c.fixed("H"), c.fixed("I")
    header = {"log": c.take(16).hex(), "shard": shard}
    for name in ("generation", "sequence", "offset", "keys"):
        header[name] = c.fixed("Q")
    need(version == 1 and flags == 0 and c.fixed("I") == 0, "newer")
    keys, pos = [], 72
    while len(keys) < header["keys"]:
        need(len(raw) >= pos + 8, "short")
        size, count = struct.unpack("<II", raw[pos : pos + 8])
        need(0 < count <= header["keys"] - len(keys) and 6 * count <= size <= MAX_KEY_BLOCK, "content")
        need(len(raw) >= pos + 8 + size + 4, "short")
        covered = summed(covered, raw[pos : pos + 8 + size + 4])
        keys += read_key_block(Cursor(raw[pos + 8 : pos + 8 + size]), count)
        pos += 8 + size + 4
    need(pos == len(raw), "content")
    need(all(a["key"] < b["key"] for a, b in zip(keys, keys[1:])), "content")
    need(all(k["offset"] < header["offset"] and k["sequence"] < header["sequence"] for k in keys), "content")
    return {"header": header} | ({"keys": [k | {"key": k["key"].hex()} for k in keys]} if keys else {})


def summed(before, part):
    """The bytes that the next checksum covers, too; part ends with its own, which no other covers."""
    need(crc32c(before + part[:-4]) == struct.unpack("<I", part[-4:])[0], "checksum")
    return before + part[:-4]


def read_key_block(c, count):
    keys, last = [], b""
    try:
        for _ in range(count):
            flags = c.take(1)[0]
            need(flags < 4, "newer")
            shared = c.uvarint()
            need(shared <= len(last), "content")
            last = last[:shared] + c.blob()
            key = {"key": last, "offset": c.uvarint(), "sequence": c.uvarint(), "size": c.u32()}
            if flags & 2:
                key["until"] = c.uvarint()
                need(0 < key["until"] < 1 << 63, "content")
            keys.append(key | ({"carried": True} if flags & 1 else {}))
        c.end()
    except Refused as refused:
        raise Refused("newer" if str(refused) == "newer" else "content") from None
    return keys


# ---- frames.md -----------------------------------------------------------------------------------------------

# A field is (name, kind): a struct format character, "text", "log", "rest", "bool", a number (a byte that must not
# exceed it), or a list of fields (a u32 count and that many entries). A name is text that follows NAME; an id is a u64
# that is not 0. A field (name, kind, flag) is there only when the frame has the flag; with text for a flag, only when the
# field of that name is true.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
RESUME = [("shard", "I"), ("offset", "Q"), ("generation", "Q")]
START = [("shard", "I"), ("kind", 3), ("at", "Q"), ("generation", "Q")]
STARTED = [("shard", "I"), ("generation", "Q"), ("offset", "Q"), ("latest", "Q")]
FILTER = [("kind", 3), ("value", "text")]
CURSOR = [("name", "name"), ("shard", "I"), ("offset", "Q"), ("generation", "Q"), ("updated", "q"), ("held", "bool")]
CONDITION = [("record", "I"), ("version", "Q")]
DERIVE = [("record", "I"), ("op", 2)]
SHARD_AS_OF = [("shard", "I"), ("generation", "Q"), ("as_of", "Q")]
TOKEN = [("group_id", "id"), ("shard", "I"), ("resets", "I"), ("generation", "Q")]
POSITION = [("kind", 4), ("offset", "Q"), ("time", "q")]
CONSUMER = [("name", "label"), ("in_flight", "I"), ("credit", "I")]
GROUP_INFO = [("id", "id"), ("name", "name"), ("resets", "I"), ("settings", "settings"), ("totals", "totals"), ("created", "q")]
GROUP_INFO += [(n, "Q") for n in ("start", "next", "end", "ready", "in_flight", "delayed", "dead", "ranges")]
GROUP_INFO += [("oldest_append", "q"), ("held", 5), ("exact", "bool"), ("consumers", CONSUMER)]
DETAILS = ("earliest", "latest", "last_sequence", "resume_at", "limit", "shard", "index")
FRAMES = {
    1: ("hello", [("version_min", "H"), ("version_max", "H"), ("features", "Q"), ("client", "text")]),
    2: (
        "hello_ok",
        [("version", "H"), ("features", "Q")]
        + [("max_" + n, "I") for n in ("frame", "batch", "record", "key")]
        + [("max_headers", "H"), ("max_header_bytes", "I"), ("max_in_flight", "I")]
        + [("keep_alive_ms", "I"), ("idle_ms", "I"), ("node", "text"), ("cluster", "text")],
    ),
    3: ("auth", [("token", "text")]),
    4: ("auth_ok", [("expires", "q"), ("subject", "text")]),
    5: (
        "error",
        [("code", "H"), ("class", 3), ("retry_after_ms", "I"), ("generation", "Q")]
        + [("address", "text"), ("message", "text"), ("details", "details")],
    ),
    6: ("ping", []),
    7: ("pong", []),
    8: ("goodbye", [("code", "H"), ("message", "text")]),
    10: ("lookup", [("name", "text")]),
    11: (
        "log_info",
        [("log", "log"), ("name", "text"), ("ack", 3), ("min_ack", 3), ("fsync", 3), ("storage", 2), ("map_version", "Q")]
        + [("shards", [("address", "text"), ("generation", "Q")]), ("keep", 3, 1), ("default_ttl", "Q", 1)],
    ),
    12: ("offsets", [("log", "log"), ("shard", "I")]),
    13: ("offsets_ok", [("shard", "I"), ("generation", "Q"), ("earliest", "Q"), ("latest", "Q"), ("append_time", "q")]),
    20: (
        "publish",
        [("log", "log"), ("shard", "I"), ("previous", "Q"), ("ack", 3), ("timeout_ms", "I")]
        + [("conditions", CONDITION, 1), ("derives", DERIVE, 2), ("batch", "rest")],
    ),
    21: (
        "published",
        [("base_offset", "Q"), ("generation", "Q"), ("append_time", "q"), ("count", "I"), ("replicas", "B"), ("reached", 7)]
        + [("sums", "sums", 1)],
    ),
    30: (
        "subscribe",
        [("log", "log"), ("shards", START), ("policy", 4), ("queue_records", "I"), ("queue_bytes", "I")]
        + [("until_mark", "bool"), ("filters", "filters", 1), ("durable", "name", 2)],
    ),
    31: ("subscribed", [("shards", STARTED), ("durable", "durable", 2)]),
    32: ("deliver", [("shard", "I"), ("mark", "Q"), ("batch", "rest")]),
    33: ("gap", [("shard", "I"), ("from", "Q"), ("to", "Q"), ("reason", 4)]),
    34: ("progress", [("shard", "I"), ("next", "Q"), ("mark", "Q"), ("generation", "Q")]),
    35: ("end", [("shard", "I"), ("code", "H"), ("message", "text"), ("resume", RESUME)]),
    36: ("unsubscribe", []),
    37: ("deliver_slice", [("shard", "I"), ("mark", "Q"), ("slices", "rest")]),
    38: ("commit", [("shards", [("shard", "I"), ("offset", "Q")])]),
    39: ("committed", []),
    40: ("cursor_list", [("log", "log")]),
    41: ("cursors", [("cursors", CURSOR)]),
    42: ("cursor_delete", [("log", "log"), ("name", "name")]),
    43: ("done", []),
    44: ("producer_state", [("log", "log"), ("shard", "I"), ("producer", "id")]),
    45: ("producer_last", [("last_sequence", "Q"), ("base_offset", "Q"), ("known", "bool")]),
    46: ("set_last", [("log", "log"), ("shard", "I"), ("id", "id"), ("grace_ms", "I"), ("batch", "rest")]),
    47: ("clear_last", [("log", "log"), ("shard", "I"), ("id", "id")]),
    48: ("trim", [("log", "log"), ("shard", "I"), ("kind", 3), ("at", "Q")]),
    49: ("trimmed", [("earliest", "Q")]),
    50: ("get", [("log", "log"), ("shard", "I"), ("stale", "bool"), ("at_least", "Q"), ("timeout_ms", "I"), ("keys", "blobs")]),
    51: ("got", SHARD_AS_OF + [("entries", "entries")]),
    52: (
        "list",
        [("log", "log"), ("shard", "I"), ("stale", "bool"), ("keys_only", "bool"), ("filter", "keys")]
        + [("has_after", "bool"), ("after", "text", "has_after"), ("limit", "I")],
    ),
    53: ("listed", SHARD_AS_OF + [("more", "bool"), ("next", "text", "more"), ("entries", "entries")]),
    54: ("count", [("log", "log"), ("shard", "I"), ("filter", "keys")]),
    55: ("counted", SHARD_AS_OF + [("count", "Q")]),
    56: (
        "watch",
        [("log", "log"), ("shard", "I"), ("id", "id"), ("start", 2), ("offset", "Q"), ("generation", "Q"), ("filter", "keys")],
    ),
    57: ("watched", [("shard", "I"), ("id", "id"), ("generation", "Q"), ("from", "Q"), ("how", 3)]),
    58: ("watch_entries", [("shard", "I"), ("id", "id"), ("entries", "entries")]),
    59: ("watch_done", [("shard", "I"), ("id", "id"), ("from", "Q")]),
    60: ("unwatch", [("id", "id")]),
    61: (
        "watch_end",
        [("shard", "I"), ("id", "Q"), ("code", "H"), ("message", "text"), ("resume", "Q"), ("generation", "Q")],
    ),
    62: (
        "consume",
        [("log", "log"), ("group", "name"), ("consumer", "label"), ("max_in_flight", "I"), ("concurrency", "I"), ("shards", "numbers")],
    ),
    63: (
        "consumed",
        [("group_id", "id"), ("ack_wait_us", "Q"), ("shards", [("shard", "I"), ("generation", "Q"), ("resets", "I")])],
    ),
    64: (
        "messages",
        [("shard", "I"), ("generation", "Q"), ("resets", "I"), ("hand_out", "Q")]
        + [("attempts", [("index", "I"), ("attempt", "I")]), ("batch", "rest")],
    ),
    65: ("settle", TOKEN + [("runs", "runs")]),
    66: ("settled", [("failed", [("run", "I"), ("index", "I"), ("code", "H")])]),
    67: ("extend", TOKEN + [("for_us", "Q"), ("tokens", [("hand_out", "Q"), ("offset", "Q")])]),
    68: ("extended", [("failed", [("index", "I"), ("code", "H")])]),
    69: ("flow", [("max_in_flight", "I"), ("begun", [("shard", "I"), ("hand_out", "Q")])]),
    70: ("leave", []),
    71: ("consume_end", [("shard", "I"), ("code", "H"), ("message", "text")]),
    72: (
        "group_command",
        [("id", "log"), ("log", "log"), ("shard", "I"), ("op", 11), ("group", "name_or_none"), ("group_id", "Q")]
        + [("position", "position"), ("offsets", "offsets"), ("rate", "I"), ("at_us", "q"), ("settings", "settings", 1)],
    ),
    73: ("group_done", [("group_id", "Q"), ("count", "Q"), ("again", "bool"), ("created", "bool")]),
    74: (
        "group_query",
        [("log", "log"), ("shard", "I"), ("group", "name_or_none"), ("after", "name_or_none"), ("limit", "I"), ("look", "bool")],
    ),
    75: ("group_infos", [("shard", "I"), ("generation", "Q"), ("more", "bool"), ("infos", GROUP_INFO)]),
    76: (
        "browse",
        [("log", "log"), ("shard", "I"), ("group", "name_or_none"), ("states", 31), ("has_after", "bool")]
        + [("after", "offset", "has_after"), ("limit", "I"), ("filter", "keys"), ("header", "text", 1), ("header_value", "blob", 1)],
    ),
    77: ("browsed", [("shard", "I"), ("generation", "Q"), ("more", "bool"), ("next", "Q"), ("messages", "messages")]),
}
# Flags that no field follows from: of messages, that the records are a slice.
OTHER_FLAGS = {"messages": 1}
# Which kinds of entry a frame has, and how many at least.
ENTRIES_OF = {"got": ((0, 1), 1), "listed": ((1, 4), 0), "watch_entries": ((1, 2, 3), 1)}


def read_fields(c, fields, flags=0):
    out = {}
    for name, kind, *flag in fields:
        if flag and isinstance(flag[0], str):
            out[name] = read_field(c, kind) if out[flag[0]] else 0 if kind == "offset" else ""
        elif not flag or flags & flag[0]:
            out[name] = read_durable(c, out["shards"]) if kind == "durable" else read_field(c, kind)
    return out


def read_durable(c, shards):
    """What became of the cursor, for each shard of the list before."""
    for shard in shards:
        shard |= {"resumed": read_field(c, "bool"), "epoch": c.fixed("Q")}
    return True


def read_filters(c):
    n = c.uvarint()
    need(0 < n <= 1024, "value")
    return [read_filter(c, False) for _ in range(n)]


def read_filter(c, may_be_all):
    f = read_fields(c, FILTER)
    need(f["kind"] or (may_be_all and not f["value"]), "value")
    need(len(f["value"].encode()) <= LIMITS["key"], "value")
    need(f["kind"] != 3 or is_pattern(f["value"]), "value")
    return f


def read_entry(c):
    kind = read_field(c, 4)
    out = {"kind": kind, "key": "", "offset": 0, "generation": 0, "append_time": 0, "expires": 0, "value": "", "headers": ""}
    if kind == 0:
        return out
    out |= {"key": c.blob().hex(), "offset": c.uvarint(), "generation": c.uvarint(), "append_time": c.varint()}
    out["expires"] = c.uvarint()
    need(out["expires"] < 1 << 63, "value")
    if kind == 1:
        out["value"] = c.blob().hex()
    if kind in (1, 2):
        out["headers"] = c.blob().hex()
    return out


def is_pattern(text):
    """Levels parted by "/": "+" and "#" only as whole levels, "#" only as the last."""
    levels = text.split("/")
    return bool(text) and all(
        not set(level) & set("+#") or level == "+" or (level == "#" and i == len(levels) - 1)
        for i, level in enumerate(levels)
    )


def read_field(c, kind):
    if isinstance(kind, list):
        return [read_fields(c, kind) for _ in range(c.fixed("I"))]
    if isinstance(kind, int) or kind == "bool":
        value = c.fixed("B")
        need(value <= (1 if kind == "bool" else kind), "value")
        return value == 1 if kind == "bool" else value
    if kind in LISTS:
        count = c.fixed("I")
        need(count <= c.left(), "size")
        return [LISTS[kind](c) for _ in range(count)]
    if kind in OF_QUEUES:
        return OF_QUEUES[kind](c)
    if kind == "keys":
        return read_filter(c, True)
    if kind == "details":
        return read_details(c)
    if kind == "rest":
        need(c.left(), "size")
        return c.take(c.left()).hex()
    if kind == "filters":
        return read_filters(c)
    if kind == "name":
        name = c.text()
        need(NAME.match(name), "value")
        return name
    if kind == "id":
        value = c.fixed("Q")
        need(value, "value")
        return value
    return c.text() if kind == "text" else c.take(16).hex() if kind == "log" else c.fixed(kind)


def read_label(c, most=64):
    raw = c.blob()
    need(len(raw) <= most, "value")
    return raw.decode(errors="replace")


def read_name_or_none(c):
    name = c.text()
    need(not name or NAME.match(name), "value")
    return name


def read_position(c):
    out = read_fields(c, POSITION)
    need((out["kind"] == 3 or not out["offset"]) and (out["kind"] == 4 or not out["time"]), "value")
    return out


def read_run(c):
    op = read_field(c, 4)
    out = {"op": op, "hand_out": c.fixed("Q"), "offset": c.fixed("Q"), "count": c.fixed("I"), "after_us": 0, "reason": ""}
    need(op and out["count"] and max(out["hand_out"], out["offset"]) + out["count"] - 1 <= U64, "value")
    if op == 2:
        out["after_us"] = c.fixed("Q")
        need(out["after_us"] <= MAX_SCHEDULE_US, "value")
    if op in (2, 3):
        out["reason"] = read_label(c, 4096)
    return out


def read_message(c):
    out = {"offset": c.uvarint(), "state": read_field(c, 16)}
    need(out["state"] in (1, 2, 4, 8, 16), "value")
    out |= {"attempts": c.u32(), "due": c.varint(), "expires": c.varint(), "consumer": read_label(c)}
    out |= {"reason": read_field(c, 3), "error": read_label(c, 256), "at": c.varint(), "append_time": c.varint()}
    out |= {"generation": c.uvarint(), "priority": read_field(c, 9)}
    has = read_field(c, 3)
    out["key"] = c.blob().hex() if has & 1 else None
    out["value"] = c.blob().hex() if has & 2 else None
    return out | {"headers": c.blob().hex()}


LISTS = {"blobs": lambda c: c.blob().hex(), "sums": lambda c: c.fixed("q"), "entries": lambda c: read_entry(c)}
LISTS |= {"numbers": lambda c: c.fixed("I"), "offsets": lambda c: c.fixed("Q"), "runs": read_run, "messages": read_message}
OF_QUEUES = {"label": read_label, "name_or_none": read_name_or_none, "position": read_position, "offset": lambda c: c.fixed("Q")}
OF_QUEUES |= {"settings": lambda c: read_settings(c), "totals": lambda c: read_totals(c), "blob": lambda c: c.blob().hex()}


def read_details(c):
    """Ascending keys; those without a name here are of a newer peer and passed over."""
    out, last = {}, 0
    for _ in range(c.fixed("B")):
        key, value = c.fixed("B"), c.fixed("Q")
        need(key > last and (key != 6 or value < 1 << 32), "value")
        last = key
        if key <= len(DETAILS):
            out[DETAILS[key - 1]] = value
    return out


def read_body(name, flags, raw):
    fields = next(fields for other, fields in FRAMES.values() if other == name)
    known = sum({f[2] for f in fields if len(f) > 2 and isinstance(f[2], int)}) | OTHER_FLAGS.get(name, 0)
    need(flags & ~known == 0, "unsupported")
    c = Cursor(raw)
    out = read_fields(c, fields, flags)
    c.end()
    if name == "hello":
        need(out["version_min"] <= out["version_max"], "value")
    elif name == "hello_ok":
        out["limits"] = {key: out.pop(key) for key in [k for k in out if k.startswith("max_")]}
    elif name == "error":
        need(out["code"] and out["class"], "value")
    elif name == "gap":
        need(out["from"] < out["to"] and out["reason"], "value")
    elif name == "publish":
        for part in {"conditions", "derives"} & set(out):
            indexes = [x["record"] for x in out[part]]
            need(indexes and indexes == sorted(set(indexes)), "value")
        need(all(x["op"] for x in out.get("derives", [])), "value")
    elif name in ("published", "log_info"):
        need(not flags or out.get("sums") or out.get("keep"), "value")
    elif name == "get":
        need(0 < len(out["keys"]) <= 1024, "value")
    elif name == "list":
        need(0 < out["limit"] <= 10_000, "value")
    elif name == "watch":
        need(out["start"] == 1 or not (out["offset"] or out["generation"]), "value")
    elif name in ENTRIES_OF:
        kinds, least = ENTRIES_OF[name]
        need(least <= len(out["entries"]) <= (1024 if name == "got" else 10_000), "value")
        need(all(e["kind"] in kinds for e in out["entries"]), "value")
    elif name == "commit":
        need(out["shards"], "value")
    elif name == "trim":
        need(out["kind"] >= 2, "value")
    elif name == "subscribe":
        need(out["shards"] and all(s["kind"] >= 2 or s["at"] == 0 for s in out["shards"]), "value")
    elif name in QUEUE_RULES:
        need(QUEUE_RULES[name](out), "value")
    return out


def rising(numbers):
    return all(a < b for a, b in zip(numbers, numbers[1:]))


# What must be so of the bodies of queues, beyond what their fields say.
QUEUE_RULES = {
    "consume": lambda f: f["max_in_flight"] <= 100_000 and f["concurrency"] and f["shards"],
    "messages": lambda f: rising([a["index"] for a in f["attempts"]]) and all(a["attempt"] >= 2 for a in f["attempts"]),
    "settle": lambda f: 0 < len(f["runs"]) <= 4096 and sum(r["count"] for r in f["runs"]) <= 65_536,
    "settled": lambda f: len(f["failed"]) <= 65_536 and all(x["code"] for x in f["failed"]),
    "extend": lambda f: f["for_us"] <= 12 * 3_600_000_000 and 0 < len(f["tokens"]) <= 65_536,
    "extended": lambda f: len(f["failed"]) <= 65_536 and all(x["code"] for x in f["failed"]),
    "flow": lambda f: f["max_in_flight"] <= 100_000,
    "group_command": lambda f: f["op"] and (f["group"] or f["op"] >= 10) and len(f["offsets"]) <= 10_000,
    "group_query": lambda f: 0 < f["limit"] <= 1000,
    "group_infos": lambda f: len(f["infos"]) <= 1000,
    "browse": lambda f: f["states"]
    and (f["states"] == 16) == (not f["group"])
    and (f["states"] < 16 or f["states"] == 16)
    and 0 < f["limit"] <= 1000
    and max(len(f.get("header", "").encode()), len(f.get("header_value", "")) // 2) <= LIMITS["header_bytes"],
    "browsed": lambda f: len(f["messages"]) <= 1000,
}


def check_frame(raw, _):
    c = Cursor(raw)
    need(c.fixed("H") == 0x474D, "magic")
    kind, flags, size, corr = c.fixed("B"), c.fixed("B"), c.fixed("I"), c.fixed("Q")
    need(size <= 16 << 20 and size == c.left(), "size")
    need(kind in FRAMES, "unsupported")
    name = FRAMES[kind][0]
    return {"type": kind, "name": name, "flags": flags, "corr": corr, "body": read_body(name, flags, c.take(size))}


def check_refused(path):
    for line in path.read_text().splitlines():
        vector, _, about = line.partition("#")
        if not vector.strip():
            continue
        kind, _, body = vector.strip().partition(" ")
        name, _, flags = kind.partition("+")
        try:
            read = read_body(name, int(flags or "0", 16), bytes.fromhex(body))
            yield f"{path.name}: {kind} is to be refused ({about.strip()}), read as {read}"
        except Refused:
            pass


# ---- hash.json -----------------------------------------------------------------------------------------------

P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def rotl(v, n):
    v &= U64
    return ((v << n) | (v >> (64 - n))) & U64


def xxhash64(data):
    """XXH64 with seed 0."""

    def mix(acc, lane):
        return rotl(acc + lane * P2, 31) * P1 & U64

    c = Cursor(data)
    h = P5
    if len(data) >= 32:
        acc = [(P1 + P2) & U64, P2, 0, -P1 & U64]
        while c.left() >= 32:
            acc = [mix(a, c.fixed("Q")) for a in acc]
        h = sum(rotl(a, n) for a, n in zip(acc, (1, 7, 12, 18)))
        for a in acc:
            h = ((h ^ mix(0, a)) * P1 + P4) & U64
    h += len(data)
    while c.left() >= 8:
        h = (rotl(h ^ mix(0, c.fixed("Q")), 27) * P1 + P4) & U64
    if c.left() >= 4:
        h = (rotl(h ^ (c.fixed("I") * P1), 23) * P2 + P3) & U64
    while c.left():
        h = rotl(h ^ (c.fixed("B") * P5), 11) * P1 & U64
    h &= U64
    h = (h ^ (h >> 33)) * P2 & U64
    h = (h ^ (h >> 29)) * P3 & U64
    return h ^ (h >> 32)


def check_hashes(path):
    for v in json.loads(path.read_text()):
        h = xxhash64(bytes.fromhex(v["key"]))
        if f"{h:016x}" != v["hash"] or h % v["shards"] != v["shard"]:
            yield f"{path.name}: key {v['key']} hashes to {h:016x}, shard {h % v['shards']} of {v['shards']}, not {v}"


# ---- frames.md, TLS over TCP --------------------------------------------------------------------------------

MESSAGES = ["accepted", "refused", "alive", "reset", "stop", "done", "close"]


def read_preface(raw):
    if len(raw) != 48:
        raise Refused("size")
    magic, version, kind, reserved, session, lane = struct.unpack("<4sBBH32sQ", raw)
    if magic != b"MMGS" or version != 1 or reserved or kind not in (1, 2) or (kind == 2) != (lane != 0) or not any(session):
        raise Refused("preface")
    return {"kind": ["new", "join"][kind - 1], "session": session.hex(), "lane": lane}


def read_message(raw):
    if len(raw) < 16:
        raise Refused("size")
    kind, reserved, code, size, lane = struct.unpack("<BBHIQ", raw[:16])
    if reserved or not 1 <= kind <= len(MESSAGES) or size > 1024 or len(raw) != 16 + size:
        raise Refused("message")
    name = MESSAGES[kind - 1]
    sound = {
        "accepted": code == 0 and size == 0,
        "refused": code != 0 and lane == 0,
        "alive": code <= 1 and lane == 0 and size == 0,
        "reset": lane != 0 and size == 0,
        "stop": lane != 0 and size == 0,
        "done": code == 0 and lane != 0 and size == 0,
        "close": lane == 0,
    }
    if not sound[name]:
        raise Refused(name)
    try:
        text = raw[16:].decode()
    except UnicodeDecodeError as err:
        raise Refused("text") from err
    return {"kind": name, "code": code, "lane": lane, "text": text}


def check_link(raw, want):
    return read_preface(raw) if want["form"] == "preface" else read_message(raw)


def check_refused_links(path):
    for v in json.loads(path.read_text()):
        try:
            got = check_link(bytes.fromhex(v["hex"]), v)
        except Refused:
            continue
        yield f"link/{path.name}: {v['why']} is read as {got}"


# ---- all vectors ---------------------------------------------------------------------------------------------

# One reader for each directory of vectors: reader(bytes, wanted meaning) -> meaning; raises Refused(rule).
READERS = {
    "batch": check_batch,
    "frames": check_frame,
    "keyindex": check_keyindex,
    "link": check_link,
    "segment": check_segment,
}


def check_vector(reader, path):
    """Yields what is wrong with one vector; "about" and "form" describe it and are no part of the meaning."""
    want = json.loads(path.with_suffix(".json").read_text())
    raw = bytes.fromhex(path.read_text())
    try:
        got = reader(raw, want)
    except Refused as refused:
        got = {"error": str(refused)}
    want = {k: v for k, v in want.items() if k not in ("about", "form")}
    if got != want:
        yield f"{path.parent.name}/{path.stem}: read as\n  {got}\nwanted\n  {want}"


def check_all(root):
    checked, wrong = 0, list(check_hashes(root / "hash.json")) + list(check_refused(root / "frames" / "refused.txt"))
    wrong += check_refused_links(root / "link" / "refused.json")
    for directory in sorted(p for p in root.iterdir() if p.is_dir()):
        reader = READERS.get(directory.name)
        if reader is None:
            wrong.append(f"{directory.name}/: no reader for these vectors")
            continue
        for path in sorted(directory.glob("*.hex")):
            checked += 1
            wrong += check_vector(reader, path)
    return checked, wrong


def main():
    default = Path(__file__).resolve().parents[2] / "wire" / "testdata" / "vectors"
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    checked, wrong = check_all(root)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{checked} vectors, {len(wrong)} read differently")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
