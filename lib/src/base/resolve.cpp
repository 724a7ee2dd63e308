#include "base/resolve.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <atomic>

#include "base/entries.h"
#include "base/env.h"
#include "base/log.h"
#include "lookup.h"

extern "C" {
constinit gpufence::DlsymFn gpufence_next_dlsym = nullptr;
constinit gpufence::DlvsymFn gpufence_next_dlvsym = nullptr;

// What a function that the driver lacks answers. The caller's arguments are ignored.
static int MissingCuda() { return gpufence::kCudaNotFound; }
static int MissingNvml() { return gpufence::kNvmlNotFound; }
static const char* MissingText() { return "Function Not Found"; }
}

namespace gpufence {
namespace {

// One word per driver function keeps insertion a single compare-and-swap: two threads may fill the
// table at once (see resolve.h), and a reader never sees half an entry. User addresses fit 48
// bits on x86-64 and aarch64 unless a process asks for more, which drivers do not.
constexpr unsigned kSymBits = 16;
constexpr size_t kBuckets = 8192;
static_assert(kSymCount < (1u << kSymBits) - 1, "symbol number and its +1 fit the low bits");
static_assert(kBuckets >= 4 * kSymCount, "short probe chains, and never full");
static_assert((kBuckets & (kBuckets - 1)) == 0, "the mask below needs a power of two");

constinit std::atomic<uint64_t> table[kBuckets] = {};

uint64_t Pack(const void* address, Sym sym) {
  return (reinterpret_cast<uint64_t>(address) << kSymBits) | (static_cast<uint64_t>(sym) + 1);
}

bool Holds(uint64_t word, const void* address) {
  return (word >> kSymBits) == (reinterpret_cast<uint64_t>(address) << kSymBits >> kSymBits);
}

size_t FirstBucket(const void* address) {
  const uint64_t mixed = (reinterpret_cast<uint64_t>(address) >> 4) * 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(mixed >> 51) & (kBuckets - 1);
}

// Records that the driver's `sym` lives at `address`. Idempotent, lock-free; any thread.
void RememberAddress(const void* address, Sym sym) {
  const uint64_t word = Pack(address, sym);
  size_t bucket = FirstBucket(address);
  for (size_t probes = 0; probes < kBuckets; ++probes, bucket = (bucket + 1) & (kBuckets - 1)) {
    uint64_t seen = 0;
    // Release pairs with the acquire in SymAt; the entry table is published separately.
    if (table[bucket].compare_exchange_strong(seen, word, std::memory_order_release,
                                              std::memory_order_relaxed) ||
        Holds(seen, address)) {
      return;
    }
  }
}

struct DriverLibrary {
  const char* soname;
  const char* path_variable;  // vgpu.rs's users name the real library in it
  const char* landmark;       // what no other library defines
  uint32_t first;
  uint32_t end;
  std::atomic<bool> bound;
  std::atomic<uintptr_t> code_begin;  // 0: not bound
  std::atomic<uintptr_t> code_end;
};

constinit DriverLibrary libraries[] = {
    {"libcuda.so.1", "TF_CUDA_LIB_PATH", "cuInit", kCudaFirst, kCudaEnd, {false}, {0}, {0}},
    {"libnvidia-ml.so.1",
     "TF_NVML_LIB_PATH",
     "nvmlInit_v2",
     kNvmlFirst,
     kNvmlEnd,
     {false},
     {0},
     {0}},
};

DriverLibrary* LibraryOf(uint32_t sym) {
  for (DriverLibrary& library : libraries) {
    if (sym >= library.first && sym < library.end) return &library;
  }
  return nullptr;
}

void* MissingStub(uint32_t sym) {
  if (sym == kSym_nvmlErrorString) return reinterpret_cast<void*>(&MissingText);
  return sym >= kNvmlFirst && sym < kNvmlEnd ? reinterpret_cast<void*>(&MissingNvml)
                                             : reinterpret_cast<void*>(&MissingCuda);
}

// The first definition of `name` in an object after us. Not by dl_iterate_phdr: the thread
// sanitizer wraps that and looks names up before its own wrapper works. What is found was loaded
// with the program, so no dlclose takes an object of this part of the list away meanwhile.
void* NextDefinition(const char* name) {
  Dl_info own{};
  void* own_map = nullptr;
  if (dladdr1(libraries, &own, &own_map, RTLD_DL_LINKMAP) == 0) return nullptr;
  const link_map* map = static_cast<link_map*>(own_map)->l_next;
  for (; map != nullptr; map = map->l_next) {
    const LoadedObject object = ReadObject(map->l_addr, map->l_ld);
    void* found = object.usable() ? FindFunction(object, name) : nullptr;
    if (found != nullptr) return found;
  }
  return nullptr;
}

// Every slot first gets the driver's function or, at the end, the "not found" stub: a caller that
// reads the table meanwhile finds either the lazy stub, which leads back here, or the final word.
void FillEntries(DriverLibrary* library, const LoadedObject& object) {
  uint32_t count = 0;
  ForEachFunction(object, [&](const char* name, void* address) {
    const Sym sym = FindSym(name);
    if (sym == kNoSym || LibraryOf(sym) != library) return;
    RememberAddress(address, sym);
    gpufence_entry[sym].store(address, std::memory_order_relaxed);
    ++count;
  });
  for (uint32_t sym = library->first; sym < library->end; ++sym) {
    void* lazy = kLazyStub[sym];
    gpufence_entry[sym].compare_exchange_strong(lazy, MissingStub(sym), std::memory_order_relaxed);
  }
  const Span span = SpanOf(object.base);
  library->code_begin.store(span.begin, std::memory_order_relaxed);
  library->code_end.store(span.end, std::memory_order_relaxed);
  // Pairs with the acquire in DriverHas: whoever sees the flag sees the table.
  library->bound.store(true, std::memory_order_release);
  GPUFENCE_TRACE(kDebug, "%s bound: %u of %u known functions", library->soname, count,
                 library->end - library->first);
}

bool BindHandle(DriverLibrary* library, void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return false;
  const LoadedObject object = ReadObject(map->l_addr, map->l_ld);
  if (!object.usable()) return false;
  FillEntries(library, object);
  return true;
}

// The handle is never closed: the tables point into the driver for the rest of the process.
bool BindIfLoaded(DriverLibrary* library) {
  if (library->bound.load(std::memory_order_acquire)) return true;
  void* handle = dlopen(library->soname, RTLD_LAZY | RTLD_NOLOAD);
  return handle != nullptr && BindHandle(library, handle);
}

// A path that leads to no driver of this kind is passed over: the loader's own choice remains.
bool BindNamed(DriverLibrary* library) {
  const char* path = EnvText(library->path_variable);
  if (path == nullptr || *path == '\0') return false;
  void* handle = dlopen(path, RTLD_LAZY);
  link_map* map = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) {
    dlerror();  // the program did not make this call
    return false;
  }
  const LoadedObject object = ReadObject(map->l_addr, map->l_ld);
  if (object.usable() && !IsOwn(map->l_ld) && FindFunction(object, library->landmark) != nullptr) {
    FillEntries(library, object);
    return true;
  }
  dlclose(handle);
  return false;
}

bool Bind(DriverLibrary* library) {
  if (BindIfLoaded(library) || BindNamed(library)) return true;
  void* handle = dlopen(library->soname, RTLD_LAZY);
  if (handle != nullptr && BindHandle(library, handle)) return true;
  const char* why = dlerror();  // also clears it: the program did not make this call
  GPUFENCE_LOG(kWarn, "%s cannot be opened: %s. Install the driver or mount it into the container",
               library->soname, why != nullptr ? why : "it has no symbol table");
  return false;
}

}  // namespace

Sym SymAt(const void* address) {
  size_t bucket = FirstBucket(address);
  for (size_t probes = 0; probes < kBuckets; ++probes, bucket = (bucket + 1) & (kBuckets - 1)) {
    const uint64_t word = table[bucket].load(std::memory_order_acquire);
    if (word == 0) return kNoSym;
    if (Holds(word, address)) return static_cast<Sym>((word & ((1u << kSymBits) - 1)) - 1);
  }
  return kNoSym;
}

DlsymFn RealDlsym() {
  if (gpufence_next_dlsym == nullptr) {
    gpufence_next_dlsym = reinterpret_cast<DlsymFn>(NextDefinition("dlsym"));
  }
  return gpufence_next_dlsym;
}

DlvsymFn RealDlvsym() {
  if (gpufence_next_dlvsym == nullptr) {
    gpufence_next_dlvsym = reinterpret_cast<DlvsymFn>(NextDefinition("dlvsym"));
  }
  return gpufence_next_dlvsym;
}

bool IsOwn(const void* address) {
  Dl_info own{};
  Dl_info other{};
  return dladdr(libraries, &own) != 0 && dladdr(address, &other) != 0 &&
         own.dli_fbase == other.dli_fbase;
}

bool IsDriverCode(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const DriverLibrary& library : libraries) {
    if (at >= library.code_begin.load(std::memory_order_relaxed) &&
        at < library.code_end.load(std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

bool BindLoaded(const LoadedObject& object) {
  if (object.soname == nullptr) return false;
  for (DriverLibrary& library : libraries) {
    if (strcmp(object.soname, library.soname) != 0) continue;
    if (!library.bound.load(std::memory_order_acquire)) FillEntries(&library, object);
    return true;
  }
  return false;
}

bool DriverHas(Sym sym) {
  DriverLibrary* library = LibraryOf(sym);
  if (library == nullptr || !BindIfLoaded(library)) return false;
  return gpufence_entry[sym].load(std::memory_order_relaxed) != MissingStub(sym);
}

}  // namespace gpufence

void* gpufence_resolve(uint32_t sym) {
  using namespace gpufence;
  DriverLibrary* library = LibraryOf(sym);
  if (library == nullptr || !Bind(library)) return MissingStub(sym);
  void* target = gpufence_entry[sym].load(std::memory_order_relaxed);
  return target == kLazyStub[sym] ? MissingStub(sym) : target;
}
