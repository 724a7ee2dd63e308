// This file's own dynamic symbol table, found without the loader's help.
//
// Owns ELF: everything about tables, hashes and page protection. Must not know which names matter.
#pragma once

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

namespace sim {

struct OwnSymbols {
  ElfW(Sym) * table;  // mapped read-only, unless inside a WritableSymbols
  size_t count;       // entries, the null entry included
  const char* strings;
  uintptr_t bias;  // what to add to st_value
};

// Where our tables are. `count` is 0 when the file has no hash table to count by (never, in a file
// that the loader accepted).
OwnSymbols FindOwnSymbols();

// Makes the pages of the symbol table writable, private to this process, while it lives.
class WritableSymbols {
 public:
  explicit WritableSymbols(const OwnSymbols& symbols);
  ~WritableSymbols();
  WritableSymbols(const WritableSymbols&) = delete;
  WritableSymbols& operator=(const WritableSymbols&) = delete;

  // False when the kernel refuses (a hardened one may); nothing may then be written.
  bool ok() const { return ok_; }

 private:
  void* pages_ = nullptr;
  size_t bytes_ = 0;
  int protection_ = 0;
  bool ok_ = false;
};

}  // namespace sim
