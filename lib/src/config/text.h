// Small questions about pieces of text, ASCII only whatever the program's locale. Pure.
#pragma once

#include <stddef.h>

#include <string_view>

namespace gpufence {

constexpr char Lower(char character) {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a')
                                              : character;
}

constexpr bool IsDigit(char character) { return character >= '0' && character <= '9'; }

constexpr bool EqualsIgnoringCase(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (Lower(text[i]) != lower[i]) return false;
  }
  return true;
}

// string_view::substr can throw, and what throws needs the C++ runtime. These cut at the end
// instead.
constexpr std::string_view First(std::string_view text, size_t length) {
  return {text.data(), length < text.size() ? length : text.size()};
}

constexpr std::string_view After(std::string_view text, size_t start) {
  text.remove_prefix(start < text.size() ? start : text.size());
  return text;
}

constexpr bool StartsWith(std::string_view text, std::string_view start) {
  return First(text, start.size()) == start;
}

// Without the characters of `blanks` at both ends.
constexpr std::string_view Trim(std::string_view text, std::string_view blanks = " ") {
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return After(First(text, text.find_last_not_of(blanks) + 1), first);
}

// Cuts the first part off `rest`, up to `separator`; false when nothing is left.
// "a,,b," gives "a", "", "b": what ends the text is no part.
constexpr bool NextPart(std::string_view* rest, char separator, std::string_view* part) {
  if (rest->empty()) return false;
  const size_t end = rest->find(separator);
  *part = First(*rest, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + 1);
  return true;
}

}  // namespace gpufence
