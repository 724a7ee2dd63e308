// JSON into the caller's room. What does not fit is counted all the same, so that the caller knows
// how much to give the next time.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <string_view>

namespace gpufence {

class JsonText {
 public:
  JsonText(char* room, size_t bytes) : room_(room), bytes_(bytes) {}

  // As it stands: braces, names, true and false.
  void Raw(std::string_view text);

  // Quoted; bytes outside printable ASCII as the code points of Latin-1.
  void Text(std::string_view text);
  void Number(uint64_t number);
  void Bool(bool is_true) { Raw(is_true ? "true" : "false"); }
  void Uuid(const uint8_t uuid[16]);

  // `,` and `"name":`; the comma not behind an opening bracket.
  void Key(const char* name);
  void Comma();

  // How many bytes there are, whether or not they fitted.
  size_t size() const { return size_; }

 private:
  void Put(char character);

  char* room_;
  size_t bytes_;
  size_t size_ = 0;
  char last_ = '\0';
};

// Implementation.

inline void JsonText::Put(char character) {
  if (size_ < bytes_) room_[size_] = character;
  ++size_;
  last_ = character;
}

inline void JsonText::Raw(std::string_view text) {
  for (const char character : text) Put(character);
}

inline void JsonText::Text(std::string_view text) {
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

inline void JsonText::Number(uint64_t number) {
  char digits[24];
  snprintf(digits, sizeof digits, "%llu", static_cast<unsigned long long>(number));
  Raw(digits);
}

inline void JsonText::Uuid(const uint8_t uuid[16]) {
  constexpr char kDigits[] = "0123456789abcdef";
  Put('"');
  for (int i = 0; i < 16; ++i) {
    Put(kDigits[uuid[i] >> 4]);
    Put(kDigits[uuid[i] & 15]);
  }
  Put('"');
}

inline void JsonText::Comma() {
  if (last_ != '{' && last_ != '[' && last_ != ':' && last_ != '\0') Put(',');
}

inline void JsonText::Key(const char* name) {
  Comma();
  Text(name);
  Put(':');
}

}  // namespace gpufence
