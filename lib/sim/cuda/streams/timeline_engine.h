// The timeline of one process: a graph of work, and the engines that it occupies, in simulated
// time. Streams, events and graphs are nothing but edges between pieces of work, so this is the
// whole vocabulary of time in the simulator.
//
// It is a discrete-event simulation that catches up: nothing happens until somebody asks for a
// later `now`, and then everything that was due happens in order, at the exact instant at which it
// was due. Hence durations that programs read back do not depend on how promptly anybody looked.
// Only turns on a compute engine shared with other processes are decided with them (turns.h).
//
// Pure: time is a parameter. Must not know: streams, threads, locks, clocks, CUDA.
#pragma once

#include <stdint.h>

#include "machine/config.h"
#include "machine/sms.h"
#include "machine/timeline.h"
#include "machine/turns.h"

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
  uint64_t trail_ns;  // so much later yet begins a kernel behind it
  bool in_turn;       // kNone, kPoll: its process must have the device, which reads and writes
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

// Told about every stretch in which this process occupied a compute engine.
using BusyObserver = void (*)(int device_index, uint64_t start_ns, uint64_t end_ns);

// This process's view of one device.
class DeviceEngine {
 public:
  void Attach(const TurnTaker& taker, const SmTaker& sharer, MeetingTable* meetings, uint32_t sms,
              int device_index, BusyObserver observer);
  uint32_t sms() const { return sms_; }
  uint32_t pending_kernels() const { return pending_kernels_; }

  void Announce(const Work& work);  // submitted, though perhaps not ready
  void MakeReady(Work* work);
  void SetPause(Work* work, uint64_t pause_ns);  // instead of what was announced
  bool IsFree(uint64_t at_ns) const { return IsShared() || IsEngineFree(taker_, at_ns); }
  void StartReady(uint64_t at_ns);   // what fits beside what runs
  void LookAtTurns(uint64_t at_ns);  // asks for turns, or leaves; learns those so far
  void Meet();                       // learns which counterparts have begun
  bool awaits_others() const;        // something runs that waits for a counterpart
  uint64_t NextStopNs() const;       // next end of a kernel, or edge of a turn that it has
  uint64_t NextTurnNs() const;       // when it may get a turn that it waits for
  void ProgressTo(uint64_t at_ns);   // at_ns <= NextStopNs()
  Work* TakeFinished();              // one piece that is done, or null

  uint64_t copy_free_ns[kCopyEngines] = {};

 private:
  void Arrive(Work* work, uint64_t at_ns);
  void EndPause(Work* work);
  void Start(Work* work, uint64_t at_ns);
  void StartInOrder(uint64_t at_ns);
  void StartBesideOthers(uint64_t at_ns);
  void LookAtSms(uint64_t at_ns);
  bool IsShared() const { return sharer_.table != nullptr && sharer_.table->is_used != 0; }
  uint64_t NextOwnStopNs() const;
  void Run(uint64_t ran_ns);
  bool HasTurn() const { return answer_.count != 0; }

  TurnTaker taker_{nullptr, kNoSeat, nullptr, nullptr};
  MeetingTable* meetings_ = nullptr;
  BusyObserver observer_ = nullptr;
  int device_index_ = 0;
  uint32_t sms_ = 0;
  uint32_t sms_used_ = 0;
  uint32_t pending_kernels_ = 0;
  uint64_t backlog_ns_ = 0;     // compute time submitted and not yet done
  uint64_t progressed_ns_ = 0;  // running_ is accounted up to here
  bool is_known_ = false;       // to the others, as one that wants turns
  bool is_on_ = false;          // progressed_ns_ lies in the first of its turns
  uint32_t passed_turns_ = 0;   // since the others were asked
  TurnAnswer answer_{};
  // Beside other processes: which kernel has asked for room, and what the answer was.
  SmTaker sharer_{nullptr, kNoSeat, nullptr, nullptr};
  Work* asked_ = nullptr;
  SmAnswer room_{kNoPlace, false, kNever, kNever};
  WorkList unplaced_;  // ready, and needing none of the SMs: all but kernels, and those that pause
  WorkList ready_;
  WorkList running_;
};

class Scheduler {
 public:
  DeviceEngine& device(int index) { return devices_[index]; }
  uint64_t now_ns() const { return now_ns_; }
  bool idle() const { return pending_ == 0; }

  // `later` will not start before `earlier` is done; null and finished work are no obstacle.
  static void After(Work* later, Work* earlier);

  // Takes the work over at `now_ns()`, which AdvanceTo has just brought up to date. The caller
  // keeps its own reference, the scheduler holds another until the work is done.
  void Submit(Work* work);

  // Lets everything happen that is due until `now_ns`. Never goes backwards.
  void AdvanceTo(uint64_t now_ns);

  // The next instant at which something is due, kNever if all depends on the outside.
  uint64_t NextEventNs() const;

  // Work whose function the worker thread must call, held until FinishHost; null when none is due.
  Work* TakeHost();
  void FinishHost(Work* work);
  bool host_due() const { return !hosts_.empty(); }
  bool host_running() const { return hosts_running_ != 0; }
  bool host_pending() const { return hosts_pending_ != 0; }  // due, running or still to come
  bool polling() const { return !polls_.empty(); }
  bool polls_pending() const { return polls_pending_ != 0; }    // under way or still to come
  bool writes_pending() const { return writes_pending_ != 0; }  // by work that writes late

 private:
  void BecomeReady(Work* work, uint64_t at_ns, bool is_behind);  // ... other work, until now
  void Begin(Work* work, uint64_t at_ns);  // what ends after its duration, whatever else runs
  void Finish(Work* work, uint64_t at_ns);
  void Happen(Work* work, bool is_behind);
  void StartEverywhere(uint64_t at_ns);
  void SettleInstants();
  void CheckPolls();
  bool HappenNext(uint64_t limit_ns);

  DeviceEngine devices_[kMaxDevices];
  WorkList timed_;  // running, their ends are fixed
  WorkList instants_;
  WorkList hosts_;  // due, in order
  WorkList polls_;
  uint64_t now_ns_ = 0;
  uint64_t next_sequence_ = 0;
  uint64_t pending_ = 0;
  uint64_t hosts_pending_ = 0;
  uint64_t polls_pending_ = 0;
  uint64_t hosts_running_ = 0;
  uint64_t writes_pending_ = 0;
};

// Memory of work. References count makers, streams, events and the scheduler.
void* AllocateWork(uint64_t size);
void RetainWork(Work* work);
void ReleaseWork(Work* work);  // null is fine

// Work of type T, zeroed, with one reference.
template <typename T = Work>
T* NewWork(Engine engine, int device_index, uint64_t duration_ns) {
  static_assert(__is_trivially_copyable(T));
  T* work = static_cast<T*>(AllocateWork(sizeof(T)));
  if (work == nullptr) return nullptr;
  work->engine = engine;
  work->device_index = static_cast<uint8_t>(device_index);
  work->duration_ns = duration_ns;
  work->references = 1;
  work->hands_on = engine == Engine::kNone;
  return work;
}

}  // namespace sim
