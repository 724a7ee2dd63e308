#include "device/markers/stream_table.h"

#include "base/locks.h"
#include "device/ids.h"
#include "real.h"

namespace gpufence {
namespace {

constinit std::atomic<bool> has_blocking_streams{false};

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

constinit thread_local MarkedStream* last_stream = nullptr;
constinit thread_local bool StreamsGuard::inside = false;

void NoteBlockingStream() { has_blocking_streams.store(true, std::memory_order_relaxed); }

bool HasBlockingStreams() { return has_blocking_streams.load(std::memory_order_relaxed); }

bool IsBlockingStream(uint64_t handle) {
  if (!HasBlockingStreams()) return false;
  if (handle <= kPerThreadStream) return handle == kPerThreadStream;
  unsigned int flags = 0;
  const CUresult rc = real::cuStreamGetFlags(reinterpret_cast<CUstream>(handle), &flags);
  return rc == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING) == 0;
}

// ---- streams ----

bool StreamTable::KeyOf(CUstream stream, Key* key) {
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

bool StreamTable::Is(const MarkedStream& stream, const Key& key) {
  return stream.handle.load(std::memory_order_acquire) == key.handle &&
         stream.scope.load(std::memory_order_relaxed) == key.scope &&
         stream.thread.load(std::memory_order_relaxed) == key.thread;
}

MarkedStream* StreamTable::SetOf(const Key& key) {
  const uint64_t mixed = (key.handle ^ (key.scope >> 4) ^ (key.thread << 7)) * 0x9e3779b97f4a7c15u;
  return &streams_[(mixed >> 40) % (kMostMarkedStreams / kWays) * kWays];
}

MarkedStream* StreamTable::Lookup(const Key& key) {
  MarkedStream* set = SetOf(key);
  for (uint32_t way = 0; way < kWays; ++way) {
    if (Is(set[way], key)) return &set[way];
  }
  return nullptr;
}

// The place of a stream that is idle where there is no empty one; null: none is.
MarkedStream* StreamTable::PlaceFor(const Key& key) {
  MarkedStream* set = SetOf(key);
  MarkedStream* place = nullptr;
  for (uint32_t way = 0; way < kWays; ++way) {
    if (IsActive(&set[way]) || set[way].recorder != Recorder::kNobody) continue;
    if (place == nullptr || set[way].handle.load(std::memory_order_relaxed) == 0) {
      place = &set[way];
    }
  }
  return place;
}

MarkedStream* StreamTable::Insert(const Key& key) {
  CUcontext owner = reinterpret_cast<CUcontext>(key.scope);
  if (owner == nullptr &&
      real::cuStreamGetCtx(reinterpret_cast<CUstream>(key.handle), &owner) != CUDA_SUCCESS) {
    owner = reinterpret_cast<CUcontext>(CurrentContext());
  }
  const bool is_blocking = IsBlockingStream(key.handle);
  const ContextFacts facts = AskAbout(reinterpret_cast<uint64_t>(owner));
  const StreamsGuard guard(this);
  if (!guard) return nullptr;
  MarkedStream* known = Lookup(key);
  if (known != nullptr) return known;
  const uint16_t context = ContextFor(facts);
  MarkedStream* place = context != kNoContext ? PlaceFor(key) : nullptr;
  if (place == nullptr) return nullptr;
  place->handle.store(0, std::memory_order_relaxed);
  place->scope.store(key.scope, std::memory_order_relaxed);
  place->thread.store(key.thread, std::memory_order_relaxed);
  place->BeginLife(static_cast<uint32_t>(place - streams_) * 2 + 1);
  place->ordinal = contexts_[context].ordinal;
  place->context = context;
  place->is_blocking = is_blocking;
  place->others_seen = contexts_[context].others;
  place->handle.store(key.handle, std::memory_order_release);
  return place;
}

MarkedStream* StreamTable::LookFor(CUstream handle) {
  Key key;
  if (!KeyOf(handle, &key)) return nullptr;
  if (last_stream != nullptr && Is(*last_stream, key)) return last_stream;
  MarkedStream* found = Lookup(key);
  if (found == nullptr) found = Insert(key);
  if (found != nullptr) last_stream = found;
  return found;
}

MarkedStream* StreamTable::Find(CUstream handle) {
  Key key;
  if (!KeyOf(handle, &key)) return nullptr;
  return last_stream != nullptr && Is(*last_stream, key) ? last_stream : Lookup(key);
}

bool StreamTable::IsOf(const MarkedStream& stream, CUstream handle) {
  Key key;
  return KeyOf(handle, &key) && Is(stream, key);
}

bool StreamTable::IsHere(const MarkedStream& stream) const {
  return CurrentContext() == ContextOf(stream).handle.load(std::memory_order_relaxed);
}

bool StreamTable::IsReachable(const MarkedStream& stream) {
  const uint64_t owner = stream.thread.load(std::memory_order_relaxed);
  return owner == 0 || owner == reinterpret_cast<uint64_t>(&last_stream);
}

// ---- contexts ----

uint16_t StreamTable::IndexOf(uint64_t context) const {
  if (context == 0) return kNoContext;
  for (uint16_t i = 1; i < kMostMarkedContexts; ++i) {
    if (contexts_[i].handle.load(std::memory_order_relaxed) == context) return i;
  }
  return kNoContext;
}

StreamTable::ContextFacts StreamTable::AskAbout(uint64_t context) const {
  ContextFacts facts = {context, kNoDevice, false};
  if (context == 0 || IndexOf(context) != kNoContext) return facts;
  facts.ordinal = DeviceOfContext(reinterpret_cast<CUcontext>(context));
  facts.is_primary =
      facts.ordinal != kNoDevice && IsPrimary(context, static_cast<CUdevice>(facts.ordinal));
  return facts;
}

uint16_t StreamTable::ContextFor(const ContextFacts& facts) {
  const uint64_t handle = facts.handle;
  if (handle == 0) return kNoContext;
  uint16_t free = kNoContext;
  for (uint16_t i = 1; i < kMostMarkedContexts; ++i) {
    const uint64_t seen = contexts_[i].handle.load(std::memory_order_relaxed);
    if (seen == handle) return i;
    // One that ended keeps its place for the other calls that may have ended it as well.
    if (seen == 0 && contexts_[i].away == 0 && free == kNoContext) free = i;
  }
  if (free == kNoContext || facts.ordinal == kNoDevice) return kNoContext;
  MarkedContext* made = &contexts_[free];
  made->ordinal = facts.ordinal;
  made->is_primary = facts.is_primary;
  made->others = 0;
  made->ForgetEvents();
  made->handle.store(handle, std::memory_order_relaxed);
  return free;
}

void StreamTable::NoteDeparture() {
  if (waiting_ == 0) return;
  departures_.fetch_add(1, std::memory_order_relaxed);
  FutexWakeAll(&departures_);
}

// ---- what is put there ----

bool StreamTable::IsHeldUp(uint16_t context) {
  // Some microseconds: as long as a call takes that does not wait.
  constexpr int kLooks = 100;
  const uint64_t seen = puts_[context].load(std::memory_order_relaxed);
  uint64_t now = seen;
  for (int i = 0; i < kLooks && static_cast<uint32_t>(now) != 0 && now >> 32 == seen >> 32; ++i) {
    Relax();
    now = puts_[context].load(std::memory_order_relaxed);
  }
  bool is_held_up = static_cast<uint32_t>(now) != 0 && now >> 32 == seen >> 32;
  ForEachActive([&](const MarkedStream* stream) {
    is_held_up |= stream->context == context && stream->IsStuck();
  });
  return is_held_up;
}

// ---- what is active ----

bool StreamTable::IsActive(const MarkedStream* stream) const {
  const size_t index = static_cast<size_t>(stream - streams_);
  return (active_[index / 64].load(std::memory_order_relaxed) >> (index % 64) & 1) != 0;
}

void StreamTable::SetActive(const MarkedStream* stream, bool active) {
  const size_t index = static_cast<size_t>(stream - streams_);
  const uint64_t bit = uint64_t{1} << (index % 64);
  if (IsActive(stream) == active) return;
  std::atomic<uint64_t>& bits = active_[index / 64];
  bits.store(bits.load(std::memory_order_relaxed) ^ bit, std::memory_order_release);
  if (active) {  // before the watcher is asked
    active_count_.store(active_count() + 1, std::memory_order_seq_cst);
  } else {
    active_count_.store(active_count() - 1, std::memory_order_release);
  }
}

bool StreamTable::IsOnlyActive(const MarkedStream* stream) const {
  return active_count() == (IsActive(stream) ? 1u : 0u);
}

uint32_t StreamTable::CountActive(uint32_t ordinal) {
  uint32_t count = 0;
  ForEachActive([&](MarkedStream* stream) { count += stream->ordinal == ordinal ? 1 : 0; });
  return count;
}

}  // namespace gpufence
