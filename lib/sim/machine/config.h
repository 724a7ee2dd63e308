// The simulator's configuration: every GPUFENCE_SIM_* variable, parsed once per process and
// library.
//
// Owns the names, grammars and defaults of the variables (but DRIVER, which version.h reads at load
// and which is only checked here).  Must not know what they are used for; touches no file.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace sim {

inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxInstances = 7;  // of a GPU that is split

// A path or list taken from the environment; text that does not fit is refused, never cut.
inline constexpr size_t kMaxPathBytes = 512;

struct Config {
  // KERNELS: one line per kernel that ran is appended here; "" = none
  char kernels[kMaxPathBytes];
  char state[kMaxPathBytes];  // STATE: stem of the machine file's name
  char log[kMaxPathBytes];    // LOG: one line per call is appended here; "" = no log
  int gpu_count;              // GPUS: 0 to kMaxDevices; 0 = a driver without a device
  int sm_count;               // SMS per GPU
  int mig_instances;          // MIG: into how many instances each GPU is split; 0: not at all
  int is_mps;                 // MPS: 1 = processes run side by side, without slices
  int listed_pid;             // PID: what NVML calls this process; 0 = its own pid
  uint32_t speed_permille;    // SPEED: 1000 = as fast as real; 0 = a virtual clock ("virtual")
  uint64_t memory_bytes;      // MEMORY per GPU, a multiple of 1 MiB
  uint64_t context_bytes;     // CONTEXT_BYTES: what an empty context takes
  uint64_t stream_bytes;      // STREAM_BYTES: what a context takes for each stream that lives in it
  int bus_mb_per_s;           // BUS_MB_PER_S: how fast copies between host and device are
  uint64_t kernel_ns;         // KERNEL_NS: duration of a kernel that declares none
  uint64_t event_ns;          // EVENT_NS: what an event behind other work takes its stream
  uint64_t event_step_ns;     // EVENT_STEP_NS: resolution of the GPU's clock; 0 = a nanosecond
  uint64_t event_gap_ns;      // EVENT_GAP_NS: so much later yet begins a kernel behind an event
  uint64_t memop_gap_ns;      // MEMOP_GAP_NS: the same behind an operation on a word of memory
  uint64_t launch_gap_ns;     // LAUNCH_GAP_NS: between two kernels of a stream
  uint64_t step_gap_ns;       // STEP_GAP_NS: between two nodes of a graph, one behind the other
  uint64_t start_ns;          // START_NS: from the GPU's having a launch to its kernel's begin
  uint64_t wide_gap_ns;       // WIDE_GAP_NS: more of all these in front of 65,536 blocks
  uint64_t launch_ns;         // LAUNCH_NS: what a launch takes the host before the GPU has it
  uint64_t record_ns;         // RECORD_NS: the same of an event
  uint64_t wake_ns;           // WAKE_NS: a wait for the GPU returns late by up to so much
  int wake_run;               // WAKE_RUN: so many waits in a row are late alike
  uint64_t slice_ns;          // SLICE_NS: how long a process keeps a GPU that others wait for
  uint64_t switch_ns;         // SWITCH_NS: what a GPU loses between two processes
};

// The parsed configuration, or nullptr when a variable cannot be understood: the reason was then
// printed as one line, once, and cuInit and nvmlInit must fail.  Thread-safe; later changes of the
// environment are not seen.
const Config* GetConfig();

// Parses "123", "64k", "1.5g", "2GiB" (1024-based, any case) into bytes.  False on anything else,
// on a negative number and on overflow; *bytes is then untouched.
bool ParseBytes(const char* text, uint64_t* bytes);

// Parses a whole decimal number in [low, high].  False on anything else; *value then untouched.
bool ParseInteger(const char* text, int64_t low, int64_t high, int64_t* value);

// Prints "gpufence-sim: VARIABLE='VALUE' refused: WHY" with one write to stderr.
void Complain(const char* variable, const char* value, const char* why);

}  // namespace sim
