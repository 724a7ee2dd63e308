// sources: state/identity.cpp state/owner.cpp policy/turn.cpp policy/share.cpp
// Prints where the words of a region and of a core file stand, under the names that the command
// line's reader gives them (tools/gpufence/state/shared_layout.py), and what packed words are.
#include <stddef.h>
#include <stdio.h>

#include "policy/turn.h"
#include "state/core_layout.h"
#include "state/identity.h"
#include "state/kept_pauses.h"
#include "state/layout.h"
#include "state/limits_layout.h"
#include "state/notice.h"

namespace {

using namespace gpufence;  // NOLINT(google-build-using-namespace): a test program

struct Number {
  const char* name;
  uint64_t value;
};

constexpr Number kNumbers[] = {
    {"NO_LIMIT", kNoLimit},
    {"HEADER_BYTES", sizeof(RegionHeader)},
    {"PROCESS_BYTES", sizeof(ProcessRecord)},
    {"UUID_AT", offsetof(DeviceRow, uuid)},
    {"REGION_MAGIC", kRegionMagic},
    {"REGION_VERSION", kLayoutVersion},
    {"MAX_PROCESSES", kMaxProcesses},
    {"MAX_DEVICES", kMaxDevices},
    {"ROWS_AT", offsetof(Region, rows)},
    {"ROW_BYTES", sizeof(DeviceRow)},
    {"ROW_ORPHANS_AT", offsetof(DeviceRow, orphans)},
    {"CELL_BYTES", sizeof(Cell)},
    {"ACTIVITY_BYTES", sizeof(Activity)},
    {"PROCESSES_AT", offsetof(Region, processes)},
    {"LIMITS_AT", offsetof(Region, limits)},
    {"OVERHEAD_AT", offsetof(Region, overhead)},
    {"CELLS_AT", offsetof(Region, cells)},
    {"SHARES_AT", offsetof(Region, shares)},
    {"ACTIVITY_AT", offsetof(Region, activity)},
    {"PAST_AT", offsetof(Region, past)},
    {"RESIDENT_AT", offsetof(Region, resident)},
    {"RATIOS_AT", offsetof(Region, ratios)},
    {"CEILINGS_AT", offsetof(Region, ceilings)},
    {"REGION_BYTES", sizeof(Region)},
    {"LIMIT_EPOCH_AT", offsetof(RegionHeader, limit_epoch)},
    {"SET_GENERATION_AT", offsetof(RegionHeader, set_generation)},
    {"LIMITS_MAGIC", kLimitsMagic},
    {"LIMITS_VERSION", kLimitsLayoutVersion},
    {"MAX_LIMITS_ENTRIES", kMaxLimitsEntries},
    {"LIMITS_GENERATION_AT", offsetof(LimitsHeader, generation)},
    {"LIMITS_BANK_BYTES", sizeof(LimitsBank)},
    {"LIMITS_BYTES", sizeof(LimitsBytes)},
    {"MEMORY_IS_SET", kMemoryIsSet},
    {"MEMORY_IS_PART", kMemoryIsPart},
    {"CORES_ARE_SET", kCoresAreSet},
    {"SOFT_CORES_ARE_SET", kSoftCoresAreSet},
    {"OVERSUBSCRIBE_IS_SET", kOversubscribeIsSet},
    {"PRIORITY_IS_SET", kPriorityIsSet},
    {"WEIGHT_IS_SET", kWeightIsSet},
    {"BURST_IS_SET", kBurstIsSet},
    {"FLOOR_IS_SET", kFloorIsSet},
    {"IS_FROZEN", kIsFrozen},
    {"CORE_MAGIC", kCoreMagic},
    {"CORE_VERSION", kCoreLayoutVersion},
    {"MAX_CORE_ROWS", kMaxCoreRows},
    {"MAX_CORE_TENANTS", kMaxCoreTenants},
    {"MAX_CORE_MEMBERS", kMaxCoreMembers},
    {"OWN_TENANT", kOwnTenant},
    {"CORE_ROWS_AT", offsetof(CoreRegion, rows)},
    {"CORE_ROW_BYTES", sizeof(CoreRow)},
    {"CORE_TENANT_BYTES", sizeof(CoreTenant)},
    {"CORE_TENANT_TERMS_AT", offsetof(CoreTenant, terms)},
    {"CORE_MEMBER_BYTES", sizeof(CoreMember)},
    {"CORE_PROCESSES_AT", offsetof(CoreRegion, processes)},
    {"TENANTS_AT", offsetof(CoreRegion, tenants)},
    {"MEMBERS_AT", offsetof(CoreRegion, members)},
    {"CORE_BYTES", sizeof(CoreRegion)},
    {"NOTICE_MAGIC", kNoticeMagic},
    {"NOTICE_VERSION", kNoticeVersion},
    {"NOTICE_BYTES", sizeof(Notice)},
    {"NOTICE_TERMS_AT", offsetof(Notice, terms)},
    {"KEPT_PAUSES_MAGIC", kKeptPausesMagic},
    {"KEPT_PAUSES_VERSION", kKeptPausesVersion},
    {"KEPT_PAUSES_BYTES", sizeof(KeptPauses)},
};

// Each record as Python unpacks it: the offsets of the fields that a format reads, in its order.
struct Fields {
  const char* name;
  size_t at[14];
  size_t count;
};

constexpr Fields kFields[] = {
    {"PROCESS_FORMAT",
     {offsetof(ProcessRecord, pid), offsetof(ProcessRecord, uid),
      offsetof(ProcessRecord, start_ticks), offsetof(ProcessRecord, pid_namespace)},
     4},
    {"REGION_HEADER_FORMAT",
     {offsetof(RegionHeader, magic), offsetof(RegionHeader, layout_version),
      offsetof(RegionHeader, max_processes), offsetof(RegionHeader, max_devices),
      offsetof(RegionHeader, high_slot)},
     5},
    {"CELL_FORMAT", {offsetof(Cell, held), offsetof(Cell, asking)}, 2},
    {"CEILINGS_FORMAT", {offsetof(Ceilings, memory_bytes), offsetof(Ceilings, shares)}, 2},
    {"ACTIVITY_FORMAT",
     {offsetof(Activity, refusals), offsetof(Activity, launches_held), offsetof(Activity, held_ns)},
     3},
    {"LIMITS_HEADER_FORMAT",
     {offsetof(LimitsHeader, magic), offsetof(LimitsHeader, layout_version),
      offsetof(LimitsHeader, max_entries), offsetof(LimitsHeader, generation),
      offsetof(LimitsHeader, container)},
     5},
    {"LIMITS_BANK_FORMAT",
     {offsetof(LimitsBank, check), offsetof(LimitsBank, generation), offsetof(LimitsBank, count)},
     3},
    {"LIMITS_TERMS_FORMAT",
     {offsetof(LimitsTerms, burst_ns), offsetof(LimitsTerms, floor), offsetof(LimitsTerms, weight),
      offsetof(LimitsTerms, priority), offsetof(LimitsTerms, flags)},
     5},
    {"LIMITS_ENTRY_FORMAT",
     {offsetof(LimitsEntry, uuid), offsetof(LimitsEntry, memory),
      offsetof(LimitsEntry, oversubscribe), offsetof(LimitsEntry, cores),
      offsetof(LimitsEntry, soft_cores), offsetof(LimitsEntry, flags)},
     6},
    {"CORE_HEADER_FORMAT",
     {offsetof(CoreHeader, magic), offsetof(CoreHeader, layout_version),
      offsetof(CoreHeader, max_rows), offsetof(CoreHeader, max_tenants),
      offsetof(CoreHeader, max_members), offsetof(CoreHeader, high_member)},
     6},
    {"CORE_ROW_FORMAT",
     {offsetof(CoreRow, key), offsetof(CoreRow, uuid), offsetof(CoreRow, turn),
      offsetof(CoreRow, virtual_ns), offsetof(CoreRow, foreign_ns), offsetof(CoreRow, author),
      offsetof(CoreRow, is_deep)},
     7},
    {"NOTICE_FORMAT",
     {offsetof(Notice, magic), offsetof(Notice, author), offsetof(Notice, device),
      offsetof(Notice, holder), offsetof(Notice, shares), offsetof(Notice, charged_ns),
      offsetof(Notice, check)},
     7},
    {"KEPT_PAUSES_FORMAT",
     {offsetof(KeptPauses, magic), offsetof(KeptPauses, version), offsetof(KeptPauses, gpu.uuid),
      offsetof(KeptPauses, gpu.driver), offsetof(KeptPauses, measured_s),
      offsetof(KeptPauses, pauses.launch_gap_ns), offsetof(KeptPauses, pauses.step_gap_ns),
      offsetof(KeptPauses, pauses.marker_gap_ns), offsetof(KeptPauses, pauses.around_run_ns),
      offsetof(KeptPauses, pauses.queued_gap_ns), offsetof(KeptPauses, pauses.start_ns),
      offsetof(KeptPauses, pauses.end_marker_ns), offsetof(KeptPauses, pauses.wide_gap_ns),
      offsetof(KeptPauses, check)},
     14},
    {"CORE_TENANT_FORMAT",
     {offsetof(CoreTenant, key), offsetof(CoreTenant, due_ns), offsetof(CoreTenant, shares),
      offsetof(CoreTenant, backlog_ns), offsetof(CoreTenant, active_ns),
      offsetof(CoreTenant, served_ns), offsetof(CoreTenant, charged_ns)},
     7},
    {"CORE_MEMBER_FORMAT",
     {offsetof(CoreMember, tenant), offsetof(CoreMember, shares), offsetof(CoreMember, beat),
      offsetof(CoreMember, wanted_ns), offsetof(CoreMember, idle_ns)},
     5},
};

}  // namespace

int main() {
  printf("{\"numbers\": {");
  const char* comma = "";
  for (const Number& number : kNumbers) {
    printf("%s\"%s\": %llu", comma, number.name, static_cast<unsigned long long>(number.value));
    comma = ", ";
  }
  printf("}, \"fields\": {");
  comma = "";
  for (const Fields& fields : kFields) {
    printf("%s\"%s\": [", comma, fields.name);
    for (size_t i = 0; i < fields.count; ++i) printf("%s%zu", i == 0 ? "" : ", ", fields.at[i]);
    printf("]");
    comma = ", ";
  }
  printf("}, \"turn\": %llu, \"free_turn\": %llu, \"shares\": %llu, \"hash\": %llu}\n",
         static_cast<unsigned long long>(PackTurn({5, true, 123456789})),
         static_cast<unsigned long long>(PackTurn({kNoTenant, false, 7})),
         static_cast<unsigned long long>(PackShares({30'000, 60'000})),
         static_cast<unsigned long long>(HashText("web-1")));
  return 0;
}
