"""The one schema of every database file here, as an ordered list of migrations.

`user_version` counts the migrations that a file has seen. A file that has seen more than this list
holds is refused: a newer Huginn wrote it. Each room owns a file of its own; the parts of the schema
that a room does not use stay empty and cost a page each.
"""

from __future__ import annotations

from typing import Final

# "Hugn": tells our files from any other SQLite database.
APPLICATION_ID: Final = 0x4875676E

_FIRST: Final = """
CREATE TABLE namespaces (
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;
-- `body` is NULL when the bytes lie in a file of their own.
CREATE TABLE objects (
  number INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  bytes INTEGER NOT NULL CHECK (bytes >= 0),
  body BLOB,
  UNIQUE (digest, kind)
) STRICT;
CREATE INDEX objects_bytes ON objects (bytes);
CREATE TABLE members (
  namespace INTEGER NOT NULL REFERENCES namespaces,
  object INTEGER NOT NULL REFERENCES objects,
  PRIMARY KEY (namespace, object)
) STRICT, WITHOUT ROWID;
CREATE INDEX members_object ON members (object);
-- A head names a member of its own namespace: a committed reference always finds its object.
CREATE TABLE heads (
  namespace INTEGER NOT NULL,
  name TEXT NOT NULL,
  object INTEGER NOT NULL,
  PRIMARY KEY (namespace, name),
  FOREIGN KEY (namespace, object) REFERENCES members
) STRICT, WITHOUT ROWID;
CREATE INDEX heads_member ON heads (namespace, object);
-- `place` orders the keys of one table by first insertion.
CREATE TABLE keyed (
  name TEXT NOT NULL,
  key BLOB NOT NULL,
  value BLOB NOT NULL,
  place INTEGER NOT NULL,
  UNIQUE (name, key),
  UNIQUE (name, place)
) STRICT;
CREATE TABLE logs (
  name TEXT NOT NULL,
  seq INTEGER NOT NULL CHECK (seq >= 1),
  previous BLOB NOT NULL CHECK (length(previous) = 32),
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  body BLOB NOT NULL,
  UNIQUE (name, seq)
) STRICT;
"""

_EVENT_LOGS: Final = """
-- What is kept of a source: numbers `first` … `head`. `id` is that of the entry at the head,
-- `before` that of the entry before the first kept one: NULL where there never was such an entry.
CREATE TABLE event_sources (
  number INTEGER PRIMARY KEY,
  source BLOB NOT NULL UNIQUE CHECK (length(source) = 32),
  first INTEGER NOT NULL CHECK (first >= 1),
  head INTEGER NOT NULL CHECK (head >= first - 1),
  before BLOB CHECK (length(before) = 32),
  id BLOB CHECK (length(id) = 32)
) STRICT;
-- `crc` is the CRC-32 of `body`: an id does not cover the signature.
CREATE TABLE events (
  source INTEGER NOT NULL REFERENCES event_sources,
  seq INTEGER NOT NULL CHECK (seq >= 1),
  id BLOB NOT NULL CHECK (length(id) = 32),
  hlc INTEGER NOT NULL,
  kind TEXT NOT NULL,
  body BLOB NOT NULL,
  crc INTEGER NOT NULL,
  UNIQUE (source, seq)
) STRICT;
-- Entries beside the log: a source that signed them is not honest.
CREATE TABLE event_evidence (
  source BLOB NOT NULL CHECK (length(source) = 32),
  seq INTEGER NOT NULL CHECK (seq >= 1),
  id BLOB NOT NULL CHECK (length(id) = 32),
  hlc INTEGER NOT NULL,
  kind TEXT NOT NULL,
  body BLOB NOT NULL,
  crc INTEGER NOT NULL,
  UNIQUE (source, seq, id)
) STRICT;
"""

MIGRATIONS: Final[tuple[str, ...]] = (_FIRST, _EVENT_LOGS)
