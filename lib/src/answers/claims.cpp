// Claims, limits and sources, as JSON; and what applies of everything that is claimed, for people
// who have no GPU at hand: a row for each kind and each GPU that somebody names.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers/answers.h"
#include "base/log.h"
#include "config/device_limits.h"
#include "config/gpu_names.h"
#include "config/options.h"

namespace gpufence {
namespace {

constexpr ClaimKind kKinds[] = {ClaimKind::kMemory, ClaimKind::kCores, ClaimKind::kSoftCores,
                                ClaimKind::kOversubscribe, ClaimKind::kSpill};

// The GPU that a claim names; nothing else is known of it.
DeviceIdentity DeviceOf(const Claim& claim) {
  DeviceIdentity device{};
  device.ordinal = claim.target == ClaimTarget::kOrdinal ? claim.index : kInvisible;
  device.nvml_index =
      claim.target == ClaimTarget::kNvmlIndex ? static_cast<int32_t>(claim.index) : -1;
  device.lacks_uuid = claim.target != ClaimTarget::kUuid;
  if (!device.lacks_uuid) memcpy(device.uuid, claim.uuid, sizeof device.uuid);
  return device;
}

// How the GPUs that two claims name are ordered; 0: it is the same one.
int Compare(const Claim& one, const Claim& other) {
  if (one.target != other.target) return one.target < other.target ? -1 : 1;
  if (one.target == ClaimTarget::kUuid) return memcmp(one.uuid, other.uuid, sizeof one.uuid);
  if (one.target == ClaimTarget::kEvery || one.index == other.index) return 0;
  return one.index < other.index ? -1 : 1;
}

bool HasKind(const Claims& claims, ClaimKind kind) {
  for (size_t i = 0; i < claims.count; ++i) {
    if (claims.claims[i].kind == kind) return true;
  }
  return false;
}

// A soft share depends on the hard one, which may be another GPU by GPU.
bool Names(const Claim& claim, ClaimKind kind) {
  return claim.kind == kind || (kind == ClaimKind::kSoftCores && claim.kind == ClaimKind::kCores);
}

// The claim whose GPU comes next behind that of `before` (null: the first); null: there is none.
const Claim* NextNamed(const Claims& claims, ClaimKind kind, const Claim* before) {
  const Claim* next = nullptr;
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& claim = claims.claims[i];
    if (!Names(claim, kind) || (before != nullptr && Compare(claim, *before) <= 0)) continue;
    if (next == nullptr || Compare(claim, *next) < 0) next = &claim;
  }
  return next;
}

// Parts of a GPU and bytes cannot be compared without the GPU.
bool Depends(const ByDialect& said) {
  size_t named = 0;
  bool any_part = false;
  for (const Chosen& chosen : said.of) {
    if (chosen.claim == nullptr || chosen.claim->amount == 0) continue;
    ++named;
    any_part = any_part || chosen.claim->percent_of_device;
  }
  return named > 1 && any_part;
}

const Claim* Applies(const Claims& claims, ClaimKind kind, const DeviceIdentity& device,
                     const ByDialect& said) {
  Conflict ignored;
  if (kind != ClaimKind::kSoftCores) {
    return Depends(said) ? nullptr : LowestOf(said, &ignored).claim;
  }
  const ByDialect bounds = ChooseInDialects(claims, ClaimKind::kCores, device);
  const Chosen hard = LowestOf(bounds, &ignored);
  const Chosen rise = LowestOf(RiseOf(bounds, said), &ignored);
  return hard.claim != nullptr && rise.amount > hard.amount ? rise.claim : nullptr;
}

size_t IndexOf(const Claims& claims, const Claim* claim) {
  return static_cast<size_t>(claim - claims.claims);
}

void WriteRow(const Claims& claims, ClaimKind kind, const Claim& named, JsonText* json) {
  const DeviceIdentity device = DeviceOf(named);
  const ByDialect said = ChooseInDialects(claims, kind, device);
  const Claim* applies = Applies(claims, kind, device, said);
  json->Comma();
  json->Raw("[");
  json->Number(static_cast<uint64_t>(kind));
  json->Comma();
  json->Number(IndexOf(claims, &named));
  json->Comma();
  if (applies == nullptr) {
    json->Raw("null");
  } else {
    json->Number(IndexOf(claims, applies));
  }
  json->Comma();
  json->Bool(Depends(said));
  json->Raw(",[");
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& claim = claims.claims[i];
    if (claim.kind != kind || &claim == applies || !Concerns(claim, device)) continue;
    json->Comma();
    json->Number(i);
  }
  json->Raw("]]");
}

// What applies of the claims, for each GPU that is named: [kind, the claim that names the GPU,
// the claim that applies or null, whether it depends on the GPU, the other claims].
void WriteRows(const Claims& claims, JsonText* json) {
  json->Raw("[");
  for (const ClaimKind kind : kKinds) {
    if (!HasKind(claims, kind)) continue;
    const Claim* named = NextNamed(claims, kind, nullptr);
    for (; named != nullptr; named = NextNamed(claims, kind, named)) {
      WriteRow(claims, kind, *named, json);
    }
  }
  json->Raw("]");
}

// Too large for a stack.
struct Room {
  Scratch scratch;
  Claims claims;
  DeviceIdentity devices[kMostLimitedDevices];
  DeviceLimits limits[kMostLimitedDevices];
};

constexpr const char* kNoRoom = "no memory to read the limits. Free some";

void WriteRefusal(const char* why, JsonText* json) {
  json->Raw("{");
  json->Key("why");
  json->Text(why);
  json->Raw("}");
}

void WriteClaim(const Claim& claim, JsonText* json) {
  json->Comma();
  json->Raw("[");
  json->Number(static_cast<uint64_t>(claim.kind));
  json->Comma();
  json->Number(static_cast<uint64_t>(claim.target));
  json->Comma();
  json->Bool(claim.percent_of_device);
  json->Comma();
  json->Text(NameOf(static_cast<Dialect>(claim.dialect)));
  json->Comma();
  json->Number(claim.layer);
  json->Comma();
  json->Number(claim.index);
  json->Comma();
  json->Uuid(claim.uuid);
  json->Comma();
  json->Number(claim.amount);
  json->Comma();
  json->Text(claim.source);
  json->Raw("]");
}

const char* WordOf(LogLevel level) {
  constexpr const char* kWords[] = {"off", "error", "warn", "info", "debug", "trace"};
  return kWords[static_cast<int>(level) + 1];
}

// Value and source of each term that is set; an explicit 0 is one.
void WriteTerms(const Claims& claims, const Statements& statements, JsonText* json) {
  struct Term {
    const char* name;
    Setting setting;
    uint64_t value;
    uint64_t none;  // what an explicit 0 is kept as
  };
  const CoreTerms& terms = claims.terms;
  const Term kTerms[] = {{"weight", Setting::kWeight, terms.weight, 0},
                         {"core_burst", Setting::kCoreBurst, terms.burst_ns, kNoBurstNs},
                         {"core_floor", Setting::kCoreFloor, terms.floor, kNoFloor}};
  json->Key("terms");
  json->Raw("{");
  if (claims.priority_source[0] != '\0') {
    json->Key("priority");
    json->Raw("[");
    json->Number(static_cast<uint64_t>(terms.priority));
    json->Comma();
    json->Text(claims.priority_source);
    json->Raw("]");
  }
  for (const Term& term : kTerms) {
    if (term.value == 0) continue;
    char source[kSourceBytes] = "";
    const Statement* own = StatementOf(statements, Dialect::kGpufence, term.setting);
    if (own != nullptr) DescribeStatement(statements, *own, source);
    json->Key(term.name);
    json->Raw("[");
    json->Number(term.value == term.none ? 0 : term.value);
    json->Comma();
    json->Text(source);
    json->Raw("]");
  }
  json->Raw("}");
}

void WriteClaims(const Room& room, JsonText* json) {
  const Claims& claims = room.claims;
  json->Key("claims");
  json->Raw("[");
  for (size_t i = 0; i < claims.count; ++i) WriteClaim(claims.claims[i], json);
  json->Raw("]");
  json->Key("notes");
  json->Raw("[");
  for (size_t i = 0; i < claims.note_count; ++i) {
    json->Comma();
    json->Text(claims.notes[i]);
  }
  json->Raw("]");
  json->Key("process_scope");
  json->Bool(claims.process_scope);
  const struct {
    const char* name;
    const char* text;
  } kTexts[] = {{"container", claims.container},     {"state_folder", claims.state_folder},
                {"node_folder", claims.node_folder}, {"device_name", claims.device_name},
                {"hypervisor", claims.hypervisor},   {"log_level", WordOf(claims.log_level)},
                {"log_file", claims.log_file},       {"mode_source", claims.mode_source}};
  for (const auto& each : kTexts) {
    json->Key(each.name);
    json->Text(each.text);
  }
  json->Key("log_is_daily");
  json->Bool(claims.log_is_daily);
  WriteTerms(claims, room.scratch.statements, json);
  json->Key("rows");
  WriteRows(claims, json);
}

size_t ReadDevices(const char* text, DeviceIdentity* devices) {
  size_t count = 0;
  while (*text != '\0' && count < kMostLimitedDevices) {
    DeviceIdentity device{};
    char hex[33] = "";
    unsigned long long total_bytes = 0;
    int used = 0;
    if (sscanf(text, "%u %d %32[0-9a-f] %llu;%n", &device.ordinal, &device.nvml_index, hex,
               &total_bytes, &used) != 4 ||
        used == 0) {
      break;
    }
    for (size_t i = 0; i < sizeof device.uuid; ++i) {
      unsigned byte = 0;
      sscanf(hex + 2 * i, "%2x", &byte);
      device.uuid[i] = static_cast<uint8_t>(byte);
    }
    device.total_bytes = total_bytes;
    devices[count++] = device;
    text += used;
  }
  return count;
}

void WriteLimits(const DeviceLimits& limits, JsonText* json) {
  json->Comma();
  json->Raw("{");
  json->Key("memory_bytes");
  if (limits.memory_bytes == kUnlimitedBytes) {
    json->Raw("null");
  } else {
    json->Number(limits.memory_bytes);
  }
  json->Key("memory_source");
  json->Text(limits.memory_source);
  json->Key("core_millipercent");
  json->Number(limits.core_millipercent);
  json->Key("core_soft_millipercent");
  json->Number(limits.core_soft_millipercent);
  json->Key("oversubscribe");
  json->Number(limits.oversubscribe);
  json->Key("core_source");
  json->Text(limits.core_source);
  json->Key("core_soft_source");
  json->Text(limits.core_soft_source);
  json->Key("oversubscribe_source");
  json->Text(limits.oversubscribe_source);
  json->Raw("}");
}

// LimitAndWarn reports through a plain function.
constinit JsonText* warned = nullptr;

void Warn(const char* text) {
  warned->Comma();
  warned->Text(text);
}

// What the claims alone say of memory on each device: before any is refused or cut.
void WriteMemory(const Claims& claims, const DeviceIdentity* devices, size_t count,
                 JsonText* json) {
  json->Key("memory");
  json->Raw("[");
  for (size_t d = 0; d < count; ++d) {
    Conflict ignored;
    const ByDialect memory = ChooseInDialects(claims, ClaimKind::kMemory, devices[d]);
    const Chosen lowest = LowestOf(memory, &ignored);
    json->Comma();
    if (lowest.claim == nullptr) {
      json->Raw("null");
    } else {
      json->Number(lowest.amount);
    }
  }
  json->Raw("]");
}

void WriteResolution(Room* room, size_t count, JsonText* json) {
  char why[512] = "";
  json->Key("warnings");
  json->Raw("[");
  warned = json;
  const ConfigResult result =
      LimitAndWarn(room->claims, room->devices, count, room->limits, Warn, why, sizeof why);
  warned = nullptr;
  json->Raw("]");
  if (result == ConfigResult::kInvalid) {
    json->Key("why");
    json->Text(why);
    return;
  }
  json->Key("limits");
  json->Raw("[");
  for (size_t d = 0; d < count; ++d) WriteLimits(room->limits[d], json);
  json->Raw("]");
}

void WriteAnswer(const Sources& sources, const char* devices, Room* room, JsonText* json) {
  char why[512] = "";
  const ConfigResult read = ReadClaimsFrom(sources, &room->scratch, &room->claims, why, sizeof why);
  if (read == ConfigResult::kInvalid) {
    WriteRefusal(why, json);
    return;
  }
  json->Raw("{");
  json->Key("any_limit");
  json->Bool(read == ConfigResult::kLimits);
  WriteClaims(*room, json);
  const size_t count = ReadDevices(devices, room->devices);
  if (count > 0) {
    WriteMemory(room->claims, room->devices, count, json);
    json->Key("resolution");
    json->Raw("{");
    WriteResolution(room, count, json);
    json->Raw("}");
  }
  json->Raw("}");
}

void WriteSources(const Statements& statements, JsonText* json) {
  json->Raw("{");
  json->Key("config_path");
  json->Text(statements.config_path);
  json->Key("state_folder");
  json->Text(TextOf(statements, Dialect::kGpufence, Setting::kStateFolder));
  json->Key("ignored");
  json->Raw("[");
  for (size_t i = 0; i < statements.count; ++i) {
    const Statement& statement = statements.all[i];
    if (statement.option->setting != Setting::kIgnored) continue;
    json->Comma();
    json->Text(statement.name);
  }
  json->Raw("]}");
}

}  // namespace

void AnswerClaims(const Sources& sources, const char* devices, JsonText* json) {
  auto* room = static_cast<Room*>(malloc(sizeof(Room)));
  if (room == nullptr) {
    WriteRefusal(kNoRoom, json);
    return;
  }
  WriteAnswer(sources, devices, room, json);
  free(room);
}

void AnswerSources(const Sources& sources, JsonText* json) {
  auto* scratch = static_cast<Scratch*>(malloc(sizeof(Scratch)));
  if (scratch == nullptr) {
    WriteRefusal(kNoRoom, json);
    return;
  }
  char why[512] = "";
  if (Gather(sources, scratch, {why, sizeof why})) {
    WriteSources(scratch->statements, json);
  } else {
    WriteRefusal(why, json);
  }
  free(scratch);
}

}  // namespace gpufence
