// The file that vgpu.rs's hypervisor shares with a pod: two limits of each GPU are taken from it,
// its tokens and heartbeat are not. Must not know how long it will stay as it is.
#include <stdio.h>
#include <string.h>

#include "config/file.h"
#include "config/reading.h"
#include "config/share.h"
#include "config/uuid.h"

namespace gpufence {
namespace {

// Layout 2; little endian, as every machine we build for.
constexpr size_t kFileBytes = 35504;
constexpr uint32_t kLayoutTag = 1;
constexpr size_t kDevices = 16;
constexpr size_t kDevicesAt = 8;
constexpr size_t kDeviceBytes = 136;
constexpr size_t kUuidBytes = 64;
constexpr size_t kPercentAt = 64;
constexpr size_t kMemoryAt = 72;
constexpr size_t kActiveAt = 128;

template <typename Number>
Number NumberAt(const char* bytes) {
  Number number = 0;
  memcpy(&number, bytes, sizeof number);
  return number;
}

// Null, or what is wrong with the file, as a clause.
const char* ReadSharedDevice(const char* bytes, Claim* memory, Claim* cores) {
  const uint32_t percent = NumberAt<uint32_t>(bytes + kPercentAt);
  memory->amount = NumberAt<uint64_t>(bytes + kMemoryAt);
  if (!ParseUuid({bytes, strnlen(bytes, kUuidBytes)}, memory->uuid)) {
    return "names a GPU by no UUID";
  }
  if (memory->amount > uint64_t{INT64_MAX}) return "has a memory limit that is no size";
  if (percent > 100) return "has a core limit that is no percentage";
  memcpy(cores->uuid, memory->uuid, sizeof cores->uuid);
  cores->amount = percent == 100 ? 0 : percent * kThousand;
  return nullptr;
}

bool AddSharedDevice(Reading* reading, const char* bytes, size_t index, const char* path,
                     bool is_operators) {
  Claim memory{};
  memory.kind = ClaimKind::kMemory;
  memory.target = ClaimTarget::kUuid;
  memory.dialect = static_cast<uint8_t>(Dialect::kVgpuRs);
  memory.index = static_cast<uint32_t>(index);
  memory.is_ceiling = is_operators;
  snprintf(memory.source, sizeof memory.source, "GPU %zu in %s", index, path);
  Claim cores = memory;
  cores.kind = ClaimKind::kCores;
  const char* wrong = ReadSharedDevice(bytes, &memory, &cores);
  if (wrong != nullptr) {
    return reading->complaint.Say("%s %s. Have the hypervisor write it anew, or take it away", path,
                                  wrong);
  }
  return AddClaim(reading, memory) && AddClaim(reading, cores);
}

// Where the file is; false: the path is too long.
bool NamePath(const Statements& statements, char (&path)[192]) {
  const std::string_view file = TextOf(statements, Dialect::kVgpuRs, Setting::kSharedFile);
  std::string_view folder = TextOf(statements, Dialect::kVgpuRs, Setting::kSharedFolder);
  if (folder.empty()) folder = kSharedFolder;
  const std::string_view start = file.empty() ? folder : file;
  const int length = snprintf(path, sizeof path, "%.*s%s", static_cast<int>(start.size()),
                              start.data(), file.empty() ? "/shm" : "");
  return length > 0 && static_cast<size_t>(length) < sizeof path;
}

}  // namespace

bool ReadSharedFile(Reading* reading, Hidden* hidden) {
  if (hidden->vgpu_rs) return true;
  char path[192];
  if (!NamePath(reading->statements(), path)) {
    return reading->complaint.Say("TF_SHM_FILE or SHM_PATH is too long. Name a shorter path");
  }
  // SHM_PATH is a name that others use as well: only a file there says that ours is meant.
  const bool named = !TextOf(reading->statements(), Dialect::kVgpuRs, Setting::kSharedFile).empty();
  if (!named && !ReadHypervisor(reading)) return false;
  auto& buffer = reading->scratch->shared_file;
  std::string_view bytes;
  bool is_operators = false;
  const FileResult result =
      ReadWholeFile(reading->sources->root, path, buffer, sizeof buffer, &bytes, &is_operators);
  if (result == FileResult::kMissing && !named) {
    const char* asked = reading->claims->hypervisor;
    if (asked[0] == '\0' || !reading->sources->asks) return true;
    return reading->complaint.Say(
        "vgpu.rs's hypervisor at %s answers, but %s, where it writes limits, is not there. Mount "
        "its folder",
        asked, path);
  }
  if (result != FileResult::kRead || bytes.size() != kFileBytes ||
      NumberAt<uint32_t>(bytes.data()) != kLayoutTag) {
    return reading->complaint.Say(
        "%s is not what vgpu.rs's hypervisor shares (layout 2). Mount its file, or take it away",
        path);
  }
  hidden->vgpu_rs = true;
  for (size_t i = 0; i < kDevices; ++i) {
    const char* device = bytes.data() + kDevicesAt + i * kDeviceBytes;
    if (NumberAt<uint32_t>(device + kActiveAt) != 1) continue;
    if (!AddSharedDevice(reading, device, i, path, is_operators)) return false;
  }
  return true;
}

}  // namespace gpufence
