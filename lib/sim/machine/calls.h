// What happens at the door of every simulated function: counting, logging, injected faults and the
// "not initialised" answer.
//
// Owns the SIM_CALL macros, the per-symbol counters, the log file and the fault plan.  Must not
// know what any function does.
//
//   extern "C" CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
//     SIM_CALL(cuMemAlloc_v2, dptr, bytesize);   // always the first statement
//     ...
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "symbols.h"

// The door of the rendered weak bodies, which know no arguments.  0 = go on; otherwise the code
// that the caller must return (an injected fault, or "not initialised").
extern "C" int gpufence_sim_call(uint16_t sym);

namespace sim {

// Whether a function works before cuInit / nvmlInit.
enum class Door { kInitialized, kAnytime };

// What is decided at the door.
struct Answer {
  int code;          // 0: go on
  uint64_t late_ms;  // by how much the call returns late
};

// Counts the call, appends it to the log with its raw arguments, executes a fault planned for it
// and answers whether it may go on.  Thread-safe; takes no lock.
Answer Enter(Door door, uint16_t sym, const uint64_t* args, size_t arg_count);

// In one write to a descriptor opened in append mode: lines of racing processes stay whole.  Opened
// each time, because programs close descriptors they do not know.
void AppendLine(const char* path, const char* line, size_t bytes);

// Sleeps, whatever signals come.
void Block(uint64_t milliseconds);

// A thread that is cancelled inside would keep the driver's lock.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_;
};

// One call, from the door until it returns.
class Visit {
 public:
  Visit(Door door, uint16_t sym, const uint64_t* args, size_t arg_count)
      : answer_(Enter(door, sym, args, arg_count)) {}
  ~Visit() {
    if (answer_.late_ms != 0) Block(answer_.late_ms);
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  bool refused() const { return answer_.code != 0; }
  int code() const { return answer_.code; }
  template <typename Enum, std::enable_if_t<std::is_enum_v<Enum>, int> = 0>
  operator Enum() const {  // NOLINT(google-explicit-constructor): CUresult and nvmlReturn_t alike
    return static_cast<Enum>(answer_.code);
  }

 private:
  Uncancelled during_;  // first: the door is part of the call
  Answer answer_;
};

// Marks this library initialised (cuInit, nvmlInit) or not (last nvmlShutdown).  With
// `lost_by_fork`, a forked child is refused with "not initialised" until it does so itself, which
// nvmlInit grants and cuInit never does.
void SetInitialized(bool initialized, bool lost_by_fork);

// True in a process forked from one that was initialised with lost_by_fork.
bool IsOrphanedByFork();

// Calls of this symbol in this process so far.
uint64_t CallCount(uint16_t sym);

// An argument as the 64 bits that a test sees: value, address, or the first bytes of a struct.
template <typename Arg>
uint64_t RawArgument(const Arg& arg) {
  if constexpr (std::is_array_v<Arg>) {
    return reinterpret_cast<uintptr_t>(&arg[0]);
  } else {
    uint64_t raw = 0;
    memcpy(&raw, &arg, sizeof(arg) < sizeof(raw) ? sizeof(arg) : sizeof(raw));
    return raw;
  }
}

template <typename... Args>
Visit EnterWith(Door door, uint16_t sym, const Args&... args) {
  const uint64_t raw[sizeof...(args) + 1] = {RawArgument(args)...};
  return Visit(door, sym, raw, sizeof...(args));
}

}  // namespace sim

#define SIM_DOOR(door, name, ...)                                                 \
  const ::sim::Visit sim_visit =                                                  \
      ::sim::EnterWith(door, ::gpufence::kSym_##name __VA_OPT__(, ) __VA_ARGS__); \
  if (sim_visit.refused()) return sim_visit

// First statement of an override; the arguments are optional and only logged.
#define SIM_CALL(name, ...) SIM_DOOR(::sim::Door::kInitialized, name __VA_OPT__(, ) __VA_ARGS__)

// The same for functions that work before cuInit or nvmlInit (cuInit, cuGetErrorName, ...).
#define SIM_CALL_ANYTIME(name, ...) SIM_DOOR(::sim::Door::kAnytime, name __VA_OPT__(, ) __VA_ARGS__)
