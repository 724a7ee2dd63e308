#include "config/options.h"

#include "config/text.h"
#include "option_table.h"

namespace gpufence {

constexpr OptionList kOptions = {kOptionRows, sizeof kOptionRows / sizeof kOptionRows[0]};

namespace {

constexpr std::string_view kOwnPrefix = "GPUFENCE_";

// The part of `name` behind `base`: nothing, or a key with its '_'. False: another name.
bool SplitKey(std::string_view name, std::string_view base, bool in_lower_case, Keys keys,
              std::string_view* key) {
  const std::string_view start = First(name, base.size());
  if (start.size() < base.size()) return false;
  for (size_t i = 0; i < base.size(); ++i) {
    if (start[i] != (in_lower_case ? Lower(base[i]) : base[i])) return false;
  }
  *key = After(name, base.size());
  if (key->empty()) return true;
  return keys != Keys::kNone && key->front() == '_';
}

}  // namespace

const char* NameOf(Dialect dialect) { return kDialectNames[static_cast<size_t>(dialect)]; }

const Option* FindOption(std::string_view name, std::string_view* key) {
  for (const Option& option : kOptions) {
    if (name.empty() || name.front() != option.name[0]) continue;
    if (SplitKey(name, option.name, /*in_lower_case=*/false, option.keys, key)) return &option;
  }
  return nullptr;
}

bool IsInFile(const Option& option) {
  return option.dialect == Dialect::kGpufence && option.setting != Setting::kConfigFile &&
         option.setting != Setting::kDisable;
}

const Option* FindFileOption(std::string_view name, std::string_view* key) {
  for (const Option& option : kOptions) {
    if (!IsInFile(option)) continue;
    std::string_view base = option.name;
    base.remove_prefix(kOwnPrefix.size());
    if (SplitKey(name, base, /*in_lower_case=*/true, option.keys, key)) return &option;
  }
  return nullptr;
}

}  // namespace gpufence
