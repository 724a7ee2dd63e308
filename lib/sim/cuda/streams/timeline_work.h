// One piece of device work: what it occupies, for how long, and what it must wait for.
//
// Streams, events and graphs are nothing but edges between such pieces, so this is the whole
// vocabulary of time in the simulator.
// Must not know: streams, CUDA types, threads.
#pragma once

#include <stdint.h>

#include "machine/timeline.h"

namespace sim {

// What a piece of work occupies while it runs.  A kernel first pauses: then it occupies no SM, but
// its process has the device.
enum class Engine : uint8_t {
  kNone,       // takes no time: markers, events, writes
  kRecord,     // an event: none of the SMs, but its process must have the device
  kCompute,    // the SMs of a device, shared with other processes by turns
  kCopyIn,     // host to device \.
  kCopyOut,    // device to host  } one DMA engine each
  kCopyLocal,  // on the device  /
  kHost,       // a function of the program, on the worker thread
  kPoll,       // waits until a condition in memory holds
};
constexpr int kCopyEngines = 3;

enum class WorkState : uint8_t { kNew, kWaiting, kReady, kRunning, kDone };

struct Work;

// An effect of work. Runs with the timeline locked, in the order of simulated time, so it must not
// call back into the timeline; the one exception is Engine::kHost, which runs unlocked.
using WorkAction = void (*)(Work& work);
// Whether an Engine::kPoll is over. Called with the timeline locked.
using WorkCondition = bool (*)(Work& work);

// Filled in by its maker up to the marked line and then handed to the timeline. Derive from it to
// carry a payload; payloads must be trivially destructible, `dispose` frees what they own.
struct Work {
  Engine engine;
  uint8_t device_index;
  int8_t priority;    // CUDA's sign: lower runs first
  uint16_t sms;       // kCompute: streaming multiprocessors it fills
  Meeting meets;      // kCompute: the counterparts that it waits for
  uint64_t gap_ns;    // kCompute: from the end of what it is behind to its begin
  uint64_t lag_ns;    // kCompute: from its submission to its begin, at least
  uint64_t trail_ns;  // kRecord: so much later yet begins a kernel behind it
  bool hands_on;      // what is behind it is behind what it is behind itself: it takes nothing
  bool writes_late;   // `action` writes memory: later copies wait for it
  WorkState state;    // the timeline's from here on, except `action`, `condition`, `dispose`
  uint32_t references;
  uint32_t waits_for;  // predecessors not done yet
  uint32_t successor_count;
  uint32_t successor_room;
  uint64_t duration_ns;
  uint64_t sequence;  // order of submission
  uint64_t ready_ns;  // when everything it waits for was done
  uint64_t submitted_ns;
  uint64_t behind_ns;     // when the last of what it is behind on the GPU left it; 0: nothing was
  uint64_t pause_ns;      // kCompute: left to pass on the GPU before it needs SMs
  uint64_t remaining_ns;  // kCompute, kRecord: work left
  int32_t place;          // kCompute beside other processes: of the device's table
  uint64_t meeting;       // ... which of its rank's meetings this is, from kRunning on
  bool has_met;           // ... all counterparts have begun: remaining_ns counts
  uint64_t start_ns;      // valid from kRunning on
  uint64_t end_ns;        // valid once kDone (copies: from kRunning on)
  WorkAction action;      // when done; may be null
  WorkCondition condition;
  WorkAction dispose;  // just before the memory goes; may be null
  Work** successors;
  Work* next;  // in whichever one list its state puts it
};

// A list of work in a fixed order, linked through Work::next.
struct WorkList {
  Work* first = nullptr;

  bool empty() const { return first == nullptr; }
  void PushBack(Work* work);
  // Before the first element that `work` precedes: by priority, then by readiness, then by age.
  void PushReady(Work* work);
  Work* PopFirst();
  void Remove(Work* work);
};

}  // namespace sim
