// The one table of every variable that is read, whoever named it first: lib/limits/options.txt,
// rendered. Must not know what is done with a value.
#pragma once

#include <string_view>

#include "option_names.h"

namespace gpufence {

// What may follow the name, behind a '_'.
enum class Keys : uint8_t { kNone, kIndex, kIndexOrUuid };

struct Option {
  const char* name;
  Dialect dialect;
  Setting setting;
  Keys keys;
};

struct OptionList {
  const Option* begin() const { return rows; }
  const Option* end() const { return rows + count; }

  const Option* rows;
  size_t count;
};

// In the order in which they are looked up and reported.
extern const OptionList kOptions;

const char* NameOf(Dialect dialect);

// The option that `name` spells, and the key behind it: "", or a '_' and what follows it.
const Option* FindOption(std::string_view name, std::string_view* key);

// True for an option of ours that the config file may hold.
bool IsInFile(const Option& option);

// An option of ours by its key in the config file: "memory_limit" is GPUFENCE_MEMORY_LIMIT.
const Option* FindFileOption(std::string_view name, std::string_view* key);

}  // namespace gpufence
