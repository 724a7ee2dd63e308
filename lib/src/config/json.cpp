#include "config/json.h"

#include "config/text.h"

namespace gpufence {

void JsonNumbers::SkipBlanks() {
  const size_t first = rest_.find_first_not_of(" \t\r\n");
  rest_.remove_prefix(first == std::string_view::npos ? rest_.size() : first);
}

bool JsonNumbers::Take(char character) {
  SkipBlanks();
  if (rest_.empty() || rest_.front() != character) return false;
  rest_.remove_prefix(1);
  return true;
}

bool JsonNumbers::TakeKey(std::string_view* key) {
  if (!Take('"')) return false;
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
  SkipBlanks();
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
  SkipBlanks();
  return rest_.empty() ? Step::kEnd : Step::kBroken;
}

JsonNumbers::Step JsonNumbers::Next(std::string_view* key, uint64_t* number) {
  if (!started_) {
    started_ = true;
    if (!Take('{')) return Step::kBroken;
    if (Take('}')) return Finish();
  } else {
    if (Take('}')) return Finish();
    if (!Take(',')) return Step::kBroken;
  }
  if (!TakeKey(key) || !Take(':')) return Step::kBroken;
  return TakeNumber(number);
}

}  // namespace gpufence
