#include "config/yaml.h"

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

}  // namespace gpufence
