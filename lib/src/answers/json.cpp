#include "answers/json.h"

#include <stdio.h>

namespace gpufence {

void JsonText::Put(char character) {
  if (size_ < bytes_) room_[size_] = character;
  ++size_;
  last_ = character;
}

void JsonText::Raw(std::string_view text) {
  for (const char character : text) Put(character);
}

void JsonText::Text(std::string_view text) {
  Put('"');
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= ' ' && byte <= '~' && byte != '"' && byte != '\\') {
      Put(character);
    } else {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", byte);
      Raw(escape);
    }
  }
  Put('"');
}

void JsonText::Number(uint64_t number) {
  char digits[24];
  snprintf(digits, sizeof digits, "%llu", static_cast<unsigned long long>(number));
  Raw(digits);
}

void JsonText::Uuid(const uint8_t uuid[16]) {
  constexpr char kDigits[] = "0123456789abcdef";
  Put('"');
  for (int i = 0; i < 16; ++i) {
    Put(kDigits[uuid[i] >> 4]);
    Put(kDigits[uuid[i] & 15]);
  }
  Put('"');
}

void JsonText::Comma() {
  if (last_ != '{' && last_ != '[' && last_ != ':' && last_ != '\0') Put(',');
}

void JsonText::Key(const char* name) {
  Comma();
  Text(name);
  Put(':');
}

}  // namespace gpufence
