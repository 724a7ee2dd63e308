#include "base/elf.h"

namespace gpufence {
namespace {

// The loader adds the base to these pointers in place, except for objects whose dynamic section is
// read-only (the vDSO): those still hold offsets.
template <typename Table>
const Table* TableAt(uintptr_t base, ElfW(Addr) value) {
  return reinterpret_cast<const Table*>(value < base ? base + value : value);
}

uint32_t GnuHash(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

// The header of DT_GNU_HASH and the three arrays behind it.
struct GnuHashTable {
  uint32_t bucket_count;
  uint32_t first_symbol;
  const uint32_t* buckets;
  const uint32_t* chains;  // chains[i] belongs to symbol first_symbol + i; bit 0 ends a chain

  explicit GnuHashTable(const uint32_t* words) {
    bucket_count = words[0];
    first_symbol = words[1];
    const uint32_t bloom_words = words[2];
    const auto* bloom = reinterpret_cast<const ElfW(Addr)*>(words + 4);
    buckets = reinterpret_cast<const uint32_t*>(bloom + bloom_words);
    chains = buckets + bucket_count;
  }
};

bool IsNamed(const LoadedObject& object, const ElfW(Sym) & symbol, const char* name) {
  return IsExportedFunction(symbol) && IsSameName(object.strings + symbol.st_name, name);
}

const ElfW(Sym) * FindByGnuHash(const LoadedObject& object, const char* name) {
  const GnuHashTable table(object.gnu_hash);
  if (table.bucket_count == 0) return nullptr;
  const uint32_t hash = GnuHash(name);
  uint32_t index = table.buckets[hash % table.bucket_count];
  if (index < table.first_symbol) return nullptr;
  for (;; ++index) {
    const uint32_t entry = table.chains[index - table.first_symbol];
    if ((entry | 1) == (hash | 1) && IsNamed(object, object.symbols[index], name)) {
      return &object.symbols[index];
    }
    if ((entry & 1) != 0) return nullptr;
  }
}

size_t CountByGnuHash(const uint32_t* words) {
  const GnuHashTable table(words);
  uint32_t last = 0;
  for (uint32_t i = 0; i < table.bucket_count; ++i) {
    if (table.buckets[i] > last) last = table.buckets[i];
  }
  if (last < table.first_symbol) return table.first_symbol;
  while ((table.chains[last - table.first_symbol] & 1) == 0) ++last;
  return last + 1;
}

}  // namespace

bool IsExportedFunction(const ElfW(Sym) & symbol) {
  const unsigned binding = ELF64_ST_BIND(symbol.st_info);
  return symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
         (binding == STB_GLOBAL || binding == STB_WEAK);
}

size_t SymbolCount(const LoadedObject& object) {
  if (object.sysv_hash != nullptr) return object.sysv_hash[1];
  return object.gnu_hash != nullptr ? CountByGnuHash(object.gnu_hash) : 0;
}

LoadedObject ReadObject(uintptr_t base, const ElfW(Dyn) * dynamic) {
  LoadedObject object;
  object.base = base;
  ElfW(Xword) soname_offset = 0;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const ElfW(Addr) value = dynamic->d_un.d_ptr;
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        object.symbols = TableAt<ElfW(Sym)>(base, value);
        break;
      case DT_STRTAB:
        object.strings = TableAt<char>(base, value);
        break;
      case DT_GNU_HASH:
        object.gnu_hash = TableAt<uint32_t>(base, value);
        break;
      case DT_HASH:
        object.sysv_hash = TableAt<uint32_t>(base, value);
        break;
      case DT_VERSYM:
        object.versions = TableAt<ElfW(Half)>(base, value);
        break;
      case DT_SONAME:
        soname_offset = dynamic->d_un.d_val;
        break;
      default:
        break;
    }
  }
  if (soname_offset != 0 && object.strings != nullptr) {
    object.soname = object.strings + soname_offset;
  }
  return object;
}

LoadedObject ReadObject(const dl_phdr_info& info) {
  for (size_t i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_DYNAMIC) continue;
    return ReadObject(info.dlpi_addr,
                      reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + segment.p_vaddr));
  }
  return LoadedObject{};
}

Span SpanOf(uintptr_t base) {
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(base);
  if (base == 0 || header->e_ident[EI_MAG0] != ELFMAG0 || header->e_ident[EI_MAG1] != ELFMAG1 ||
      header->e_ident[EI_MAG2] != ELFMAG2 || header->e_ident[EI_MAG3] != ELFMAG3) {
    return {};
  }
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(base + header->e_phoff);
  uintptr_t end = base;
  for (int i = 0; i < header->e_phnum; ++i) {
    const uintptr_t segment_end = base + segments[i].p_vaddr + segments[i].p_memsz;
    if (segments[i].p_type == PT_LOAD && segment_end > end) end = segment_end;
  }
  return {base, end};
}

bool Contains(const dl_phdr_info& info, const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  for (size_t i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info.dlpi_phdr[i];
    const uintptr_t start = info.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && wanted >= start && wanted - start < segment.p_memsz) {
      return true;
    }
  }
  return false;
}

void* FindFunction(const LoadedObject& object, const char* name) {
  const ElfW(Sym)* found = nullptr;
  if (object.gnu_hash != nullptr) {
    found = FindByGnuHash(object, name);
  } else {
    const size_t count = SymbolCount(object);
    for (size_t i = 0; i < count && found == nullptr; ++i) {
      if (IsNamed(object, object.symbols[i], name)) found = &object.symbols[i];
    }
  }
  return found == nullptr ? nullptr : reinterpret_cast<void*>(object.base + found->st_value);
}

}  // namespace gpufence
