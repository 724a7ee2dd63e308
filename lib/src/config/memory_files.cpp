#include "config/memory_files.h"

#include <stdio.h>

#include "config/claims.h"
#include "config/grammar.h"
#include "config/sources.h"
#include "config/text.h"

namespace gpufence {
namespace {

constexpr std::string_view kBlanks = " \t\r";

// Behind a scalar only blanks and a comment may stand.
bool IsTail(std::string_view tail) {
  const std::string_view left = Trim(tail, kBlanks);
  return left.empty() || (left.front() == '#' && (tail.front() == ' ' || tail.front() == '\t'));
}

// A quoted text at the start of `text`; escapes are not understood, hence refused.
bool TakeQuoted(std::string_view* text, std::string_view* inner) {
  const char quote = text->front();
  const size_t end = text->find(quote, 1);
  if (end == std::string_view::npos) return false;
  *inner = After(First(*text, end), 1);
  text->remove_prefix(end + 1);
  const bool doubled = !text->empty() && text->front() == quote;
  return !doubled && (quote == '\'' || inner->find('\\') == std::string_view::npos);
}

bool IsQuote(char character) { return character == '"' || character == '\''; }

bool TakeScalar(std::string_view text, std::string_view* scalar) {
  text = Trim(text, kBlanks);
  if (text.empty() || text.front() == '#') return false;
  if (IsQuote(text.front())) return TakeQuoted(&text, scalar) && IsTail(text);
  if (std::string_view("{}[],&*!|>%@`?-").find(text.front()) != std::string_view::npos) {
    return false;
  }
  size_t comment = text.find('#');
  while (comment != std::string_view::npos && text[comment - 1] != ' ' &&
         text[comment - 1] != '\t') {
    comment = text.find('#', comment + 1);
  }
  *scalar = Trim(First(text, comment), kBlanks);
  const bool has_colon = scalar->find(": ") != std::string_view::npos || scalar->back() == ':';
  return !has_colon;
}

// `key:` at the start of a line; *rest is what follows the colon.
bool TakeKey(std::string_view line, std::string_view* key, std::string_view* rest) {
  if (IsQuote(line.front())) {
    if (!TakeQuoted(&line, key)) return false;
    line = Trim(line, kBlanks);
    if (line.empty() || line.front() != ':') return false;
    line.remove_prefix(1);
  } else {
    size_t colon = line.find(':');
    while (colon != std::string_view::npos && colon + 1 < line.size() &&
           kBlanks.find(line[colon + 1]) == std::string_view::npos) {
      colon = line.find(':', colon + 1);
    }
    if (colon == std::string_view::npos) return false;
    *key = Trim(First(line, colon), kBlanks);
    line.remove_prefix(colon + 1);
  }
  *rest = line;
  return line.empty() || kBlanks.find(line.front()) != std::string_view::npos;
}

YamlEntry* EntryOf(std::string_view key, YamlEntry* entries, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    for (const std::string_view spelling : entries[i].spellings) {
      if (!spelling.empty() && spelling == key) return &entries[i];
    }
  }
  return nullptr;
}

// What an indented line or a list item may belong to.
enum class Above { kNothing, kUnknownKey, kWantedKey };

bool ReadLine(std::string_view line, YamlEntry* entries, size_t count, Above* above) {
  const bool is_inner = line.front() == ' ' || line.front() == '\t' || StartsWith(line, "- ") ||
                        Trim(line, kBlanks) == "-";
  const std::string_view content = Trim(line, kBlanks);
  if (content.empty() || content.front() == '#' || Trim(line, "\r") == "---") return true;
  if (is_inner) return *above == Above::kUnknownKey;
  std::string_view key;
  std::string_view rest;
  if (!TakeKey(line, &key, &rest)) return false;
  YamlEntry* entry = EntryOf(key, entries, count);
  *above = entry == nullptr ? Above::kUnknownKey : Above::kWantedKey;
  if (entry == nullptr) return true;
  if (entry->found) return false;
  entry->found = true;
  return TakeScalar(rest, &entry->scalar);
}

}  // namespace

size_t ReadYamlMap(std::string_view text, YamlEntry* entries, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    entries[i].found = false;
    entries[i].scalar = {};
  }
  Above above = Above::kNothing;
  std::string_view line;
  for (size_t number = 1; NextPart(&text, '\n', &line); ++number) {
    if (!line.empty() && !ReadLine(line, entries, count, &above)) return number;
  }
  return 0;
}

namespace {

// The first line "vmem:SIZE" of the workspace.
bool FindVmem(std::string_view text, std::string_view* amount) {
  constexpr std::string_view kVmem = "vmem:";
  std::string_view line;
  while (NextPart(&text, '\n', &line)) {
    if (!StartsWith(line, kVmem)) continue;
    *amount = Trim(After(line, kVmem.size()), " \t\r");
    return true;
  }
  return false;
}

bool AddFileClaim(Reading* reading, Dialect dialect, const char* path, std::string_view name,
                  std::string_view text, bool zero_is_limit, bool is_operators) {
  Size size{};
  Fault fault = ParseSize(text, &size);
  if (fault == Fault::kNone && size.amount == 0 && zero_is_limit) fault = Fault::kZero;
  if (fault != Fault::kNone) {
    char why[kSourceBytes];
    DescribeFault(name, text, fault, why, sizeof why);
    return reading->complaint.Say("%s: %s", path, why);
  }
  Claim claim{};
  claim.kind = ClaimKind::kMemory;
  claim.target = ClaimTarget::kEvery;
  claim.dialect = static_cast<uint8_t>(dialect);
  claim.amount = size.amount;
  claim.percent_of_device = size.percent_of_device;
  claim.is_ceiling = is_operators;
  char quoted[kQuoteBytes];
  Quote(text, quoted);
  snprintf(claim.source, sizeof claim.source, "%.*s: %s in %s", static_cast<int>(name.size()),
           name.data(), quoted, path);
  return AddClaim(reading, claim);
}

}  // namespace

bool ReadVcudaFile(Reading* reading, Hidden* hidden) {
  std::string_view text;
  bool is_operators = false;
  auto& buffer = reading->scratch->yaml_file;
  const FileResult result = ReadWholeFile(reading->sources->root, kVcudaPath, buffer, sizeof buffer,
                                          &text, &is_operators);
  if (result == FileResult::kMissing) return true;
  if (result != FileResult::kRead) {
    return reading->complaint.Say("%s cannot be read or is too large. Write `memory_limit: 10GiB`",
                                  kVcudaPath);
  }
  YamlEntry entries[] = {
      {{"memory_limit", "memoryLimit", ""}, false, {}},
      {{"device_name", "target_device", "target_device_name"}, false, {}},
  };
  const size_t broken = ReadYamlMap(text, entries, 2);
  if (broken != 0) {
    return reading->complaint.Say("%s line %zu cannot be read. Write `memory_limit: 10GiB`",
                                  kVcudaPath, broken);
  }
  if (entries[1].found) {
    snprintf(reading->claims->device_name, sizeof reading->claims->device_name, "%.*s",
             static_cast<int>(entries[1].scalar.size()), entries[1].scalar.data());
  }
  if (!entries[0].found) return true;
  hidden->vcuda_memory = true;
  return AddFileClaim(reading, Dialect::kVcuda, kVcudaPath, "memory_limit", entries[0].scalar,
                      /*zero_is_limit=*/false, is_operators);
}

bool ReadAlnairWorkspace(Reading* reading, Hidden* hidden) {
  const Statements& statements = reading->statements();
  hidden->alnair = TextOf(statements, Dialect::kAlnair, Setting::kId).empty();
  if (hidden->alnair) return true;
  std::string_view folder = TextOf(statements, Dialect::kAlnair, Setting::kWorkspace);
  if (folder.empty()) folder = kAlnairFolder;
  char path[160];
  const int length =
      snprintf(path, sizeof path, "%.*s/limits", static_cast<int>(folder.size()), folder.data());
  if (length < 0 || static_cast<size_t>(length) >= sizeof path) {
    return reading->complaint.Say("ALNAIR_WORKSPACE_PATH is too long. Name a shorter path");
  }
  std::string_view text;
  std::string_view amount;
  bool is_operators = false;
  auto& buffer = reading->scratch->workspace_file;
  if (ReadWholeFile(reading->sources->root, path, buffer, sizeof buffer, &text, &is_operators) !=
          FileResult::kRead ||
      !FindVmem(text, &amount)) {
    return reading->complaint.Say(
        "ALNAIR_ID is set, but %s holds no readable line vmem:BYTES. Mount the workspace, or unset "
        "ALNAIR_ID",
        path);
  }
  return AddFileClaim(reading, Dialect::kAlnair, path, "vmem", amount, /*zero_is_limit=*/true,
                      is_operators);
}

}  // namespace gpufence
