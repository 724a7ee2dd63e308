#include "config/json.h"

#include "config/text.h"

namespace gpufence {
namespace {

using Step = JsonMembers::Step;
using Kind = JsonMembers::Kind;

constexpr int kMostDepth = 16;

void SkipBlanks(std::string_view* rest) {
  const size_t first = rest->find_first_not_of(" \t\r\n");
  rest->remove_prefix(first == std::string_view::npos ? rest->size() : first);
}

bool Take(std::string_view* rest, char character) {
  SkipBlanks(rest);
  if (rest->empty() || rest->front() != character) return false;
  rest->remove_prefix(1);
  return true;
}

bool TakeWord(std::string_view* rest, std::string_view word) {
  if (!StartsWith(*rest, word)) return false;
  rest->remove_prefix(word.size());
  return true;
}

bool TakeDigits(std::string_view* rest) {
  const size_t before = rest->size();
  while (!rest->empty() && IsDigit(rest->front())) rest->remove_prefix(1);
  return rest->size() < before;
}

bool SkipNumber(std::string_view* rest) {
  TakeWord(rest, "-");
  if (!TakeWord(rest, "0") && !TakeDigits(rest)) return false;
  if (TakeWord(rest, ".") && !TakeDigits(rest)) return false;
  if (!TakeWord(rest, "e") && !TakeWord(rest, "E")) return true;
  if (!TakeWord(rest, "+")) TakeWord(rest, "-");
  return TakeDigits(rest);
}

bool IsHex(char character) {
  return IsDigit(character) || (Lower(character) >= 'a' && Lower(character) <= 'f');
}

// How many characters behind a backslash belong to it; 0: none that JSON knows.
size_t EscapeLength(std::string_view behind) {
  if (behind.empty()) return 0;
  if (behind.front() != 'u') {
    return std::string_view("\"\\/bfnrt").find(behind.front()) == std::string_view::npos ? 0 : 1;
  }
  if (behind.size() < 5) return 0;
  for (size_t i = 1; i < 5; ++i) {
    if (!IsHex(behind[i])) return 0;
  }
  return 5;
}

bool SkipValueAt(std::string_view* rest, int depth);

bool SkipMembers(std::string_view* rest, Kind kind, int depth) {
  JsonMembers members(kind, rest);
  std::string_view key;
  for (;;) {
    const Step step = members.Next(&key);
    if (step != Step::kMember) return step == Step::kEnd;
    if (!SkipValueAt(rest, depth + 1)) return false;
  }
}

bool SkipValueAt(std::string_view* rest, int depth) {
  SkipBlanks(rest);
  if (rest->empty() || depth > kMostDepth) return false;
  std::string_view text;
  switch (rest->front()) {
    case '{':
      return SkipMembers(rest, Kind::kObject, depth);
    case '[':
      return SkipMembers(rest, Kind::kArray, depth);
    case '"':
      return TakeJsonText(rest, &text);
    case 't':
      return TakeWord(rest, "true");
    case 'f':
      return TakeWord(rest, "false");
    case 'n':
      return TakeWord(rest, "null");
    default:
      return SkipNumber(rest);
  }
}

}  // namespace

bool JsonNumbers::TakeKey(std::string_view* key) {
  if (!Take(&rest_, '"')) return false;
  size_t length = 0;
  // Neither an index nor a UUID needs an escape, and a key we cannot show must not pass.
  while (length < rest_.size() && rest_[length] != '"') {
    const char character = rest_[length++];
    if (character == '\\' || character < ' ' || character > '~') return false;
  }
  if (length == rest_.size()) return false;
  *key = First(rest_, length);
  rest_.remove_prefix(length + 1);
  return true;
}

JsonNumbers::Step JsonNumbers::TakeNumber(uint64_t* number) {
  SkipBlanks(&rest_);
  size_t length = 0;
  while (length < rest_.size() && IsDigit(rest_[length])) ++length;
  if (length == 0 || (length > 1 && rest_.front() == '0')) return Step::kBroken;
  *number = 0;
  const std::string_view digits = First(rest_, length);
  rest_.remove_prefix(length);
  for (const char digit : digits) {
    if (__builtin_mul_overflow(*number, uint64_t{10}, number) ||
        __builtin_add_overflow(*number, static_cast<uint64_t>(digit - '0'), number)) {
      return Step::kTooLarge;
    }
  }
  return *number > uint64_t{INT64_MAX} ? Step::kTooLarge : Step::kMember;
}

JsonNumbers::Step JsonNumbers::Finish() {
  SkipBlanks(&rest_);
  return rest_.empty() ? Step::kEnd : Step::kBroken;
}

JsonNumbers::Step JsonNumbers::Next(std::string_view* key, uint64_t* number) {
  if (!started_) {
    started_ = true;
    if (!Take(&rest_, '{')) return Step::kBroken;
    if (Take(&rest_, '}')) return Finish();
  } else {
    if (Take(&rest_, '}')) return Finish();
    if (!Take(&rest_, ',')) return Step::kBroken;
  }
  if (!TakeKey(key) || !Take(&rest_, ':')) return Step::kBroken;
  return TakeNumber(number);
}

bool TakeJsonText(std::string_view* rest, std::string_view* text) {
  if (!Take(rest, '"')) return false;
  size_t at = 0;
  for (; at < rest->size() && (*rest)[at] != '"'; ++at) {
    if (static_cast<unsigned char>((*rest)[at]) < ' ') return false;
    if ((*rest)[at] != '\\') continue;
    const size_t length = EscapeLength(After(*rest, at + 1));
    if (length == 0) return false;
    at += length;
  }
  if (at >= rest->size()) return false;
  *text = First(*rest, at);
  rest->remove_prefix(at + 1);
  return true;
}

bool SkipJsonValue(std::string_view* rest) { return SkipValueAt(rest, 0); }

bool JsonEnds(std::string_view rest) {
  SkipBlanks(&rest);
  return rest.empty();
}

JsonMembers::Step JsonMembers::Next(std::string_view* key) {
  const bool object = kind_ == Kind::kObject;
  const bool first = !started_;
  if (first && !Take(rest_, object ? '{' : '[')) return Step::kBroken;
  started_ = true;
  if (Take(rest_, object ? '}' : ']')) return Step::kEnd;
  if (!first) {
    if (!Take(rest_, ',')) return Step::kBroken;
    SkipBlanks(rest_);
  }
  if (object && (!TakeJsonText(rest_, key) || !Take(rest_, ':'))) return Step::kBroken;
  return Step::kMember;
}

}  // namespace gpufence
