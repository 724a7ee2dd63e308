// The files in which vcuda-hook and Alnair name one limit of memory: a YAML map, and a line of a
// workspace. Here is the reader of the map: flat, of scalars, as far as its keys are known: `key:
// value`, quotes, comments. What stands under a key nobody asked for is skipped; what the reader
// does not understand on a key that matters is refused. Allocates nothing.
#pragma once

#include <stddef.h>

#include <string_view>

namespace gpufence {

// One wanted entry: several spellings, one value.
struct YamlEntry {
  static constexpr size_t kSpellings = 3;
  std::string_view spellings[kSpellings];  // empty ones at the end
  bool found;
  std::string_view scalar;  // view into the text
};

// Fills the entries. 0, or the number of the first line that cannot be read.
size_t ReadYamlMap(std::string_view text, YamlEntry* entries, size_t count);

}  // namespace gpufence
