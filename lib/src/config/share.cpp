#include "config/share.h"

#include "config/text.h"

namespace gpufence {

namespace {

// A number, or this fault, since what the grammar of sizes would advise is wrong in all of these;
// what is negative is called so.
Fault ReadNumberOr(Fault other, std::string_view text, Number* number) {
  const Fault fault = ReadNumber(text, number);
  return fault == Fault::kNone || fault == Fault::kNegative ? fault : other;
}

}  // namespace

Fault ParsePercent(std::string_view text, uint64_t* thousandths) {
  Number number;
  const Fault fault = ReadNumberOr(Fault::kPercent, text, &number);
  if (fault != Fault::kNone) return fault;
  if (!number.rest.empty() && number.rest != "%") return Fault::kPercent;
  bool exact = false;
  const Fault scaled = Scale(number, kThousand, thousandths, &exact);
  const uint64_t all = 100 * kThousand;
  if (scaled == Fault::kTooLarge || *thousandths > all || (*thousandths == all && !exact)) {
    return Fault::kAboveHundred;
  }
  return scaled;
}

Fault ParseRatio(std::string_view text, uint64_t* thousandths) {
  Number number;
  const Fault fault = ReadNumberOr(Fault::kRatio, text, &number);
  if (fault != Fault::kNone) return fault;
  if (!number.rest.empty()) return Fault::kRatio;
  bool exact = false;
  return Scale(number, kThousand, thousandths, &exact);
}

Fault ParseMegabytes(std::string_view text, uint64_t* bytes) {
  Number number;
  const Fault fault = ReadNumberOr(Fault::kMegabytes, text, &number);
  if (fault != Fault::kNone) return fault;
  if (!number.rest.empty() || !number.fraction.empty()) return Fault::kMegabytes;
  bool exact = false;
  return Scale(number, uint64_t{1} << 20, bytes, &exact);
}

Fault ParseSwitch(std::string_view text, bool* on) {
  for (const std::string_view word : {"1", "true", "yes", "on"}) {
    if (EqualsIgnoringCase(text, word)) {
      *on = true;
      return Fault::kNone;
    }
  }
  for (const std::string_view word : {"0", "false", "no", "off"}) {
    if (EqualsIgnoringCase(text, word)) {
      *on = false;
      return Fault::kNone;
    }
  }
  return Fault::kSwitch;
}

Fault ParseOversubscribe(std::string_view text, uint64_t* amount) {
  bool on = false;
  const bool is_number = !text.empty() && (IsDigit(text.front()) || text.front() == ' ');
  if (!is_number) {
    const Fault fault = ParseSwitch(text, &on);
    *amount = on ? 1 : 0;
    return fault == Fault::kNone ? fault : Fault::kOversubscribe;
  }
  const Fault fault = ParseRatio(text, amount);
  if (fault == Fault::kNone && *amount > 0 && *amount < kThousand) return Fault::kBelowOne;
  // A ratio of exactly one adds nothing.
  if (fault == Fault::kNone && *amount == kThousand) *amount = 0;
  return fault == Fault::kRoundsToZero ? Fault::kBelowOne : fault;
}

bool ParseIndex(std::string_view text, uint32_t* index) {
  if (text.empty() || text.size() > 4 || (text.size() > 1 && text.front() == '0')) return false;
  *index = 0;
  for (const char digit : text) {
    if (!IsDigit(digit)) return false;
    *index = *index * 10 + static_cast<uint32_t>(digit - '0');
  }
  return true;
}

}  // namespace gpufence
