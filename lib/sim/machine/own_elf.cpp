// See own_elf.h.
#include "machine/own_elf.h"

#include <sys/mman.h>
#include <unistd.h>

// The linker's own name for our ELF header; <link.h> declares _DYNAMIC, that of the dynamic
// section.
extern "C" [[gnu::visibility("hidden")]] const ElfW(Ehdr) __ehdr_start;

namespace sim {
namespace {

uintptr_t Bias() {
  // The first segment starts at file offset 0; a shared object is linked at address 0, or says so.
  const auto header = reinterpret_cast<uintptr_t>(&__ehdr_start);
  const auto* segment = reinterpret_cast<const ElfW(Phdr)*>(header + __ehdr_start.e_phoff);
  for (int i = 0; i < __ehdr_start.e_phnum; ++i) {
    if (segment[i].p_type == PT_LOAD && segment[i].p_offset == 0)
      return header - segment[i].p_vaddr;
  }
  return header;
}

// glibc adds the bias to d_ptr in place on most machines, other loaders never do.
uintptr_t Address(const ElfW(Dyn) & entry, uintptr_t bias) {
  return entry.d_un.d_ptr < bias ? entry.d_un.d_ptr + bias : entry.d_un.d_ptr;
}

// DT_GNU_HASH: {buckets, first symbol, filter words, shift}, filter, buckets, chains. A chain ends
// at an odd word, and the chain of the highest bucket ends the table.
size_t CountByGnuHash(const uint32_t* hash) {
  const uint32_t bucket_count = hash[0];
  const uint32_t first = hash[1];
  const uint32_t* buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chains = buckets + bucket_count;
  uint32_t last = 0;
  for (uint32_t i = 0; i < bucket_count; ++i) last = buckets[i] > last ? buckets[i] : last;
  if (last < first) return first;
  while ((chains[last - first] & 1) == 0) ++last;
  return last + 1;
}

int ProtectionOf(uintptr_t address, uintptr_t bias) {
  const auto header = reinterpret_cast<uintptr_t>(&__ehdr_start);
  const auto* segment = reinterpret_cast<const ElfW(Phdr)*>(header + __ehdr_start.e_phoff);
  for (int i = 0; i < __ehdr_start.e_phnum; ++i) {
    const uintptr_t start = bias + segment[i].p_vaddr;
    if (segment[i].p_type != PT_LOAD || address < start) continue;
    if (address >= start + segment[i].p_memsz) continue;
    return ((segment[i].p_flags & PF_R) != 0 ? PROT_READ : 0) |
           ((segment[i].p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
           ((segment[i].p_flags & PF_X) != 0 ? PROT_EXEC : 0);
  }
  return PROT_READ;
}

}  // namespace

OwnSymbols FindOwnSymbols() {
  const uintptr_t bias = Bias();
  OwnSymbols own{nullptr, 0, nullptr, bias};
  const uint32_t* gnu_hash = nullptr;
  for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; ++entry) {
    const uintptr_t address = Address(*entry, bias);
    if (entry->d_tag == DT_SYMTAB) own.table = reinterpret_cast<ElfW(Sym)*>(address);
    if (entry->d_tag == DT_STRTAB) own.strings = reinterpret_cast<const char*>(address);
    if (entry->d_tag == DT_HASH) own.count = reinterpret_cast<const uint32_t*>(address)[1];
    if (entry->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const uint32_t*>(address);
  }
  if (own.count == 0 && gnu_hash != nullptr) own.count = CountByGnuHash(gnu_hash);
  return own;
}

WritableSymbols::WritableSymbols(const OwnSymbols& symbols) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto table = reinterpret_cast<uintptr_t>(symbols.table);
  const uintptr_t start = table / page * page;
  const uintptr_t end = (table + symbols.count * sizeof(ElfW(Sym)) + page - 1) / page * page;
  pages_ = reinterpret_cast<void*>(start);
  bytes_ = end - start;
  // Execution stays allowed where it was: old linkers put tables and code into one segment.
  protection_ = ProtectionOf(table, symbols.bias);
  ok_ = mprotect(pages_, bytes_, protection_ | PROT_WRITE) == 0;
}

WritableSymbols::~WritableSymbols() {
  if (ok_) mprotect(pages_, bytes_, protection_);
}

}  // namespace sim
