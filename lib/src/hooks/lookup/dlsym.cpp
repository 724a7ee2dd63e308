// dlsym and dlvsym for the names we wrap. Every other name never gets here: the assembler stubs in
// dlsym_entry.S jump on to the next dlsym with the caller's frame untouched.
//
// Rule: ask the real one, then exchange a driver address for our wrapper. What the driver does not
// export stays not found, and no lookup ever loads a driver.
#include <dlfcn.h>
#include <stdint.h>

#include "base/elf.h"
#include "base/entries.h"
#include "base/resolve.h"
#include "lookup.h"

namespace gpufence {

// Returned in two registers. handled == 0: the stub jumps on to the next dlsym itself.
struct LookupAnswer {
  void* address;
  uintptr_t handled;
};

}  // namespace gpufence

// What the assembler stubs call, and nothing else.
extern "C" {

// dlsym(handle, name) as asked by the code at `caller`.
gpufence::LookupAnswer gpufence_filter_dlsym(void* handle, const char* name, const void* caller);

// dlvsym(handle, name, version) as asked by the code at `caller`. The driver's symbols carry no
// version, so nearly all answers are nullptr.
gpufence::LookupAnswer gpufence_filter_dlvsym(void* handle, const char* name, const char* version,
                                              const void* caller);

}  // extern "C"

namespace gpufence {
namespace {

using Answer = LookupAnswer;
constexpr Answer kAskNext{nullptr, 0};

Answer Answered(void* address) { return {address, 1}; }

// The first definition of `name` behind the object that holds `caller`, in load order. That is
// what RTLD_NEXT means for everything in the global scope; the loader's own answer would be
// relative to us, not to the caller.
struct AfterCaller {
  const void* caller;
  const char* name;
  bool versioned;  // a versioned request never matches an object whose symbols carry versions
  bool skip_us;
  bool passed_caller;
  bool passed_us;
  void* found;
};

int VisitAfterCaller(dl_phdr_info* info, size_t /*size*/, void* data) {
  auto* search = static_cast<AfterCaller*>(data);
  const bool is_us = Contains(*info, gpufence_entry);
  if (is_us && !search->passed_caller) search->passed_us = true;
  if (!search->passed_caller) {
    search->passed_caller = Contains(*info, search->caller);
    return 0;
  }
  if (is_us && search->skip_us) return 0;
  const LoadedObject object = ReadObject(*info);
  if (!object.usable() || (search->versioned && object.versions != nullptr)) return 0;
  search->found = FindFunction(object, search->name);
  return search->found != nullptr;
}

// The loaded object around an address, copied out under the loader's lock.
struct ObjectAround {
  const void* address;
  LoadedObject object;
  bool found;
};

int VisitAround(dl_phdr_info* info, size_t /*size*/, void* data) {
  auto* search = static_cast<ObjectAround*>(data);
  if (!Contains(*info, search->address)) return 0;
  search->object = ReadObject(*info);
  search->found = search->object.usable();
  return 1;
}

// What dlmopen loaded into a namespace of its own is in no list that dl_iterate_phdr walks from
// here.
bool FindObjectElsewhere(const void* address, LoadedObject* object) {
  Dl_info info{};
  void* found = nullptr;
  if (dladdr1(address, &info, &found, RTLD_DL_LINKMAP) == 0 || found == nullptr) return false;
  const auto* map = static_cast<const link_map*>(found);
  *object = ReadObject(map->l_addr, map->l_ld);
  return object->usable();
}

bool FindObjectAround(const void* address, LoadedObject* object) {
  ObjectAround search{address, {}, false};
  dl_iterate_phdr(VisitAround, &search);
  *object = search.object;
  return search.found || FindObjectElsewhere(address, object);
}

// The answer for a program that looked up `sym` by name and was given `found` by the loader:
// `found` itself when it is neither the driver's nor ours; nullptr stays nullptr.
void* Substitute(Sym sym, void* found) {
  if (found == nullptr) return nullptr;
  Sym exact = SymAt(found);
  if (exact != kNoSym) return kWrapper[exact];
  // Not bound yet, or a second copy of the driver under another path: its soname tells. A lookup
  // is the moment before the first call, so this is also where binding starts.
  LoadedObject object;
  if (!FindObjectAround(found, &object) || !BindLoaded(object)) return found;
  exact = SymAt(found);
  return kWrapper[exact != kNoSym ? exact : sym];
}

// RTLD_DEFAULT and dlopen(nullptr) search the global scope, where a preloaded library comes first:
// finding our own export there says nothing about the driver.
Answer AnswerForOwnExport(Sym sym, const char* name, void* handle) {
  link_map* map = nullptr;
  const bool named_us = handle != RTLD_DEFAULT && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 &&
                        map != nullptr && IsOwn(map->l_ld);
  if (named_us || DriverHas(sym)) return Answered(kWrapper[sym]);
  // Asked from here, the real one finds what stands behind us, or sets the error text.
  return Answered(Substitute(sym, RealDlsym()(RTLD_NEXT, name)));
}

Answer AnswerNext(Sym sym, const char* name, const void* caller, bool versioned) {
  AfterCaller search{caller, name, versioned, /*skip_us=*/true, false, false, nullptr};
  dl_iterate_phdr(VisitAfterCaller, &search);
  if (search.found != nullptr) return Answered(Substitute(sym, search.found));
  if (search.passed_us || versioned) return kAskNext;  // cannot meet us: it sets the error text
  return Answered(RealDlsym()(RTLD_NEXT, name));
}

bool IsLookupName(const char* name, void** ours) {
  if (IsSameName(name, "dlsym")) {
    *ours = reinterpret_cast<void*>(&dlsym);
  } else if (IsSameName(name, "dlvsym")) {
    *ours = reinterpret_cast<void*>(&dlvsym);
  } else {
    return false;
  }
  return true;
}

// dlsym asked for itself. An object that defines the name is an interposer looking for the one
// behind it, whatever handle it thought of: given ours or its own, it would call itself for ever.
// Everybody else keeps going through us.
Answer AnswerLookupName(void* ours, void* handle, const char* name, const void* caller) {
  LoadedObject object;
  const bool interposer =
      FindObjectAround(caller, &object) && FindFunction(object, name) != nullptr;
  if (handle == RTLD_NEXT || interposer) {
    AfterCaller search{caller, name, false, /*skip_us=*/false, false, false, nullptr};
    dl_iterate_phdr(VisitAfterCaller, &search);
    return search.found != nullptr ? Answered(search.found) : kAskNext;
  }
  void* found = RealDlsym()(handle, name);
  return Answered(found != nullptr ? ours : nullptr);
}

}  // namespace
}  // namespace gpufence

extern "C" {

gpufence::LookupAnswer gpufence_filter_dlsym(void* handle, const char* name, const void* caller) {
  using namespace gpufence;
  if (RealDlsym() == nullptr) return Answered(nullptr);
  const Sym sym = FindSym(name);
  if (sym == kNoSym) {
    void* ours = nullptr;
    return IsLookupName(name, &ours) ? AnswerLookupName(ours, handle, name, caller) : kAskNext;
  }
  if (handle == RTLD_NEXT) return AnswerNext(sym, name, caller, /*versioned=*/false);
  void* found = RealDlsym()(handle, name);
  if (found == kWrapper[sym]) return AnswerForOwnExport(sym, name, handle);
  return Answered(Substitute(sym, found));
}

gpufence::LookupAnswer gpufence_filter_dlvsym(void* handle, const char* name, const char* version,
                                              const void* caller) {
  using namespace gpufence;
  if (RealDlvsym() == nullptr) return Answered(nullptr);
  const Sym sym = FindSym(name);
  if (sym == kNoSym) {
    void* ours = nullptr;
    return IsLookupName(name, &ours) ? AnswerLookupName(ours, handle, name, caller) : kAskNext;
  }
  if (handle == RTLD_NEXT) return AnswerNext(sym, name, caller, /*versioned=*/true);
  void* found = RealDlvsym()(handle, name, version);
  if (found == kWrapper[sym] && !DriverHas(sym)) return Answered(nullptr);
  return Answered(Substitute(sym, found));
}

}  // extern "C"
