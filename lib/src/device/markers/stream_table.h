// The streams that kernels were launched into, and their contexts: one table for the process, of
// fixed size. Must not know markers.
//
// One lock of the process guards all that is known of streams. Under it the driver is asked what it
// answers at once; whatever may wait (recording, making events, entering contexts) is done without
// it, as a visit or a recording, which the end of a context or stream waits for. So
// a handle is forgotten before the driver ends it: who holds the lock sees only those that live.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "base/futex.h"
#include "base/locks.h"
#include "device/gpu_clock.h"
#include "device/markers/marked_stream.h"
#include "driver_abi.h"

namespace gpufence {

inline constexpr uint32_t kMostMarkedStreams = 2048;
inline constexpr uint32_t kMostMarkedContexts = 64;

inline constexpr uint16_t kNoContext = 0;  // that place is never used, so that zeros are empty

struct MarkedContext {
  std::atomic<uint64_t> handle;  // 0: none
  uint32_t ordinal;
  bool is_primary;
  uint32_t life;      // changes when its events are gone
  uint32_t visitors;  // threads that ask it something without the lock, and not for its program
  uint32_t away;      // calls under way that may end it
  uint32_t others;    // what is no kernel and was put into its legacy stream
  bool blind;         // events tell nothing in it: its launches are measured otherwise
  uint16_t base;      // the marker whose GPU time is base_ns
  int64_t base_ns;
  GpuClock clock;
  uint64_t prompted_ns;          // when a marker was last recorded that is reached at once
  std::atomic<uint64_t> filled;  // memory for fills (GiveFilled); 0: none yet, 1: none to be had
  std::atomic<uint64_t> yield_words;  // where the GPU has them (yield_points.h); 0 and 1 as above

  // Its events are gone with it, and what they told.
  void ForgetEvents() {
    ++life;
    filled.store(0, std::memory_order_relaxed);
    yield_words.store(0, std::memory_order_relaxed);
    base = 0;
    base_ns = 0;
    clock = {};
    blind = false;
  }
};

// A stream was made that waits for the legacy stream of its context, and that one for it; also the
// per-thread stream does.
void NoteBlockingStream();
bool HasBlockingStreams();

// Whether this one does.
bool IsBlockingStream(uint64_t handle);

// The stream that the thread launched into last.
extern constinit thread_local MarkedStream* last_stream;

// Zeroed memory is an empty table.
class StreamTable {
 public:
  // The stream of a handle as launches know it (null: the legacy stream; CU_STREAM_PER_THREAD: the
  // calling thread's). Null when there is no context or no room. Takes the lock.
  MarkedStream* For(CUstream handle) {
    const auto named = reinterpret_cast<uint64_t>(handle);
    MarkedStream* last = last_stream;
    if (named > kPerThreadStream && last != nullptr &&
        last->handle.load(std::memory_order_acquire) == named) [[likely]] {
      return last;
    }
    return LookFor(handle);
  }
  // The same without the lock; null also when it was never launched into.
  MarkedStream* Find(CUstream handle);
  // Whether it is the stream of that handle now.
  static bool IsOf(const MarkedStream& stream, CUstream handle);

  // Whether the calling thread is in the stream's context.
  bool IsHere(const MarkedStream& stream) const;
  // Whether the calling thread can put something into it: into its own per-thread stream alone.
  static bool IsReachable(const MarkedStream& stream);

  MarkedContext& Context(uint16_t index) { return contexts_[index]; }
  MarkedContext& ContextOf(const MarkedStream& stream) { return contexts_[stream.context]; }
  const MarkedContext& ContextOf(const MarkedStream& stream) const {
    return contexts_[stream.context];
  }
  // Of a handle; kNoContext: nothing was launched there.
  uint16_t IndexOf(uint64_t context) const;

  // Until `is_over()`, which threads that leave decide; lets the lock go meanwhile.
  template <typename IsOver>
  void Await(IsOver is_over);
  // Something that others may wait for is over.
  void NoteDeparture();

  // ---- streams that run, or have markers to be seen: looks ask about them ----

  bool IsActive(const MarkedStream* stream) const;
  // Its place, below kMostMarkedStreams.
  uint32_t NumberOf(const MarkedStream* stream) const {
    return static_cast<uint32_t>(stream - streams_);
  }
  MarkedStream& At(uint32_t number) { return streams_[number]; }
  void SetActive(const MarkedStream* stream, bool active);  // lock held
  uint32_t active_count() const { return active_count_.load(std::memory_order_relaxed); }
  bool any_active() const { return active_count_.load(std::memory_order_seq_cst) != 0; }
  // Whether no other one is.
  bool IsOnlyActive(const MarkedStream* stream) const;
  uint32_t CountActive(uint32_t ordinal);
  bool IsActive(uint32_t ordinal) { return CountActive(ordinal) != 0; }
  template <typename Visit>
  void ForEachActive(Visit visit);
  // Also those that are idle.
  template <typename Visit>
  void ForEachOf(uint16_t context, Visit visit);

  // ---- threads that put something other than a launch into streams of a context ----

  void BeginPut(uint16_t context) { puts_[context].fetch_add(1, std::memory_order_relaxed); }
  void EndPut(uint16_t context) {
    puts_[context].fetch_add((uint64_t{1} << 32) - 1, std::memory_order_relaxed);
  }
  // Whether somebody waits for room in a stream of the context, as far as can be seen: then whoever
  // records an event there waits as well, whatever the stream (H200). Lock held.
  bool IsHeldUp(uint16_t context);

 private:
  friend class StreamsGuard;
  friend class StreamsReleased;
  friend class StreamsTaken;

  static constexpr uint32_t kWays = 8;
  static constexpr uint64_t kAwaitNs = 100'000'000;

  // What the driver says of a context that is not known yet.
  struct ContextFacts {
    uint64_t handle;
    uint32_t ordinal;
    bool is_primary;
  };

  struct Key {
    uint64_t handle;
    uint64_t scope;
    uint64_t thread;
  };

  MarkedStream* LookFor(CUstream handle);
  static bool KeyOf(CUstream stream, Key* key);
  static bool Is(const MarkedStream& stream, const Key& key);
  MarkedStream* SetOf(const Key& key);
  MarkedStream* Lookup(const Key& key);
  [[gnu::cold, gnu::noinline]] MarkedStream* Insert(const Key& key);
  MarkedStream* PlaceFor(const Key& key);
  ContextFacts AskAbout(uint64_t context) const;
  uint16_t ContextFor(const ContextFacts& facts);

  FutexLock lock_;
  uint32_t waiting_;  // threads in Await
  std::atomic<uint32_t> departures_;
  MarkedContext contexts_[kMostMarkedContexts];
  std::atomic<uint64_t> puts_[kMostMarkedContexts];  // under way (low half), and over (high half)
  std::atomic<uint32_t> active_count_;
  std::atomic<uint64_t> active_[kMostMarkedStreams / 64];
  MarkedStream streams_[kMostMarkedStreams];
};

// The lock of the table, in every function of the markers that others call. False: this thread is
// inside of one already, which asks the driver, and that called the program back (a profiler's
// callback): then nothing is done.
class StreamsGuard {
 public:
  explicit StreamsGuard(StreamTable* streams) : streams_(inside ? nullptr : streams) {
    if (streams_ == nullptr) return;
    inside = true;
    streams_->lock_.Lock();
  }
  ~StreamsGuard() {
    if (streams_ == nullptr) return;
    streams_->lock_.Unlock();
    inside = false;
  }
  StreamsGuard(const StreamsGuard&) = delete;
  StreamsGuard& operator=(const StreamsGuard&) = delete;

  explicit operator bool() const { return streams_ != nullptr; }

  // Whether the calling thread is inside of one.
  static bool is_inside() { return inside; }

 private:
  static constinit thread_local bool inside;
  StreamTable* streams_;
};

// Lets the lock go for a while, in which the thread stays inside: what was read before must be read
// again.
class StreamsReleased {
 public:
  explicit StreamsReleased(StreamTable* streams) : streams_(streams) { streams_->lock_.Unlock(); }
  ~StreamsReleased() { streams_->lock_.Lock(); }
  StreamsReleased(const StreamsReleased&) = delete;
  StreamsReleased& operator=(const StreamsReleased&) = delete;

 private:
  StreamTable* streams_;
};

// Takes it again within such a while.
class StreamsTaken {
 public:
  explicit StreamsTaken(StreamTable* streams) : streams_(streams) { streams_->lock_.Lock(); }
  ~StreamsTaken() { streams_->lock_.Unlock(); }
  StreamsTaken(const StreamsTaken&) = delete;
  StreamsTaken& operator=(const StreamsTaken&) = delete;

 private:
  StreamTable* streams_;
};

// Implementation.

template <typename IsOver>
void StreamTable::Await(IsOver is_over) {
  while (!is_over()) {
    const uint32_t seen = departures_.load(std::memory_order_relaxed);
    ++waiting_;
    {
      const StreamsReleased released(this);
      FutexWait(&departures_, seen, kAwaitNs);
    }
    --waiting_;
  }
}

template <typename Visit>
void StreamTable::ForEachActive(Visit visit) {
  for (size_t index = 0; index < kMostMarkedStreams / 64; ++index) {
    uint64_t bits = active_[index].load(std::memory_order_acquire);
    for (; bits != 0; bits &= bits - 1) {
      visit(&streams_[index * 64 + static_cast<size_t>(__builtin_ctzll(bits))]);
    }
  }
}

template <typename Visit>
void StreamTable::ForEachOf(uint16_t context, Visit visit) {
  for (MarkedStream& stream : streams_) {
    if (stream.context == context) visit(&stream);
  }
}

}  // namespace gpufence
