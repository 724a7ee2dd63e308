// The dynamic symbol tables of objects that are already loaded, read in place.
// Exists because a lookup through the loader depends on who asks, sets dlerror and can be
// interposed; a table cannot. Must not know which names matter.
#pragma once

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

namespace gpufence {

// One loaded object. Views into memory that the loader owns: valid while the object stays loaded.
struct LoadedObject {
  uintptr_t base = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
  const ElfW(Half) * versions = nullptr;  // null: no symbol of the object has a version
  const char* soname = nullptr;           // null: none recorded

  bool usable() const {
    return symbols != nullptr && strings != nullptr &&
           (gnu_hash != nullptr || sysv_hash != nullptr);
  }
};

// Reads the tables that `dynamic` (a loaded PT_DYNAMIC) points to.
LoadedObject ReadObject(uintptr_t base, const ElfW(Dyn) * dynamic);
LoadedObject ReadObject(const dl_phdr_info& info);

// True when `address` lies in a segment of the object.
bool Contains(const dl_phdr_info& info, const void* address);

// Where an object's segments begin and end; {0, 0} where its headers are not at its base.
struct Span {
  uintptr_t begin;
  uintptr_t end;
};
Span SpanOf(uintptr_t base);

// strcmp by another name: sanitizers wrap that one, and look functions up before it works.
inline bool IsSameName(const char* one, const char* other) {
  for (; *one == *other; ++one, ++other) {
    if (*one == '\0') return true;
  }
  return false;
}

// The object's own definition of a function called `name`, or nullptr.
void* FindFunction(const LoadedObject& object, const char* name);

// Calls visit(name, address) for every function that the object defines and exports.
template <typename Visit>
void ForEachFunction(const LoadedObject& object, Visit visit);

// Implementation.

size_t SymbolCount(const LoadedObject& object);
bool IsExportedFunction(const ElfW(Sym) & symbol);

template <typename Visit>
void ForEachFunction(const LoadedObject& object, Visit visit) {
  const size_t count = SymbolCount(object);
  for (size_t i = 0; i < count; ++i) {
    const ElfW(Sym) & symbol = object.symbols[i];
    if (!IsExportedFunction(symbol)) continue;
    visit(object.strings + symbol.st_name, reinterpret_cast<void*>(object.base + symbol.st_value));
  }
}

}  // namespace gpufence
