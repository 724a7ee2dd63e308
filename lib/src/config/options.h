// The one table of every variable that is read, whoever named it first: lib/limits/options.txt,
// rendered; which names that begin with GPUFENCE_ are meant for somebody, and which one a wrong
// name was meant to be. Must not know what is done with a value.
#pragma once

#include <stddef.h>

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

// True for a name of ours that no part reads. Kubernetes sets variables for each Service, so a
// Service called gpufence makes names such as GPUFENCE_SERVICE_HOST: those are known.
bool IsUnknownOwn(std::string_view name);

inline constexpr size_t kNearestBytes = 64;

// The option of ours that `name` was meant to be, a key of the config file or a variable; false:
// none is near.
bool NearestOwn(std::string_view name, bool in_file, char nearest[kNearestBytes]);

}  // namespace gpufence
