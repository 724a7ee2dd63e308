// A function's address read straight from the tables of a loaded library, past every preload.
// Owns nothing; must not call dlsym, which a preloaded library may answer.

#ifndef GPUFENCE_BENCH_RAW_SYMBOL_H_
#define GPUFENCE_BENCH_RAW_SYMBOL_H_

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace bench {

struct RawQuery {
  const char* library;  // part of the file name
  const char* symbol;
  void* address;
};

// The number of symbols, which only the hash tables know.
inline uint32_t SymbolCount(const uint32_t* sysv_hash, const uint32_t* gnu_hash) {
  if (sysv_hash != nullptr) return sysv_hash[1];
  const uint32_t bucket_count = gnu_hash[0];
  const uint32_t first_hashed = gnu_hash[1];
  const uint32_t bloom_words = gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* buckets = gnu_hash + 4 + bloom_words;
  const uint32_t* chains = buckets + bucket_count;
  uint32_t last = first_hashed;
  for (uint32_t i = 0; i < bucket_count; ++i) last = buckets[i] > last ? buckets[i] : last;
  while ((chains[last - first_hashed] & 1) == 0) ++last;
  return last + 1;
}

inline int FindIn(dl_phdr_info* info, size_t, void* data) {
  auto* query = static_cast<RawQuery*>(data);
  if (std::strstr(info->dlpi_name, query->library) == nullptr) return 0;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  }
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  const uint32_t* sysv_hash = nullptr;
  const uint32_t* gnu_hash = nullptr;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    const auto address = reinterpret_cast<const void*>(dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_SYMTAB) symbols = static_cast<const ElfW(Sym)*>(address);
    if (dynamic->d_tag == DT_STRTAB) names = static_cast<const char*>(address);
    if (dynamic->d_tag == DT_HASH) sysv_hash = static_cast<const uint32_t*>(address);
    if (dynamic->d_tag == DT_GNU_HASH) gnu_hash = static_cast<const uint32_t*>(address);
  }
  if (symbols == nullptr || names == nullptr || (sysv_hash == nullptr && gnu_hash == nullptr)) {
    return 0;
  }
  const uint32_t count = SymbolCount(sysv_hash, gnu_hash);
  for (uint32_t i = 0; i < count; ++i) {
    const bool defined = symbols[i].st_shndx != SHN_UNDEF;
    if (!defined || std::strcmp(names + symbols[i].st_name, query->symbol) != 0) continue;
    query->address = reinterpret_cast<void*>(info->dlpi_addr + symbols[i].st_value);
    return 1;
  }
  return 0;
}

// The address of `symbol` as defined by the loaded library whose file name contains `library`;
// nullptr when there is none.
inline void* RawSymbol(const char* library, const char* symbol) {
  RawQuery query{library, symbol, nullptr};
  dl_iterate_phdr(FindIn, &query);
  return query.address;
}

}  // namespace bench

#endif  // GPUFENCE_BENCH_RAW_SYMBOL_H_
