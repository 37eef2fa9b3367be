"""Every size, count and time limit of the protocol, with the reason for its value."""

# Nesting of one encoded value. Records nest to about 8; 64 leaves room and bounds recursion.
DEPTH_MAX = 64
# One encoded record, in bytes. Larger content is stored as chunks of this size at most.
RECORD_BYTES_MAX = 16 * 1024 * 1024
# One message between rooms, in bytes: a batch of objects plus its envelope.
MESSAGE_BYTES_MAX = 80 * 1024 * 1024
# Content of one block, in bytes: as large as a record may be, less its framing.
CONTENT_BYTES_MAX = RECORD_BYTES_MAX - 1024
# Blocks of one sequence. 10^6 is what the growth bench measures.
BLOCKS_MAX = 1_000_000
# An HTTP body, in bytes (the limit that clients are told).
BODY_BYTES_MAX = 64 * 1024 * 1024

# Capability chains: eight links carry operator → principal → gateway → four rooms, with one spare.
CHAIN_LINKS_MAX = 8
# One signed capability, in bytes. A payload with all caveats is about 500.
CAPABILITY_BYTES_MAX = 4096
CAVEATS_MAX = 32
# The longest lifetime of any handle: a year, after which it has to be issued again.
CAPABILITY_LIFETIME_NS_MAX = 366 * 24 * 3600 * 10**9
# A handle attenuated for one turn.
TURN_HANDLE_LIFETIME_NS = 60 * 10**9
# Clock difference that an invocation may show, either way.
INVOCATION_SKEW_NS_MAX = 30 * 10**9
# How far above what it accepted a door's high mark is kept: it is written once in this time at
# most, and a room that comes back sooner after its last message waits for the rest of it.
MARK_AHEAD_NS = 10**9
# One signed invocation, in bytes: two names of 255 characters and 250 bytes beside them.
INVOCATION_BYTES_MAX = 1024
# Nonces that one room remembers: 4,000 invocations per second for the minute they are kept.
NONCES_MAX = 2**18

# One event, encoded, in bytes: a text of 1 MiB and the fields around it.
EVENT_BYTES_MAX = 2 * 1024 * 1024
# One entry of a log as it was signed: an event, its signature and 24 bytes of framing.
ENTRY_BYTES_MAX = EVENT_BYTES_MAX + 256
# What an event is about, and the stages of a transition: names, in one line of a reminder.
SUBJECT_CHARS_MAX = 1024
STAGE_CHARS_MAX = 255
# Entries of one source that wait for the ones before them, and their bytes.
PARKED_MAX = 1024
PARKED_BYTES_MAX = 32 * 1024 * 1024
# Entries of one source that are kept as evidence of equivocation: one would do to convict.
EQUIVOCATIONS_MAX = 64

# The budget of one reminder, in tokens. Below, not even its fence and a count would fit; above, it
# would be most of a context.
RENDER_TOKENS_MIN = 64
RENDER_TOKENS_MAX = 100_000
