// From names and texts to limits per device. Reads the environment and files, knows every dialect
// (docs/configuration.md), never changes either. Must not know CUDA, state or who enforces.
//
// Two steps, because the first needs no device and can refuse before the driver is even
// initialised: claims (what was written, where, for which device), then limits (joined to the
// devices by UUID).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpufence {

enum class LogLevel : int;

inline constexpr uint64_t kUnlimitedBytes = UINT64_MAX;
inline constexpr size_t kMostClaims = 512;
inline constexpr size_t kMostLimitedDevices = 64;
inline constexpr size_t kSourceBytes = 256;
inline constexpr size_t kMostNotes = 8;
inline constexpr size_t kNoteBytes = 360;

// A switch that turns oversubscription on says nothing about the ratio, and so hides none.
enum class ClaimKind : uint8_t { kMemory, kCores, kSoftCores, kOversubscribe, kSpill };

// Which device a claim is for.
enum class ClaimTarget : uint8_t {
  kEvery,
  kOrdinal,    // CUDA ordinal, after CUDA_VISIBLE_DEVICES
  kNvmlIndex,  // position in NVML's list
  kUuid,
};

// One readable statement of one source. Amounts: bytes; shares in thousandths of a percent; for
// kOversubscribe the ratio in thousandths, 1 for "on" without a ratio, as for kSpill. Inside a
// layer what names the device hides what names every device.
struct Claim {
  ClaimKind kind;
  ClaimTarget target;
  bool percent_of_device;  // amount is billionths of a percent of the device's memory
  uint8_t dialect;         // equal numbers come from the same system
  uint8_t layer;           // inside a dialect, a device's lowest layer hides the others
  bool is_ceiling;         // an operator's file says it: nothing that is set may be above
  uint32_t index;          // ordinal or NVML index
  uint8_t uuid[16];
  uint64_t amount;            // 0: an explicit "no limit" of this dialect
  char source[kSourceBytes];  // "GPUFENCE_MEMORY_LIMIT=4g", for messages
};

// The GPUs that a container may use, where somebody chose them; none: nobody did.
struct GpuChoice {
  size_t count;
  uint8_t uuids[kMostLimitedDevices][16];
};

// Whose launches go first where several containers share a GPU. Zeroed memory is the default.
enum class CorePriority : uint8_t { kNormal, kLow, kHigh };

// Higher goes first.
constexpr uint32_t RankOf(CorePriority priority) {
  constexpr uint32_t kRanks[] = {1, 0, 2};
  return kRanks[static_cast<uint32_t>(priority)];
}

// An explicit 0 is kept as the least amount that is not "not set", and is nothing to a policy.
inline constexpr uint64_t kNoBurstNs = 1;
inline constexpr uint32_t kNoFloor = 1;
inline constexpr uint32_t kDefaultFloor = 5'000;
inline constexpr uint32_t kMostWeight = 10'000;
inline constexpr uint64_t kMostBurstNs = 10'000'000'000;

// How the container's core limit is held beside its shares, on every GPU. Zeroed memory is the
// default.
struct CoreTerms {
  CorePriority priority;
  uint32_t weight;    // 1 to kMostWeight, among soft shares; 0: not set, the hard share counts
  uint64_t burst_ns;  // GPU time that may be saved up; 0: not set; kNoBurstNs: none
  // Thousandths of a percent of the GPU that it has in any case while others of higher priority go
  // first, if its hard share is no less; 0: not set, which is kDefaultFloor; kNoFloor: none.
  uint32_t floor;
};

struct Claims {
  size_t count;
  Claim claims[kMostClaims];
  bool process_scope;      // GPUFENCE_SCOPE=process
  char container[129];     // GPUFENCE_CONTAINER or a dialect's identity; "" when none is given
  char state_folder[256];  // GPUFENCE_STATE_DIR; "" when not set
  char node_folder[256];   // GPUFENCE_NODE_DIR; "" when not set
  char device_name[96];    // VCUDA_DEVICE_NAME; "" when not set
  char hypervisor[80];     // whom vgpu.rs asks for limits; "" when nobody
  GpuChoice choice;
  CoreTerms terms;
  char priority_source[kSourceBytes];  // who names the priority that holds; "": nobody
  // What the files of operators allow at most, whatever is set while programs run; kHigh and 0:
  // anything.
  CoreTerms terms_ceiling;
  // Who makes core limits parts of the threads that MPS gives a program; "": they are of GPU time.
  char mode_source[kSourceBytes];
  uint64_t thread_millipercent;  // that MPS gives this program, by its environment; 0: not said
  LogLevel log_level;            // that the sources ask for, or the default
  char log_file[256];            // where log lines go; "" is stderr
  bool log_is_daily;             // the date is appended to it
  size_t note_count;
  char notes[kMostNotes][kNoteBytes];  // warnings for the moment when limits take effect
};

enum class ConfigResult : uint8_t {
  kNothing,  // nobody set a limit: the library does nothing at all
  kLimits,
  kInvalid,  // `why` says what, why and what to do, on one line, without the "gpufence: "
};

// Reads every source. Takes nothing from the heap; `claims` is some 100 KiB, so give it mapped
// memory. Sets the log level that a dialect's variable asks for.
ConfigResult ReadClaims(Claims* claims, char* why, size_t why_bytes);

// A device as the driver reports it.
struct DeviceIdentity {
  uint8_t uuid[16];
  uint32_t ordinal;
  int32_t nvml_index;  // -1: unknown
  uint64_t total_bytes;
  bool is_mps;      // this process is a client of a multi-process server there
  bool lacks_uuid;  // the driver tells none: the identity is another, the same for all processes
};

// What holds for one device. A source is the statement that decided, "" where nothing holds.
struct DeviceLimits {
  uint64_t memory_bytes;  // kUnlimitedBytes: no limit; above total_bytes only if oversubscribed
  char memory_source[kSourceBytes];
  // Shares of GPU time in thousandths of a percent. Policies are folded in: "off" is no limit, and
  // "shared" a soft share of 100 %.
  uint32_t core_millipercent;       // 0: no limit
  uint32_t core_soft_millipercent;  // while nobody else wants the GPU; 0: the hard share, always
  char core_source[kSourceBytes];
  char core_soft_source[kSourceBytes];
  // The core limit, where it is a part of MPS's threads: MPS holds it, and the shares above are 0.
  uint32_t thread_millipercent;
  uint64_t oversubscribe;  // ratio in thousandths; 1: on, without a ratio; 0: off
  char oversubscribe_source[kSourceBytes];
  // What the files of operators allow at most, whatever is set while programs run.
  uint64_t memory_ceiling_bytes;       // kUnlimitedBytes: anything
  uint32_t core_ceiling_millipercent;  // 0: anything
  uint32_t core_soft_ceiling_millipercent;
};

// True where a limit of that kind holds on any of the devices.
bool LimitsMemory(const DeviceLimits* limits, size_t count);
bool LimitsCores(const DeviceLimits* limits, size_t count);

// True when the claims can be joined to devices only by somebody who knows NVML's indices.
bool NeedsNvml(const Claims& claims);

// Joins claims to devices. Warnings (a conflict between dialects, a limit above the card, a device
// nobody has) go to warn, one call each; never more than once per process.
ConfigResult LimitDevices(const Claims& claims, const DeviceIdentity* devices, size_t count,
                          DeviceLimits* limits, void (*warn)(const char* text), char* why,
                          size_t why_bytes);

// Takes core limits that are parts of MPS's threads out of the shares of GPU time, for a program
// that is about to use these devices. False: MPS would not hold them, and `why` says so as above.
bool LeaveToMps(const Claims& claims, const DeviceIdentity* devices, size_t count,
                DeviceLimits* limits, char* why, size_t why_bytes);

// True where MPS holds a limit on any of the devices.
bool LimitsThreads(const DeviceLimits* limits, size_t count);

}  // namespace gpufence
