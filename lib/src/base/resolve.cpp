#include "base/resolve.h"

#include <dlfcn.h>
#include <string.h>

#include <atomic>

#include "base/entries.h"
#include "base/env.h"
#include "base/log.h"
#include "base/translate.h"
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
