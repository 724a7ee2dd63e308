// The one table of every variable that is read, whoever named it first. Data only.
// Must not know what is done with a value. docs/configuration.md and
// tools/gpufence/config/options.py say the same; a test compares all three.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

namespace gpufence {

enum class Dialect : uint8_t { kGpufence, kHami, kVgpuManager, kVcuda, kVgpuRs, kAlnair, kNvidia };

inline constexpr size_t kDialectCount = static_cast<size_t>(Dialect::kNvidia) + 1;

enum class Setting : uint8_t {
  kMemory,     // a size
  kMemoryMap,  // JSON: device -> bytes
  kMemoryMegabytes,
  kCores,          // percent
  kCoresMap,       // JSON: device -> percent
  kSoftCores,      // percent
  kRatio,          // above 1: oversubscription
  kSpill,          // switch: oversubscription without a ratio
  kOversubscribe,  // off, on or a ratio
  kCorePolicy,     // when a core limit holds; each dialect has its own words
  kPriority,       // who goes first; each dialect has its own words
  kWeight,         // whole number
  kCoreBurst,      // duration
  kCoreFloor,      // percent
  kHooks,          // exactly "false" takes the dialect's limits away
  kDisable,        // switch: takes the limits of all variables away
  kScope,
  kStateFolder,
  kNodeFolder,
  kContainer,
  kConfigFile,
  kPodUid,
  kContainerName,
  kDeviceName,
  kHostDevices,  // UUIDs by host index
  kHostDevice,   // one UUID by host index
  kOldHostDevices,
  kVisibleDevices,
  kId,
  kWorkspace,
  kSharedFolder,  // where vgpu.rs's hypervisor keeps its file
  kSharedFile,    // that file itself
  kHypervisorAddress,
  kHypervisorPort,
  kLogLevel,
  kLogSwitch,
  kLogSink,    // word
  kLogFile,    // path
  kElsewhere,  // read by another layer, from the environment only
  kIgnored,    // accepted, without effect
};

// What may follow the name, behind a '_'.
enum class Keys : uint8_t { kNone, kIndex, kIndexOrUuid };

struct Option {
  const char* name;
  Dialect dialect;
  Setting setting;
  Keys keys;
};

// In the order in which they are looked up and reported.
extern const Option kOptions[];
extern const size_t kOptionCount;

const char* NameOf(Dialect dialect);

// The option that `name` spells, and the key behind it: "", or a '_' and what follows it.
const Option* FindOption(std::string_view name, std::string_view* key);

// True for an option of ours that the config file may hold.
bool IsInFile(const Option& option);

// An option of ours by its key in the config file: "memory_limit" is GPUFENCE_MEMORY_LIMIT.
const Option* FindFileOption(std::string_view name, std::string_view* key);

}  // namespace gpufence
