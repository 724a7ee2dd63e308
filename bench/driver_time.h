// The driver's part of a call's time. Each function under measurement is wrapped where the library
// under test reaches for it, in its table of driver functions, and the same wrapper is what the
// bare form calls: so what lies between the two clocks is the driver's, and the rest is ours.
// Owns the clocks around the driver; must not know what is measured.
#pragma once

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "measure.h"
#include "symbols.h"

namespace bench {

// Waits for what was begun before, so that a cold line is counted where it was asked for.
inline uint64_t Ticks() {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
  return __builtin_ia32_rdtsc();
#else
  uint64_t ticks = 0;
  __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
}

inline double NsPerTick() {
  const double start_ns = NowNs();
  const uint64_t start = Ticks();
  while (NowNs() < start_ns + 20e6) {
  }
  return (NowNs() - start_ns) / static_cast<double>(Ticks() - start);
}

// A file's local symbol, as the address it has in this process; null where the library is not
// loaded, or was stripped.
inline void* LocalSymbol(const char* library, const char* symbol) {
  struct Found {
    const char* library;
    const char* path;
    uintptr_t base;
  } found = {library, nullptr, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* query = static_cast<Found*>(data);
        if (std::strstr(info->dlpi_name, query->library) == nullptr) return 0;
        query->path = info->dlpi_name;
        query->base = info->dlpi_addr;
        return 1;
      },
      &found);
  const int file = found.path != nullptr ? open(found.path, O_RDONLY | O_CLOEXEC) : -1;
  struct stat status{};
  if (file < 0 || fstat(file, &status) != 0) return nullptr;
  const auto size = static_cast<size_t>(status.st_size);
  auto* bytes = static_cast<const char*>(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0));
  close(file);
  if (bytes == MAP_FAILED) return nullptr;
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(bytes);
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(bytes + header->e_shoff);
  void* address = nullptr;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(bytes + sections[i].sh_offset);
    const char* names = bytes + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; ++s) {
      if (std::strcmp(names + symbols[s].st_name, symbol) != 0) continue;
      address = reinterpret_cast<void*>(found.base + symbols[s].st_value);
    }
  }
  munmap(const_cast<char*>(bytes), size);
  return address;
}

// What the driver's functions took in this thread since it was last set to 0.
inline thread_local uint64_t driver_ticks = 0;

// Runs before and after each call of the driver, as a part of it; null for nothing.
inline void (*beside_driver)() = nullptr;

// What a driver call that enters the kernel leaves behind, in the extreme: no line of ours in the
// first two levels of cache, no page in the first level of translations.
inline void EvictCaches() {
  constexpr size_t kBytes = size_t{8} << 20;
  constexpr size_t kLine = 64;
  static char* memory = new char[kBytes]();
  for (size_t at = 0; at < kBytes; at += kLine) ++static_cast<volatile char*>(memory)[at];
}

template <gpufence::Sym kSym, typename Function>
struct Wrapped;

template <gpufence::Sym kSym, typename Result, typename... Arguments>
struct Wrapped<kSym, Result(Arguments...)> {
  using Function = Result(Arguments...);
  static inline Function* real = nullptr;

  static Result Call(Arguments... arguments) {
    const uint64_t start = Ticks();
    if (beside_driver != nullptr) beside_driver();
    const Result result = real(arguments...);
    if (beside_driver != nullptr) beside_driver();
    driver_ticks += Ticks() - start;
    return result;
  }

  // False: the library under test has no table that is known here.
  static bool Wrap(Function* function) {
    static void** entries = static_cast<void**>(LocalSymbol("libgpufence", "gpufence_entry"));
    real = function;
    if (entries == nullptr) return false;
    entries[kSym] = reinterpret_cast<void*>(&Call);
    return true;
  }
};

}  // namespace bench
