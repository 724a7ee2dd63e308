// JSON into the caller's room. What does not fit is counted all the same, so that the caller knows
// how much to give the next time.
#pragma once

#include <stddef.h>
#include <stdint.h>

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

}  // namespace gpufence
