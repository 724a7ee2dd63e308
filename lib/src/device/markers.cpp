// The tables, and the markers themselves.
#include "device/markers.h"

#include <algorithm>

#include "device/context_scope.h"
#include "device/ids.h"
#include "device/markers_gaps.h"
#include "device/markers_look.h"
#include "real.h"

namespace gpufence {
namespace {

constexpr int kMarkersMadeAtOnce = 8;

// Taken for the time of a launch while nothing better is known.
constexpr uint64_t kUnknownLaunchNs = 2'500'000;
constexpr uint64_t kUntrustedLaunchNs = 1'000'000;
// The launches of a program may take so many times their mean for a while, or such a part of it;
// more says that it does something else now.
constexpr uint64_t kMostAbove = 4;
constexpr uint64_t kMostBelow = 16;

// A launch takes the host 3 to 4 us, and up to 40 behind a pause; a graph may have begun before its
// launch returns. What is not known is taken for little, so that too much is charged.
constexpr uint64_t kMostLeadNs = 10'000;
constexpr uint64_t kUnknownLeadNs = 2'000;
// Recording takes about one; more was the making of events, or the host's own affair.
constexpr uint64_t kMostRecordNs = 3'000;

// The stream that the thread launched into last.
constinit thread_local MarkedStream* last_stream = nullptr;

CUstream HandleOf(const MarkedStream& stream) {
  return reinterpret_cast<CUstream>(stream.handle.load(std::memory_order_relaxed));
}

bool IsPrimary(uint64_t context, CUdevice device) {
  unsigned int flags = 0;
  int active = 0;
  CUcontext primary = nullptr;
  if (real::cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
      real::cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS) {
    return false;
  }
  real::cuDevicePrimaryCtxRelease_v2(device);
  return reinterpret_cast<uint64_t>(primary) == context;
}

}  // namespace

uint64_t MarkedStream::QueuedNs() const {
  const uint64_t launches =
      queued.load(std::memory_order_relaxed) + (word.load(std::memory_order_relaxed) & kLaunches);
  const uint64_t lately_ns = ns_per_launch.load(std::memory_order_relaxed);
  uint64_t each_ns = kUnknownLaunchNs;
  if (lately_ns != 0) {
    each_ns = std::clamp(mean_ns.load(std::memory_order_relaxed), lately_ns / kMostAbove,
                         lately_ns * kMostBelow);
  }
  if (!is_trusted.load(std::memory_order_relaxed)) each_ns = std::max(each_ns, kUntrustedLaunchNs);
  return launches * each_ns;
}

uint64_t MarkedStream::LeadNs() const {
  const uint64_t until_ns = launched_ns.load(std::memory_order_relaxed);
  return until_ns > marked_ns ? std::min(until_ns - marked_ns, kMostLeadNs) : kUnknownLeadNs;
}

// ---- tables ----

bool Markers::KeyOf(CUstream stream, Key* key) {
  key->handle = reinterpret_cast<uint64_t>(stream);
  key->scope = 0;
  key->thread = 0;
  if (key->handle == 0) key->handle = kLegacyStream;
  if (key->handle > kPerThreadStream) return true;
  key->scope = CurrentContext();
  // A thread's own storage has an address that no other living thread has.
  if (key->handle == kPerThreadStream) {
    key->thread = reinterpret_cast<uint64_t>(&last_stream);
    NoteBlockingStream();
  }
  return key->scope != 0;
}

bool Markers::Is(const MarkedStream& stream, const Key& key) {
  return stream.handle.load(std::memory_order_acquire) == key.handle &&
         stream.scope.load(std::memory_order_relaxed) == key.scope &&
         stream.thread.load(std::memory_order_relaxed) == key.thread;
}

MarkedStream* Markers::SetOf(const Key& key) {
  const uint64_t mixed = (key.handle ^ (key.scope >> 4) ^ (key.thread << 7)) * 0x9e3779b97f4a7c15u;
  return &streams_[(mixed >> 40) % (kMostMarkedStreams / kWays) * kWays];
}

MarkedStream* Markers::Lookup(const Key& key) {
  MarkedStream* set = SetOf(key);
  for (uint32_t way = 0; way < kWays; ++way) {
    if (Is(set[way], key)) return &set[way];
  }
  return nullptr;
}

// Takes the place of a stream that is idle where there is no empty one.
MarkedStream* Markers::Insert(const Key& key) {
  CUcontext owner = reinterpret_cast<CUcontext>(key.scope);
  if (owner == nullptr &&
      real::cuStreamGetCtx(reinterpret_cast<CUstream>(key.handle), &owner) != CUDA_SUCCESS) {
    owner = reinterpret_cast<CUcontext>(CurrentContext());
  }
  const bool is_blocking = IsBlockingStream(key.handle);
  const FutexGuard guard(&lock_);
  MarkedStream* known = Lookup(key);
  if (known != nullptr) return known;
  const uint16_t context = ContextFor(reinterpret_cast<uint64_t>(owner));
  if (context == kNone) return nullptr;
  MarkedStream* set = SetOf(key);
  MarkedStream* place = nullptr;
  for (uint32_t way = 0; way < kWays; ++way) {
    if (IsActive(&set[way])) continue;
    if (place == nullptr || set[way].handle.load(std::memory_order_relaxed) == 0) {
      place = &set[way];
    }
  }
  if (place == nullptr) return nullptr;
  place->handle.store(0, std::memory_order_relaxed);
  place->scope.store(key.scope, std::memory_order_relaxed);
  place->thread.store(key.thread, std::memory_order_relaxed);
  place->word.store(0, std::memory_order_relaxed);
  place->mark_at.store(1, std::memory_order_relaxed);
  place->every = 1;
  place->ordinal = contexts_[context].ordinal;
  place->context = context;
  place->first = place->last = kNone;
  place->is_timed = place->is_trusted = place->is_fresh = place->goes_on = false;
  place->is_blocking = is_blocking;
  place->others_seen = contexts_[context].others;
  place->failures = 0;
  place->queued = place->tail_seen = place->steps = 0;
  place->idle_since_ns = place->deducted_ns = place->ns_per_launch = place->mean_ns =
      place->ran_ns = 0;
  place->steady = place->mean_of = 0;
  place->by_host = place->is_waited_for = place->began_away = place->marks_each = false;
  place->came_ns = place->spaced_ns = 0;
  place->behind = 0;
  place->marked_due = place->unread = 0;
  place->is_sample = place->is_unread = false;
  place->run_span_ns = place->sample_ns = place->settled_ns = 0;
  place->begin_gpu_ns = 0;
  place->host_mark_ns = place->held_ns = place->record_ns = 0;
  place->idle_gap_ns = place->probed_ns = 0;
  place->probes = place->unprobed = 0;
  place->may_idle = false;
  place->random = static_cast<uint32_t>(place - streams_) * 2 + 1;
  place->begin_ns = place->host_extra_ns = place->longest_ns = place->since_mark_ns = 0;
  place->handle.store(key.handle, std::memory_order_release);
  return place;
}

MarkedStream* Markers::StreamFor(CUstream stream) {
  Key key;
  if (!KeyOf(stream, &key)) return nullptr;
  if (last_stream != nullptr && Is(*last_stream, key)) return last_stream;
  MarkedStream* found = Lookup(key);
  if (found == nullptr) found = Insert(key);
  if (found != nullptr) last_stream = found;
  return found;
}

MarkedStream* Markers::Find(CUstream stream) {
  Key key;
  if (!KeyOf(stream, &key)) return nullptr;
  return last_stream != nullptr && Is(*last_stream, key) ? last_stream : Lookup(key);
}

uint16_t Markers::ContextFor(uint64_t handle) {
  if (handle == 0) return kNone;
  uint16_t free = kNone;
  for (uint16_t i = 1; i < kMostMarkedContexts; ++i) {
    const uint64_t seen = contexts_[i].handle.load(std::memory_order_relaxed);
    if (seen == handle) return i;
    // One that ended keeps its place for the other calls that may have ended it as well.
    if (seen == 0 && contexts_[i].away == 0 && free == kNone) free = i;
  }
  if (free == kNone) return kNone;
  const uint32_t ordinal = DeviceOfContext(reinterpret_cast<CUcontext>(handle));
  if (ordinal == kNoDevice) return kNone;
  Context* made = &contexts_[free];
  made->ordinal = ordinal;
  made->is_primary = IsPrimary(handle, static_cast<CUdevice>(ordinal));
  made->others = 0;
  made->blind = false;
  made->free = made->base = kNone;
  made->base_ns = 0;
  made->clock = {};
  made->handle.store(handle, std::memory_order_relaxed);
  return free;
}

bool Markers::IsActive(const MarkedStream* stream) const {
  const size_t index = static_cast<size_t>(stream - streams_);
  return (active_[index / 64].load(std::memory_order_relaxed) >> (index % 64) & 1) != 0;
}

void Markers::SetActive(const MarkedStream* stream, bool active) {
  const size_t index = static_cast<size_t>(stream - streams_);
  const uint64_t bit = uint64_t{1} << (index % 64);
  if (IsActive(stream) == active) return;
  if (active) {
    active_[index / 64].fetch_or(bit, std::memory_order_release);
    active_count_.fetch_add(1, std::memory_order_seq_cst);  // before the watcher is asked
  } else {
    active_[index / 64].fetch_and(~bit, std::memory_order_release);
    active_count_.fetch_sub(1, std::memory_order_release);
  }
}

// ---- markers ----

// Events are made several at a time, in the context that they belong to.
uint16_t Markers::Take(uint16_t context) {
  Context* owner = &contexts_[context];
  if (owner->free == kNone) {
    const ContextScope scope(
        reinterpret_cast<CUcontext>(owner->handle.load(std::memory_order_relaxed)));
    if (!scope) return kNone;
    for (int made = 0; made < kMarkersMadeAtOnce; ++made) {
      uint16_t index = unused_;
      if (index == kNone && markers_made_ + 1 >= kMostMarkers) break;
      CUevent event = nullptr;
      if (real::cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) break;
      if (index != kNone) {
        unused_ = markers_[index].next;
      } else {
        index = static_cast<uint16_t>(++markers_made_);
      }
      markers_[index] = {};
      markers_[index].event = event;
      markers_[index].next = owner->free;
      markers_[index].context = context;
      owner->free = index;
    }
  }
  const uint16_t taken = owner->free;
  if (taken != kNone) owner->free = markers_[taken].next;
  return taken;
}

void Markers::Return(uint16_t marker) {
  Context* owner = &contexts_[markers_[marker].context];
  markers_[marker].next = owner->free;
  owner->free = marker;
}

// The event is gone or useless; its place is not.
void Markers::Discard(uint16_t marker) {
  markers_[marker].event = nullptr;
  markers_[marker].next = unused_;
  unused_ = marker;
}

bool Markers::Record(MarkedStream* stream, uint32_t launches, bool begins, bool prompt) {
  const uint16_t taken = Take(stream->context);
  if (taken == kNone) return false;
  Marker* marker = &markers_[taken];
  marker->recorded_ns = NowNs();
  marker->launches = launches;
  marker->steps = 0;
  marker->lead_ns = static_cast<uint32_t>(stream->LeadNs());
  marker->begin_ns = begins ? 0 : stream->begin_ns;
  marker->joined = 0;
  marker->begins = begins;
  marker->prompt = prompt;
  marker->probes = false;
  const uint64_t host_ns =
      marker->recorded_ns - std::min(stream->host_mark_ns, marker->recorded_ns);
  marker->host_ns = host_ns - std::min(host_ns, stream->held_ns);
  marker->record_ns = stream->record_ns;
  marker->next = kNone;
  if (real::cuEventRecord(marker->event, HandleOf(*stream)) != CUDA_SUCCESS) {
    Return(taken);
    return false;
  }
  if (stream->first == kNone) {
    stream->first = taken;
  } else {
    markers_[stream->last].next = taken;
  }
  stream->last = taken;
  stream->begin_ns = 0;
  stream->goes_on.store(true, std::memory_order_relaxed);
  stream->queued += launches;
  stream->host_mark_ns = NowNs();
  stream->record_ns = std::min(stream->host_mark_ns - marker->recorded_ns, kMostRecordNs);
  stream->held_ns = 0;
  return true;
}

// Whether the calling thread can put something into it: into its own per-thread stream alone.
bool Markers::IsReachable(const MarkedStream& stream) {
  const uint64_t owner = stream.thread.load(std::memory_order_relaxed);
  return owner == 0 || owner == reinterpret_cast<uint64_t>(&last_stream);
}

bool Markers::LeaveContext(bool waits) {
  if (!any_active()) return false;
  bool has_marked = false;
  const uint64_t context = CurrentContext();
  const FutexGuard guard(&lock_);
  ForEachActive([&](MarkedStream* stream) {
    if (!IsReachable(*stream) ||
        contexts_[stream->context].handle.load(std::memory_order_relaxed) != context) {
      return;
    }
    const uint16_t last = stream->last;
    const bool is_left =
        stream->word.load(std::memory_order_relaxed) != 0 && (!waits || MayMarkLate(*stream));
    if (is_left) LeaveLocked(stream);
    has_marked |= stream->last != last;
    if (!waits) stream->goes_on.store(false, std::memory_order_relaxed);
  });
  return has_marked;
}

}  // namespace gpufence
