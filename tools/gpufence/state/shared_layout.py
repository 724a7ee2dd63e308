"""The layouts of lib/src/state/layout.h and core_layout.h: where each word of a file stands.

Numbers only. tests/state/shared_layout.cpp prints the C++ side and a test compares every one of
them, so that a change on one side alone fails. Must not know files, processes or commands.
"""

from __future__ import annotations

NO_LIMIT = 2**64 - 1

# ---- both kinds ----

HEADER_BYTES = 64
PROCESS_BYTES = 64
# ProcessRecord: pid, uid, start_ticks, pid_namespace.
PROCESS_FORMAT = "<IIQQ40x"
UUID_AT = 8  # in a row of either kind, behind its key
# Locks lie behind the bytes (lib/src/state/owner.cpp): one byte for each slot or member.
LOCK_BASE = 1 << 40

# ---- a container's region ----

REGION_MAGIC = 0x3165636E65667067
REGION_VERSION = 5
MAX_PROCESSES = 4096
MAX_DEVICES = 64
# RegionHeader: magic, layout_version, max_processes, max_devices, high_slot.
REGION_HEADER_FORMAT = "<QIIII"
LIMIT_EPOCH_AT = 24
SET_GENERATION_AT = 28
RATIO_UNIT = 1000  # lib/src/policy/oversubscribe.h
ORPHAN_BITS = 44  # lib/src/state/sharing.cpp: bytes below, a number of changes above

ROWS_AT = HEADER_BYTES
ROW_BYTES = 128
ROW_ORPHANS_AT = 32
CELL_BYTES = 16
CELL_FORMAT = "<QQ"  # held, asking
CEILINGS_FORMAT = "<QQ"  # memory_bytes, shares
ACTIVITY_BYTES = 32
ACTIVITY_FORMAT = "<QQQ8x"  # refusals, launches_held, held_ns

_WORDS = 8 * MAX_DEVICES * MAX_PROCESSES
PROCESSES_AT = ROWS_AT + ROW_BYTES * MAX_DEVICES
LIMITS_AT = PROCESSES_AT + PROCESS_BYTES * MAX_PROCESSES
OVERHEAD_AT = LIMITS_AT + _WORDS
CELLS_AT = OVERHEAD_AT + _WORDS
SHARES_AT = CELLS_AT + 2 * _WORDS
ACTIVITY_AT = SHARES_AT + 2 * _WORDS
PAST_AT = ACTIVITY_AT + 4 * _WORDS
_RESIDENT_ROWS_AT = PAST_AT + ACTIVITY_BYTES * MAX_DEVICES
RESIDENT_AT = _RESIDENT_ROWS_AT + 64 * MAX_DEVICES
RATIOS_AT = RESIDENT_AT + 2 * _WORDS
CEILINGS_AT = RATIOS_AT + _WORDS
REGION_BYTES = CEILINGS_AT + 2 * _WORDS

# ---- a limits file ----

LIMITS_MAGIC = 0x31746D696C667067
LIMITS_VERSION = 3
MAX_LIMITS_ENTRIES = 64
# LimitsHeader: magic, layout_version, max_entries, generation, container.
LIMITS_HEADER_FORMAT = "<QIIQQ32x"
LIMITS_GENERATION_AT = 16
# LimitsBank: check, generation, count; then its terms and entries.
LIMITS_BANK_FORMAT = "<QQI4x"
# LimitsTerms: burst_ns, floor, weight, priority, flags.
LIMITS_TERMS_FORMAT = "<QIIII"
# LimitsEntry: uuid, memory, oversubscribe, cores, soft_cores, flags.
LIMITS_ENTRY_FORMAT = "<16sQQIII4x"
LIMITS_BANK_BYTES = 24 + 24 + 48 * MAX_LIMITS_ENTRIES
LIMITS_BYTES = HEADER_BYTES + 2 * LIMITS_BANK_BYTES
MEMORY_IS_SET = 1
MEMORY_IS_PART = 2
CORES_ARE_SET = 4
SOFT_CORES_ARE_SET = 8
OVERSUBSCRIBE_IS_SET = 16
PRIORITY_IS_SET = 1
WEIGHT_IS_SET = 2
BURST_IS_SET = 4
FLOOR_IS_SET = 8
IS_FROZEN = 16

# ---- a core file ----

CORE_MAGIC = 0x3165726F63706667
CORE_VERSION = 4
MAX_CORE_ROWS = 64
MAX_CORE_TENANTS = 64
MAX_CORE_MEMBERS = 2048
OWN_TENANT = 0
# CoreHeader: magic, layout_version, max_rows, max_tenants, max_members, high_member.
CORE_HEADER_FORMAT = "<QIIIII"

CORE_ROWS_AT = HEADER_BYTES
CORE_ROW_BYTES = 128
# CoreRow: key, uuid, turn, virtual_ns, foreign_ns, author, is_deep.
CORE_ROW_FORMAT = "<Q16sQQQQ24xQ40x"
# CoreTenant: key, due_ns, charged_until_ns, shares, shares_checked_ns, backlog_ns, active_ns,
# served_ns, 16 gaps, charged_ns, then 15 words and 48 runs.
CORE_TENANT_BYTES = 704
CORE_TENANT_FORMAT = "<QQ8xQ8xQQQ128xQ504x"
# CoreMember: tenant, shares, beat, wanted_ns, idle_ns.
CORE_MEMBER_BYTES = 64
CORE_MEMBER_FORMAT = "<I4xQQQQ24x"
# lib/src/policy/turn.cpp: the tenant's number plus 1, whether it is closing, when it began.
TURN_TENANT_MASK = 0xFF
TURN_CLOSING = 0x100
TURN_BEGAN_SHIFT = 9

CORE_PROCESSES_AT = CORE_ROWS_AT + CORE_ROW_BYTES * MAX_CORE_ROWS
TENANTS_AT = CORE_PROCESSES_AT + PROCESS_BYTES * MAX_CORE_MEMBERS
MEMBERS_AT = TENANTS_AT + CORE_TENANT_BYTES * MAX_CORE_TENANTS * MAX_CORE_ROWS
CORE_BYTES = MEMBERS_AT + CORE_MEMBER_BYTES * MAX_CORE_MEMBERS * MAX_CORE_ROWS

# ---- a notice ----

NOTICE_MAGIC = 0x326E727574706667
NOTICE_VERSION = 2
NOTICE_BYTES = 520
# Notice: magic, author, device, holder, shares, charged_ns, check; 48 runs before the last.
NOTICE_FORMAT = "<QQQ8xQ56xQ8xQ392xQ"

# ---- what is kept of a GPU's pauses ----

KEPT_PAUSES_MAGIC = 0x7365737561706667
KEPT_PAUSES_VERSION = 1
KEPT_PAUSES_BYTES = 112
# KeptPauses: magic, version, uuid, driver, measured_s, eight pauses, check.
KEPT_PAUSES_FORMAT = "<QI4x16s32sQ8IQ"

# ---- a container's terms (PackTerms), in a tenant and in a notice ----

CORE_TENANT_TERMS_AT = 240
NOTICE_TERMS_AT = 120
