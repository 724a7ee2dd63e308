// Kernel launches as the API describes them, checked and turned into operations.
// Must not know streams, graphs or captures.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/modules/module.h"
#include "cuda/streams/launch_operation.h"
#include "driver_abi.h"

namespace sim::launch {

// What the simulated GPU can do; the device attributes say the same.
inline constexpr uint32_t kMaxThreadsPerBlock = 1024;
inline constexpr uint32_t kMaxBlockZ = 64;
inline constexpr uint32_t kMaxGridX = 2147483647;
inline constexpr uint32_t kMaxGridYz = 65535;
inline constexpr uint32_t kThreadsPerSm = 2048;
inline constexpr uint32_t kBlocksPerSm = 32;
inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kSharedPerBlock = 48 << 10;  // without opting in
inline constexpr uint32_t kSharedPerBlockOptin = 227 << 10;
inline constexpr uint32_t kSharedPerSm = 228 << 10;
inline constexpr uint32_t kSharedReserved = 1 << 10;  // per block, the system's

struct Request {
  CUfunction function;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  void** parameters;
  void** extra;
  bool cooperative;
};

// Room for a launch's parameters while it is being prepared.
struct ParameterRoom {
  uint8_t bytes[32 << 10];
};

// Checks a request as the driver does and describes it; the description points into `room`.
// 400: no function; 1: impossible shape or missing parameters; 720: too large to be cooperative.
CUresult Prepare(const Request& request, ParameterRoom* room, Operation* operation);

// What a kernel makes the device hold: its code and the stack of its threads. Taken by a launch
// that runs and by an executable graph as it is made or changed; by no launch that is captured.
CUresult Provide(const Operation& operation);

// The host's part of a launch, by the calling thread's own clock.
void SpendOnLaunch();

// Blocks of a kernel that one SM holds at a time.
uint32_t BlocksPerSm(const module::Function& function, uint32_t threads, size_t dynamic_bytes);

// How long a kernel takes: gpufence_spin_ns and other names in _ns with an 8-byte first parameter
// take that many nanoseconds, gpufence_pace takes so many cycles of a clock of 1 GHz; names like
// tail_150us or spin_2ms say it; others take GPUFENCE_SIM_KERNEL_NS.
uint64_t DurationNs(const char* name, const uint8_t* parameters, uint32_t parameter_bytes);

// Where a gpufence_pace kernel leaves its begin and its end, two u64 of its module's global
// gpufence_paces: at the index that its second parameter says. 0: it is another kernel, or the
// index lies outside.
uint64_t PacesOf(const module::Function& function, const uint8_t* parameters,
                 uint32_t parameter_bytes);

// Which counterparts a kernel waits for, if it is called as NCCL's are: its parameters, of 8 bytes
// each, are its length, the number of ranks, and may be a group and the rank in it that it is of.
// Without those it is of the first group, and its device says of which rank.
Meeting MeetingOf(const char* name, const uint8_t* parameters, uint32_t parameter_bytes,
                  int device);

}  // namespace sim::launch
