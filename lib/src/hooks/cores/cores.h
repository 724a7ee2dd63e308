// The core limit in the launch path: what every launch asks, what copies, waits and ends of streams
// and contexts report, and the watcher, one thread per process that looks at what is outstanding
// while anything is (docs/core-limiter.md, "The gate and the watcher"). Without a core limit each
// question costs one load. Must not know which call launches, copies or ends.
#pragma once

#include <stdint.h>

#include <atomic>

#include "base/tuning.h"
#include "config/limits.h"
#include "device/markers/looks.h"
#include "device/markers/markers.h"
#include "device/markers/runs.h"
#include "driver_abi.h"
#include "policy/core_seat.h"
#include "policy/share.h"
#include "shared_layouts.h"
#include "state/identity.h"
#include "state/limits_file.h"
#include "state/region.h"

namespace gpufence {

struct Cores;
struct CoreDevice;

// One thread per process looks at what is outstanding while anything is, and sleeps otherwise.
// Zeroed memory is a watcher that was not begun.
class Watcher {
 public:
  // Wakes it; the first call begins it, all signals blocked. One load while it is awake.
  void Wake(Cores* cores) {
    if (awake_.load(std::memory_order_seq_cst) == 0) WakeSlowly(cores);
  }

  // Somebody waits for what nobody can foretell: ends a nap.
  void LookNow();

  // False: no thread could be had, or the process is ending, and whoever launches must look.
  bool runs() const { return state_.load(std::memory_order_relaxed) != kFailed; }

  // False where it does not run, and where it should have looked long ago: a debugger may have
  // stopped it alone, and whoever launches must not wait for it.
  bool looks(uint64_t now_ns) const {
    return runs() && (awake_.load(std::memory_order_relaxed) == 0 ||
                      now_ns < looked_ns_.load(std::memory_order_relaxed) + kTuning.lately_ns);
  }

  // True while the thread is being ended, or cannot be: nobody waits, and no driver call is made.
  bool stopping() const { return stopping_.load(std::memory_order_relaxed) != 0; }

  // True behind Stop: exit handlers run, or have.
  bool ended() const { return gone_.load(std::memory_order_relaxed) != 0; }

  // Before the driver's own exit handlers: ends the thread. What is launched later is still held.
  void Stop();

  uint64_t busy_until_ns;  // its own: until when it goes on looking though nothing is outstanding
  uint32_t begun_seen;     // its own: runs that had begun when it looked last

 private:
  enum State : uint32_t { kNone = 0, kBegun, kFailed };

  void WakeSlowly(Cores* cores);
  bool Start(Cores* cores);
  void Run(Cores* cores);
  static void* Main(void* cores);

  std::atomic<uint32_t> state_;
  std::atomic<uint32_t> awake_;      // 0: asleep, or not begun
  std::atomic<uint64_t> looked_ns_;  // when its last look began, or it was woken for one
  std::atomic<uint32_t> asked_;      // changes when a nap has to end
  std::atomic<uint32_t> stopping_;
  std::atomic<uint32_t> gone_;
};

// One thread per process that meets a container of higher priority, or is held on the GPU: it opens
// and closes the yield points of the process's streams, and opens hold points
// (device/yield_points.h). It calls no driver: whoever waits there for the GPU may hold the
// driver's locks until a point is opened. Zeroed memory is one that was not begun.
class Yielder {
 public:
  // Begins it, if it was not, or wakes it.
  void Begin(Cores* cores);

  // Whether points may be put into streams.
  bool runs() const { return state_.load(std::memory_order_relaxed) == kRuns; }

  // Work begins, which may have to yield, or a hold point opens sooner than it was told. One load
  // while it is awake.
  void Wake() {
    if (asleep_.load(std::memory_order_seq_cst) != 0) WakeSlowly();
  }

  // Opens all points for good, and ends the thread.
  void Stop();

 private:
  enum State : uint32_t { kNone = 0, kRuns, kEnds, kFailed };

  void WakeSlowly();
  bool Look(Cores* cores);
  static void Close(Cores* cores, CoreDevice* device);
  static void Open(Cores* cores, CoreDevice* device);
  static uint64_t IdleNs(const Cores& cores);
  void Run(Cores* cores);
  static void* Main(void* cores);

  std::atomic<uint32_t> state_;
  std::atomic<uint32_t> asleep_;
};

// What a process knows of the collectives that it launched on a device (hooks/cores/core_hold.cpp).
struct CoreGang {
  std::atomic<uint64_t> met_ns;     // when the last one was; 0: never
  std::atomic<uint32_t> count;      // of them, as the others are told
  std::atomic<uint32_t> asked;      // the same when a launch asked last
  std::atomic<uint32_t> uncounted;  // not 0: the next one was counted by others before
  std::atomic<uint32_t> awaited;    // not 0: somebody waited for that one, and has not ended since
  std::atomic<int64_t> owed_before_ns;  // when others began to seem to wait for it; 0: they do not
};

// The hold point of a device that was closed last.
struct CoreHold {
  std::atomic<uint64_t> since_ns;  // 0: there was none
  std::atomic<uint64_t> until_ns;  // as far as it is known what is owed
  std::atomic<uint32_t> beside;    // not 0: others have or had work lately, so that none is used
};

// A device with a core limit, as this process sees it. What every launch asks comes first.
struct alignas(64) CoreDevice {
  std::atomic<uint32_t> closed;  // the gate: not 0, ask before the next launch
  std::atomic<uint32_t> frozen;  // not 0: no launch goes, until an operator says so
  std::atomic<uint32_t> logs;    // not 0: its queues must be short, and launches are logged
  std::atomic<uint32_t> stands;  // not 0: queues stop at yield points, and may be long
  CoreSeat seat;
  Activity* activity;
  NeighbourSight neighbours;
  uint8_t uuid[16];
  uint32_t ordinal;
  std::atomic<uint32_t> paying;         // not 0: enough was launched, until all of it is paid for
  std::atomic<uint64_t> others_had_ns;  // how long a launch waited for the turn last
  std::atomic<uint32_t> progress;       // changes when waiting may be over
  std::atomic<uint32_t> queue_waiters;  // launches held by what is queued
  std::atomic<uint32_t> turn_waiters;   // launches held by the turn
  std::atomic<uint32_t> held_launches;  // and gone since the last look ...
  std::atomic<uint64_t> held_ns;        // ... after so long, together
  std::atomic<uint32_t> told_early;     // charges since the last look, while other streams ran
  std::atomic<uint64_t> told_until_ns;  // until when streams of the process ran that were charged

  // The stream that was waited for when no other one had work, and what it seemed to have then.
  std::atomic<const MarkedStream*> waited_stream;
  std::atomic<uint64_t> waited_launches;

  // Held launches that see nothing move.
  std::atomic<uint32_t> reached;         // markers, when that was asked last
  std::atomic<uint64_t> stuck_since_ns;  // since then none more, or one launch went all the same
  std::atomic<uint64_t> patience_ns;     // until the next one may

  CoreGang gang;
  CoreHold hold;

  // Whether its launches may wait at hold points, and ask for that one by one.
  bool UsesHolds() const {
    return hold.since_ns.load(std::memory_order_relaxed) != 0 &&
           hold.beside.load(std::memory_order_relaxed) == 0;
  }
  bool LogsLaunches() const { return logs.load(std::memory_order_relaxed) != 0; }

  // What is known of its pauses (FindPausesBeforeCode): a part, and then all.
  static constexpr uint32_t kMostFinds = 2;
  static constexpr uint32_t kUnfound = 0;
  static constexpr uint32_t kFinding = 1;  // a thread is at it
  static constexpr uint32_t kNotKept = 2;  // to be measured when nothing runs
  static constexpr uint32_t kBounds = 3;   // for some at least, unless somebody keeps all
  static constexpr uint32_t kFound = 4;
  std::atomic<uint32_t> finding;
  std::atomic<uint64_t> seek_ns;  // when to look again whether somebody keeps them
  // Changed by who finds.
  PausingGpu gpu;                // by which they are kept
  uint32_t finds;                // so many of these were told of
  GpuPauses pauses[kMostFinds];  // each changed before the markers hear of it, and never again
};

// What a device's core limit is made of.
struct CoreClaim {
  uint8_t uuid[16];
  uint32_t ordinal;
  CoreShares own;      // as environment and files have it; 0: no limit
  CoreShares ceiling;  // that nothing set may be above; 0: none
  CoreShares imposed;  // what the seat was told last
  Together together;
  CoreDevice* device;  // null: there never was a limit
  Activity* activity;
};

// The container's terms as they hold now: each word by itself, relaxed, whenever it matters.
struct LiveTerms {
  std::atomic<CorePriority> priority;
  std::atomic<uint32_t> weight;
  std::atomic<uint64_t> burst_ns;
  std::atomic<uint32_t> floor;
};

// Which core limits hold: what the process was given, and what is set while it runs.
struct CoreLimits {
  std::atomic<uint32_t> changing;  // one thread at a time; a launch waits for it, within reason
  const Region* region;
  LimitsFile* set;
  uint32_t count;
  CoreClaim claims[kMostLimitedDevices];
  LiveTerms terms;
  bool frozen;              // all launches, on every device
  CoreTerms own_terms;      // as environment and files have them
  CoreTerms terms_ceiling;  // that nothing set may be above, as Claims has it
  char node_folder[sizeof Claims::node_folder];
  char folders[RegionPlaces::kMost][256];
  char container[kContainerNameBytes];
};

// All of it is the process's own and wiped on fork. What every launch asks comes first, so that it
// costs one line of the cache.
struct Cores {
  std::atomic<uint32_t> count;               // of devices that have or had a core limit
  std::atomic<uint32_t> seen_epoch;          // of limits that were set, as followed last
  const std::atomic<uint32_t>* limit_epoch;  // null: nothing can be set
  std::atomic<CoreDevice*> by_ordinal[kMostLimitedDevices];  // null: no core limit now
  CoreDevice devices[kMostLimitedDevices];
  Watcher watcher;
  Yielder yielder;
  CoreLimits limits;
  Markers markers;
};

// Null unless launches are or were held: by a core limit, or since the container is frozen. One
// load, or two.
Cores* ActiveCores();

// The same for whoever launches: also begins to hold a limit that was set since.
Cores* LaunchCores();

// Takes the seats on every device that has a core limit, now or once one is set, and counts held
// launches in `activities`. `file`, `set_limits` and those stay valid. False with one clause in
// `why`.
bool OpenCores(const Claims& claims, const RegionPlaces& own, const RegionFile& file,
               LimitsFile* set_limits, const DeviceIdentity* devices, const DeviceLimits* limits,
               Activity* const* activities, size_t count, char* why, size_t why_bytes);

// Does what an operator set since the last time, if anything: one comparison where not. `waits`:
// for another thread that is at it.
void FollowLimits(Cores* cores, bool waits = false);

// A collective was launched: the next launch asks.
void NoteCollective(CoreDevice* device);

// Around one launch: waits until it may go, and counts it. `into()` tells the stream (null: the
// legacy one) and is asked only where a core limit holds.
class CoreLaunch {
 public:
  template <typename Into>
  explicit CoreLaunch(Into into) {
    Cores* cores = LaunchCores();
    if (cores != nullptr) Enter(cores, into());
  }
  ~CoreLaunch() {
    if (device_ == nullptr) return;
    Launched();
    if (meets_) [[unlikely]]
      NoteCollective(device_);
  }
  CoreLaunch(const CoreLaunch&) = delete;
  CoreLaunch& operator=(const CoreLaunch&) = delete;

  // What is launched is a grid of a function; `blocks()` tells how large, and is asked only where
  // that matters.
  template <typename Blocks>
  void HasGrid(const void* function, Blocks blocks) {
    if (device_ == nullptr || stream_ == nullptr) return;
    const uint64_t count = blocks();
    Log(function, count);
    if (count >= kWideBlocks) stream_->AddInner(Pauses().wide_gap_ns);
  }

  // What was launched is a graph; `runs()` tells what of, and is asked only where that matters.
  template <typename Runs>
  void LaunchedGraph(const void* executable, Runs runs) {
    if (device_ == nullptr) return;
    Log(executable, 0);
    const auto what = runs();
    if (stream_ != nullptr) stream_->AddInner(StepsNs(Pauses(), what.steps));
    if (what.has_collective) Meets(/*waits=*/false);
  }

  // What was launched meets others on other devices. `waits`: it does little else.
  void Meets(bool waits) {
    if (device_ == nullptr) return;  // and stream_ is whatever the stack held
    meets_ = true;
    if (waits && stream_ != nullptr) stream_->meets.store(true, std::memory_order_relaxed);
  }

 private:
  void Log(const void* launched, uint64_t blocks) {
    if (stream_ == nullptr || !device_->LogsLaunches()) [[likely]]
      return;
    stream_->log.Add(LaunchKindOf(launched, blocks));
    if (!begins_run_) PutYieldPoint(/*known=*/1);
  }
  const GpuPauses& Pauses() const { return cores_->markers.PausesOf(device_->ordinal); }
  void Enter(Cores* cores, CUstream handle);
  [[gnu::noinline]] void EnterAnew();
  uint64_t UnaskedNs();
  void EnterSlowly(bool may_go);
  [[gnu::noinline]] void PutYieldPoint(uint32_t known);
  bool Begin(HeldNs held, uint32_t launches = 0, uint32_t uncounted = 0);
  void TellBegin();
  void Launched();
  [[gnu::noinline]] bool TellFirst();
  [[gnu::noinline]] void Follow(uint32_t before);

  Cores* cores_;
  CoreDevice* device_ = nullptr;  // null: nothing is limited here, or a capture takes the launch
  MarkedStream* stream_;          // null: cannot be marked
  CUstream handle_;
  uint32_t word_;               // the stream's, where it runs: whose place it is
  uint64_t unmarked_since_ns_;  // measured by waiting for it
  bool begins_run_;             // it may be the first one of its run
  bool meets_ = false;
};

// Around the launch of a graph that has kernels on other devices than its stream's. No marker tells
// when those run: the graph is waited for, if it ends in time, and counts as busy on each of them
// until then.
class CoreElsewhere {
 public:
  // Before the launch: waits until the other ones of `ordinals` (a bit each) may be used.
  void Enter(uint64_t ordinals, CUstream stream);
  // After it.
  void Launched() {
    if (ordinals_ != 0) [[unlikely]]
      WaitAndCharge();
  }

 private:
  CUevent Mark();
  uint64_t RanNs(CUevent end);
  void WaitAndCharge();

  Cores* cores_ = nullptr;
  uint64_t ordinals_ = 0;  // that have a core limit
  uint64_t since_ns_ = 0;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr;
};

// Before something that is no kernel is put into a stream. `known`: null where nothing is marked.
inline void LeaveKernels(Cores* cores, MarkedStream* known, CUstream stream) {
  if (known != nullptr) LeaveStream(&cores->markers, known);
  if (reinterpret_cast<uint64_t>(stream) <= kLegacyStream) LeaveBlockingStreams(&cores->markers);
}
inline void LeaveKernels(CUstream stream) {
  Cores* cores = ActiveCores();
  if (cores != nullptr) LeaveKernels(cores, cores->markers.streams.Find(stream), stream);
}

// Before a fill, which runs as kernels do: behind kernels that run it is charged with them, and
// ends no run. Training has a fill before every sixth kernel; the markers around each take two
// hundredths of the GPU.
void LeaveKernelsToFill(CUstream stream);

// The same before a copy within a device. Where there are several it may go from one to another,
// which is no kernel's work.
void LeaveKernelsToCopy(CUstream stream);

// Around a call that puts something other than a launch into a stream, and waits where that is
// full: others see it, and put no markers into its context that would wait as well.
class CorePut {
 public:
  explicit CorePut(CUstream stream) {
    Cores* cores = ActiveCores();
    MarkedStream* known = cores != nullptr ? cores->markers.streams.Find(stream) : nullptr;
    if (known == nullptr || known->HasRoom()) return;
    streams_ = &cores->markers.streams;
    context_ = known->context;
    streams_->BeginPut(context_);
  }
  ~CorePut() {
    if (streams_ != nullptr) [[unlikely]]
      streams_->EndPut(context_);
  }
  CorePut(const CorePut&) = delete;
  CorePut& operator=(const CorePut&) = delete;

 private:
  StreamTable* streams_ = nullptr;  // null: it waits for no room
  uint16_t context_ = kNoContext;
};

// Around a wait for the end of a stream.
class CoreWait {
 public:
  explicit CoreWait(CUstream stream) : handle_(stream) {
    Cores* cores = ActiveCores();
    stream_ = cores != nullptr ? cores->markers.streams.Find(stream) : nullptr;
    if (stream_ == nullptr) return;
    cores_ = cores;
    launches_ = BeforeWait(&cores->markers, stream_);
  }
  CoreWait(const CoreWait&) = delete;
  CoreWait& operator=(const CoreWait&) = delete;

  // `ended`: all that was in the stream before the wait is done.
  void Settle(bool ended) {
    if (stream_ != nullptr) Waited(ended);
  }

 private:
  void Waited(bool ended);

  Cores* cores_;
  CUstream handle_;
  MarkedStream* stream_;  // null: nothing of it is measured
  uint32_t launches_;
};

// After the program asked whether a stream has ended.
void TellAnswer(CUstream stream, bool ended);

// Before something that all streams of the calling thread's context wait for, or that waits for
// them (`waits`). True when a marker was put into one of them.
inline bool LeaveAllKernels(bool waits = false) {
  Cores* cores = ActiveCores();
  if (cores == nullptr) return false;
  if (!waits) LeaveBlockingStreams(&cores->markers);
  return LeaveContext(&cores->markers, waits);
}

// Before the driver destroys a stream.
void EndCoreStream(Cores* cores, CUstream stream);

// Around a call that may end a context; null: the primary one of the device.
class CoreContextEnd {
 public:
  CoreContextEnd(CUcontext context, CUdevice ordinal);
  ~CoreContextEnd() { Settle(false); }
  CoreContextEnd(const CoreContextEnd&) = delete;
  CoreContextEnd& operator=(const CoreContextEnd&) = delete;

  // Whether it ended. Without this call it did not.
  void Settle(bool ended);

 private:
  Cores* cores_;
  uint64_t suspended_ = 0;
};

// Charges, closes gates and moves turns on. The watcher's work; launches do it where none runs.
void TickCores(Cores* cores, uint64_t now_ns);

// The process launches no more.
void LeaveCores(Cores* cores, uint64_t now_ns);

// How long the watcher may sleep after a tick; UINT64_MAX: until it is woken.
uint64_t NextTickNs(Cores* cores, uint64_t now_ns);

// ---- yield points (yielder.cpp) ----

// Before a launch that may have to yield, or stand at a hold point: words for the stream's context,
// if it has none yet. Holds no lock.
void FindYieldWords(Cores* cores, const MarkedStream& stream);

// Where the GPU finds them; 0: nowhere.
CUdeviceptr YieldWordsOf(const Cores& cores, const MarkedStream& stream);

// The driver refuses them there.
void LoseYieldWords(Cores* cores, const MarkedStream& stream);

// Whether what is launched into the stream now is held by the GPU itself, behind what the stream
// has there. An empty stream is held by who launches.
bool YieldsOnGpu(const Cores& cores, const CoreDevice& device, const MarkedStream* stream);

// ---- pauses of the GPU (core_pauses.cpp) ----

// What is known of a device's pauses is what somebody kept, or what is measured before the first
// code comes into a context of it; bounds until then.

// Before the program has code put into the calling thread's context, which waits for all that runs
// there: then the same can be done for what measures, which at a launch might wait for ever.
// Whoever comes first measures, if nobody kept it; others wait for that, for a moment only. Holds
// no lock.
void FindPausesBeforeCode();

// Before a launch that is the first one of its run: what somebody kept, if nobody looked yet.
[[gnu::cold, gnu::noinline]] void FindKeptPauses(Cores* cores, CoreDevice* device);

// At a look of the watcher: where bounds hold it asks now and then whether others measured since.
void FollowKeptPauses(Cores* cores, uint64_t now_ns);

// Whether that would find out nothing more.
inline bool SoughtPauses(const CoreDevice& device) {
  return device.finding.load(std::memory_order_acquire) >= CoreDevice::kNotKept;
}

}  // namespace gpufence
