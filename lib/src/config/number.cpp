#include "config/number.h"

#include "config/text.h"

namespace gpufence {
namespace {

constexpr uint64_t kLargest = (uint64_t{1} << 63) - 1;
constexpr size_t kWholeDigits = 19;  // as many as 2^63 - 1 has

std::string_view TakeDigits(std::string_view* text) {
  size_t length = 0;
  while (length < text->size() && IsDigit((*text)[length])) ++length;
  const std::string_view digits = First(*text, length);
  text->remove_prefix(length);
  return digits;
}

bool IsAllZeros(std::string_view digits) {
  return digits.find_first_not_of('0') == std::string_view::npos;
}

// What stands where a number should, so that the message can say more than "not a number".
Fault WhyNoNumber(std::string_view text) {
  if (text.empty()) return Fault::kBlank;
  if (text.front() == '-' && text.size() > 1 && IsDigit(text[1])) return Fault::kNegative;
  if (text.front() == '+' && text.size() > 1 && IsDigit(text[1])) return Fault::kSigned;
  if (text.find('*') != std::string_view::npos) return Fault::kFormula;
  return Fault::kNoNumber;
}

}  // namespace

bool Number::IsZero() const { return IsAllZeros(whole) && IsAllZeros(fraction); }

Fault ReadNumber(std::string_view text, Number* number) {
  text = Trim(text);
  const std::string_view all = text;
  *number = Number{};
  number->whole = TakeDigits(&text);
  if (number->whole.empty()) return WhyNoNumber(all);
  if (number->whole.size() > 1 && number->whole.front() == '0') return Fault::kLeadingZero;
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    number->fraction = TakeDigits(&text);
    if (number->fraction.empty()) return Fault::kNoFraction;
  }
  number->rest = Trim(text);
  return Fault::kNone;
}

Fault Scale(const Number& number, uint64_t factor, uint64_t* scaled, bool* exact) {
  // Long multiplication from the last digit: floor((a + x) / 10) is floor((a + floor(x)) / 10), so
  // cutting at every step gives what cutting once at the end would, whatever the number of digits.
  uint64_t carry = 0;
  *exact = true;
  for (size_t i = number.fraction.size(); i > 0; --i) {
    carry += static_cast<uint64_t>(number.fraction[i - 1] - '0') * factor;
    *exact = *exact && carry % 10 == 0;
    carry /= 10;
  }
  if (number.whole.size() > kWholeDigits) return Fault::kTooLarge;
  uint64_t whole = 0;  // 19 digits fit
  for (const char digit : number.whole) whole = whole * 10 + static_cast<uint64_t>(digit - '0');
  if (__builtin_mul_overflow(whole, factor, scaled) ||
      __builtin_add_overflow(*scaled, carry, scaled) || *scaled > kLargest) {
    return Fault::kTooLarge;
  }
  return *scaled == 0 && !number.IsZero() ? Fault::kRoundsToZero : Fault::kNone;
}

}  // namespace gpufence
