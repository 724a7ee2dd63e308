// Handle tables: how the simulated driver turns an opaque handle into an object, or refuses it.
//
// Owns handle values and the objects' storage.  Must not know what the objects mean.
//
// A handle carries its kind, the object's index and a generation that changes with each reuse, so a
// destroyed, foreign or invented handle is found out without touching memory it may point to.
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>

namespace sim {

// Part of every handle's value.  Append only: tests print handles.
enum class Kind : uint8_t {
  kContext = 1,
  kGreenContext,
  kResourceDesc,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kLink,
  kGraph,
  kGraphNode,
  kGraphExec,
  kGraphConditional,
  kUserObject,
  kArray,
  kMipmappedArray,
  kMemoryPool,
  kPhysical,  // CUmemGenericAllocationHandle
  kExternalMemory,
  kExternalSemaphore,
  kTexture,
  kSurface,
  kTextureReference,
  kMulticast,
};

// Handle layout: kind in bits 48..55, generation in 28..47, index in 4..27, zeros below, so that a
// handle is never 0, never one of the special stream values and always looks aligned.
inline constexpr int kHandleKindShift = 48;
inline constexpr int kHandleGenerationShift = 28;
inline constexpr int kHandleIndexShift = 4;
inline constexpr uint32_t kMaxGeneration = (1u << 20) - 1;
inline constexpr uint32_t kMaxObjects = 1u << 20;

// Objects of one kind.  T is plain data; Create hands it out zeroed (but for its generation, which
// the table keeps beside it).  Addresses are stable until Destroy.  The table locks itself; what is
// inside an object is its owner's to guard (normally by DriverLock, see context.h).
template <typename T, Kind kKind>
class Table {
  static_assert(std::is_trivially_copyable_v<T> || std::is_standard_layout_v<T>);

 public:
  // Returns the new object and its handle, or nullptr when memory or indices are exhausted.
  T* Create(uint64_t* handle) {
    Lock lock(&mutex_);
    const uint32_t index = free_head_ != 0 ? free_head_ - 1 : used_;
    if (index >= kMaxObjects || !EnsureChunk(index)) return nullptr;
    Cell* cell = At(index);
    if (free_head_ != 0) {
      free_head_ = cell->next_free;
    } else {
      ++used_;
    }
    memset(static_cast<void*>(&cell->object), 0, sizeof(T));
    cell->generation = cell->generation >= kMaxGeneration ? 1 : cell->generation + 1;
    cell->live = true;
    ++live_;
    *handle = Encode(index, cell->generation);
    return &cell->object;
  }

  // The object behind a handle; nullptr for anything that is not a live handle of this kind.
  T* Find(uint64_t handle) {
    Lock lock(&mutex_);
    Cell* cell = Locate(handle);
    return cell != nullptr ? &cell->object : nullptr;
  }

  template <typename Handle>
    requires std::is_pointer_v<Handle>
  T* Find(Handle handle) {
    return Find(static_cast<uint64_t>(reinterpret_cast<uintptr_t>(handle)));
  }

  // Whether a handle was live once and is no more.
  bool HasEnded(uint64_t handle) {
    Lock lock(&mutex_);
    const uint32_t index = IndexOf(handle);
    if (index >= used_ || Locate(handle) != nullptr) return false;
    const uint32_t generation =
        static_cast<uint32_t>(handle >> kHandleGenerationShift) & kMaxGeneration;
    return Encode(index, generation) == handle && generation >= 1 &&
           generation <= At(index)->generation;
  }

  // False when the handle is not live.  The object's own resources are the caller's to give back.
  bool Destroy(uint64_t handle) {
    Lock lock(&mutex_);
    Cell* cell = Locate(handle);
    if (cell == nullptr) return false;
    cell->live = false;
    --live_;
    cell->next_free = free_head_;
    free_head_ = IndexOf(handle) + 1;
    return true;
  }

  template <typename Handle>
    requires std::is_pointer_v<Handle>
  bool Destroy(Handle handle) {
    return Destroy(static_cast<uint64_t>(reinterpret_cast<uintptr_t>(handle)));
  }

  // Calls visit(handle, object) for each live object.  `visit` may destroy objects of this table
  // and create others; those created meanwhile may or may not be visited.
  template <typename Visit>
  void ForEach(Visit visit) {
    for (uint32_t index = 0; index < Used(); ++index) {
      Cell* cell = LiveAt(index);
      if (cell != nullptr) visit(Encode(index, cell->generation), &cell->object);
    }
  }

  size_t live_count() {
    Lock lock(&mutex_);
    return live_;
  }

 private:
  static constexpr uint32_t kChunkObjects = 256;

  struct Cell {
    T object;
    uint32_t generation;
    uint32_t next_free;  // index + 1 of the next free cell, 0 = none
    bool live;
  };

  struct Lock {
    explicit Lock(pthread_mutex_t* mutex) : mutex(mutex) { pthread_mutex_lock(mutex); }
    ~Lock() { pthread_mutex_unlock(mutex); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    pthread_mutex_t* mutex;
  };

  static uint64_t Encode(uint32_t index, uint32_t generation) {
    return static_cast<uint64_t>(kKind) << kHandleKindShift |
           static_cast<uint64_t>(generation) << kHandleGenerationShift |
           static_cast<uint64_t>(index) << kHandleIndexShift;
  }

  static uint32_t IndexOf(uint64_t handle) {
    return static_cast<uint32_t>(handle >> kHandleIndexShift) & ((1u << 24) - 1);
  }

  Cell* At(uint32_t index) { return &chunks_[index / kChunkObjects][index % kChunkObjects]; }

  Cell* Locate(uint64_t handle) {
    const uint32_t index = IndexOf(handle);
    if (index >= used_) return nullptr;
    Cell* cell = At(index);
    return cell->live && Encode(index, cell->generation) == handle ? cell : nullptr;
  }

  Cell* LiveAt(uint32_t index) {
    Lock lock(&mutex_);
    Cell* cell = At(index);
    return cell->live ? cell : nullptr;
  }

  uint32_t Used() {
    Lock lock(&mutex_);
    return used_;
  }

  bool EnsureChunk(uint32_t index) {
    Cell*& chunk = chunks_[index / kChunkObjects];
    if (chunk == nullptr) chunk = static_cast<Cell*>(calloc(kChunkObjects, sizeof(Cell)));
    return chunk != nullptr;
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  uint32_t free_head_ = 0;  // index + 1
  uint32_t used_ = 0;       // cells ever handed out
  size_t live_ = 0;
  Cell* chunks_[kMaxObjects / kChunkObjects] = {};
};

// A handle value as the opaque pointer type that the API uses for it.
template <typename Handle>
Handle AsHandle(uint64_t value) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(value));
}

template <typename Handle>
uint64_t HandleValue(Handle handle) {
  return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(handle));
}

}  // namespace sim
