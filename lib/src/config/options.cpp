#include "config/options.h"

#include <stdint.h>

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

// Names that other parts of gpufence read: a name that begins so, or is just this one.
constexpr const char* const kOwnElsewhere[] = {
    "GPUFENCE_RUN_",    "GPUFENCE_SET_", "GPUFENCE_STATUS_", "GPUFENCE_TOP_",
    "GPUFENCE_EXPORT_", "GPUFENCE_SIM_", "GPUFENCE_TEST_",   "GPUFENCE_BUILD",
};

constexpr size_t kLongest = 60;  // of a name that is compared; fits kNearestBytes

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && After(text, text.size() - end.size()) == end;
}

// X_SERVICE_HOST, X_SERVICE_PORT[_NAME], X_PORT, X_PORT_80_TCP[_ADDR and more].
bool IsServiceLink(std::string_view name) {
  constexpr std::string_view kPort = "_PORT_";
  if (EndsWith(name, "_SERVICE_HOST") || EndsWith(name, "_PORT")) return true;
  const size_t port = name.find(kPort);
  if (port == std::string_view::npos) return false;
  const std::string_view number = After(name, port + kPort.size());
  return EndsWith(First(name, port), "_SERVICE") || (!number.empty() && IsDigit(number.front()));
}

bool IsElsewhere(std::string_view name) {
  for (const std::string_view known : kOwnElsewhere) {
    if (known.back() == '_' ? StartsWith(name, known) : name == known) return true;
  }
  return false;
}

constexpr char Upper(char character) {
  return character >= 'a' && character <= 'z' ? static_cast<char>(character - 'a' + 'A')
                                              : character;
}

size_t Least(size_t one, size_t other) { return one < other ? one : other; }

// How many characters must be put in, taken out or exchanged to make one of the other.
size_t Distance(std::string_view one, std::string_view other) {
  uint8_t row[kLongest + 1];
  for (size_t i = 0; i <= other.size(); ++i) row[i] = static_cast<uint8_t>(i);
  for (size_t at = 1; at <= one.size(); ++at) {
    size_t diagonal = row[0];
    row[0] = static_cast<uint8_t>(at);
    for (size_t i = 1; i <= other.size(); ++i) {
      const size_t exchanged = diagonal + (Upper(one[at - 1]) == other[i - 1] ? 0 : 1);
      diagonal = row[i];
      row[i] = static_cast<uint8_t>(Least(exchanged, Least(row[i], row[i - 1]) + size_t{1}));
    }
  }
  return row[other.size()];
}

// Without the GPU that a name may end in: "_0", "_GPU-…".
std::string_view WithoutKey(std::string_view name) {
  for (size_t i = 1; i + 1 < name.size(); ++i) {
    const std::string_view key = After(name, i + 1);
    const bool names_gpu = IsDigit(key.front()) || EqualsIgnoringCase(First(key, 3), "gpu");
    if (name[i] == '_' && names_gpu) return First(name, i);
  }
  return name;
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

bool IsUnknownOwn(std::string_view name) {
  std::string_view key;
  return StartsWith(name, kOwnPrefix) && FindOption(name, &key) == nullptr && !IsElsewhere(name) &&
         !IsServiceLink(name);
}

bool NearestOwn(std::string_view name, bool in_file, char nearest[kNearestBytes]) {
  if (!in_file) name.remove_prefix(kOwnPrefix.size());
  name = WithoutKey(name);
  std::string_view found;
  size_t least = name.size() / 2 + 1;
  if (name.size() > kLongest) return false;
  for (const Option& option : kOptions) {
    if (option.dialect != Dialect::kGpufence || (in_file && !IsInFile(option))) continue;
    const std::string_view known = After(option.name, kOwnPrefix.size());
    const size_t distance = Distance(name, known);
    if (distance >= least) continue;
    least = distance;
    found = in_file ? known : std::string_view(option.name);
  }
  for (size_t i = 0; i < found.size(); ++i) nearest[i] = in_file ? Lower(found[i]) : found[i];
  nearest[found.size()] = '\0';
  return !found.empty();
}

}  // namespace gpufence
