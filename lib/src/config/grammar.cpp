#include "config/grammar.h"

#include <stdio.h>

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

// Bytes in one `unit`; 0: no such unit.
uint64_t UnitBytes(std::string_view unit) {
  if (unit.empty()) return 1;
  for (const std::string_view bytes : {"b", "byte", "bytes"}) {
    if (EqualsIgnoringCase(unit, bytes)) return 1;
  }
  const size_t power = std::string_view("kmgt").find(Lower(unit.front()));
  if (power == std::string_view::npos) return 0;
  unit.remove_prefix(1);
  if (!unit.empty() && Lower(unit.front()) == 'i') unit.remove_prefix(1);
  if (!unit.empty() && Lower(unit.front()) == 'b') unit.remove_prefix(1);
  return unit.empty() ? uint64_t{1024} << (10 * power) : 0;
}

// A number, or this fault, since what the grammar of sizes would advise is wrong in all of these;
// what is negative is called so.
Fault ReadNumberOr(Fault other, std::string_view text, Number* number) {
  const Fault fault = ReadNumber(text, number);
  return fault == Fault::kNone || fault == Fault::kNegative ? fault : other;
}

struct PriorityWord {
  std::string_view word;
  CorePriority priority;
};

constexpr PriorityWord kOwnWords[] = {
    {"low", CorePriority::kLow}, {"normal", CorePriority::kNormal}, {"high", CorePriority::kHigh}};

constexpr PriorityWord kServiceClasses[] = {{"low", CorePriority::kLow},
                                            {"medium", CorePriority::kNormal},
                                            {"high", CorePriority::kHigh},
                                            {"critical", CorePriority::kHigh}};

template <size_t kCount>
bool FindWord(const PriorityWord (&words)[kCount], std::string_view text, CorePriority* priority) {
  for (const PriorityWord& each : words) {
    if (!EqualsIgnoringCase(text, each.word)) continue;
    *priority = each.priority;
    return true;
  }
  return false;
}

constexpr Wording kWordings[] = {
    {Fault::kBlank, "is blank", "Write 10g or 10GiB, or unset it for no limit"},
    {Fault::kNegative, "is negative", "Unset it for no limit"},
    {Fault::kSigned, "has a sign", "Write 10g or 10GiB"},
    {Fault::kFormula, "is a formula", "Write the result, such as 10GiB"},
    {Fault::kNoNumber, "is not a number", "Write 10g or 10GiB, or unset it for no limit"},
    {Fault::kLeadingZero, "starts with a zero", "Write it without, such as 10g"},
    {Fault::kNoFraction, "has no digit behind the point", "Write 1.5g or 2g"},
    {Fault::kUnit, "has an unknown unit", "Write 10g, 10GiB or 50%"},
    {Fault::kFractionOfByte, "is a fraction of a byte", "Write a unit, such as 1.5g"},
    {Fault::kTooLarge, "is above 2^63 - 1", "Write less, or unset it for no limit"},
    {Fault::kRoundsToZero, "rounds down to nothing", "Write more, or 0 for no limit"},
    {Fault::kTooFine, "has more than nine decimals", "Write fewer"},
    {Fault::kAboveHundred, "is above 100 percent", "Write 1 to 100, or unset it for no limit"},
    {Fault::kZero, "would forbid every allocation", "Unset it for no limit"},
    {Fault::kBelowOne, "is below 1", "Write 1 or more, such as 1.5"},
    {Fault::kSwitch, "is neither on nor off", "Write 1, true, yes or on, or 0, false, no or off"},
    {Fault::kOversubscribe, "is neither off, on nor a ratio",
     "Write off, on or a ratio such as 1.5"},
    {Fault::kPolicy, "is not a policy", "Write always, shared or off"},
    {Fault::kMode, "is not a mode", "Write time or mps"},
    {Fault::kUuid, "is not a GPU UUID", "Write GPU-<uuid> as nvidia-smi -L prints it"},
    {Fault::kJson, "is not a JSON object of whole numbers", "Write {\"0\": 2147483648}"},
    {Fault::kDeviceKey, "names a GPU by neither index nor UUID", "Write {\"0\": 2147483648}"},
    {Fault::kTwice, "names a GPU twice", "Name it once"},
    {Fault::kMegabytes, "is not a whole number of MiB", "Write 1024 for 1 GiB"},
    {Fault::kPercent, "is not a percentage", "Write 1 to 100, or unset it for no limit"},
    {Fault::kRatio, "is not a ratio", "Write a number such as 1.5, or unset it"},
    {Fault::kPriority, "is not a priority", "Write low, normal or high"},
    {Fault::kWeight, "is not a weight", "Write a whole number from 1 to 10000"},
    {Fault::kDuration, "is not a duration", "Write 0 to 10s, such as 250ms"},
    {Fault::kAboveTenSeconds, "is above ten seconds", "Write 0 to 10s, such as 250ms"},
    {Fault::kFloor, "is not a percentage", "Write 0 to 100, such as 5"},
};

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

Fault ParseSize(std::string_view text, Size* size) {
  Number number;
  const Fault fault = ReadNumber(text, &number);
  if (fault != Fault::kNone) return fault;
  bool exact = false;
  size->percent_of_device = number.rest == "%";
  if (size->percent_of_device) {
    const Fault scaled = Scale(number, kPercentSteps, &size->amount, &exact);
    return exact || scaled == Fault::kTooLarge ? scaled : Fault::kTooFine;
  }
  const uint64_t unit_bytes = UnitBytes(number.rest);
  if (unit_bytes == 0) return Fault::kUnit;
  if (unit_bytes == 1 && !number.fraction.empty()) return Fault::kFractionOfByte;
  return Scale(number, unit_bytes, &size->amount, &exact);
}

uint64_t PartOf(uint64_t total_bytes, uint64_t percent_steps) {
  using Wide = unsigned __int128;
  const Wide part = Wide{total_bytes} * percent_steps / (Wide{100} * kPercentSteps);
  return part > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(part);
}

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

Fault ParsePriority(std::string_view text, CorePriority* priority) {
  return FindWord(kOwnWords, text, priority) ? Fault::kNone : Fault::kPriority;
}

bool ParseTaskPriority(std::string_view text, CorePriority* priority) {
  uint32_t number = 0;
  if (!ParseIndex(text, &number)) return false;
  *priority = number == 0   ? CorePriority::kHigh
              : number == 1 ? CorePriority::kNormal
                            : CorePriority::kLow;
  return true;
}

bool ParseServiceClass(std::string_view text, CorePriority* priority) {
  return FindWord(kServiceClasses, text, priority);
}

Fault ParseWeight(std::string_view text, uint32_t* weight) {
  Number number;
  uint64_t whole = 0;
  bool exact = false;
  if (ReadNumber(text, &number) != Fault::kNone || !number.fraction.empty() ||
      !number.rest.empty() || Scale(number, 1, &whole, &exact) != Fault::kNone || whole == 0 ||
      whole > kMostWeight) {
    return Fault::kWeight;
  }
  *weight = static_cast<uint32_t>(whole);
  return Fault::kNone;
}

Fault ParseBurst(std::string_view text, uint64_t* ns) {
  struct Unit {
    std::string_view name;
    uint64_t ns;
  };
  constexpr Unit kUnits[] = {{"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};
  Number number;
  if (ReadNumber(text, &number) != Fault::kNone) return Fault::kDuration;
  if (number.rest.empty() && number.IsZero()) {
    *ns = 0;
    return Fault::kNone;
  }
  for (const Unit& unit : kUnits) {
    if (!EqualsIgnoringCase(number.rest, unit.name)) continue;
    bool exact = false;
    const Fault fault = Scale(number, unit.ns, ns, &exact);
    if (fault == Fault::kRoundsToZero) return Fault::kDuration;
    const bool above = *ns > kMostBurstNs || (*ns == kMostBurstNs && !exact);
    return fault != Fault::kNone || above ? Fault::kAboveTenSeconds : Fault::kNone;
  }
  return Fault::kDuration;
}

Fault ParseFloor(std::string_view text, uint32_t* thousandths) {
  uint64_t amount = 0;
  if (ParsePercent(text, &amount) != Fault::kNone) return Fault::kFloor;
  *thousandths = static_cast<uint32_t>(amount);
  return Fault::kNone;
}

const Wording& WordingOf(Fault fault) {
  for (const Wording& wording : kWordings) {
    if (wording.fault == fault) return wording;
  }
  return kWordings[0];
}

void Quote(std::string_view text, char quoted[kQuoteBytes]) {
  constexpr size_t kLongest = 60;
  size_t length = 0;
  for (; length < text.size() && length < kLongest; ++length) {
    const char character = text[length];
    quoted[length] = character >= ' ' && character <= '~' ? character : '?';
  }
  if (length < text.size()) {
    for (size_t dot = 0; dot < 3; ++dot) quoted[length++] = '.';
  }
  quoted[length] = '\0';
}

void DescribeFault(std::string_view name, std::string_view text, Fault fault, char* why,
                   size_t why_bytes) {
  char quoted[kQuoteBytes];
  Quote(text, quoted);
  const Wording& wording = WordingOf(fault);
  snprintf(why, why_bytes, "%.*s='%s' %s. %s", static_cast<int>(name.size()), name.data(), quoted,
           wording.clause, wording.fix);
}

}  // namespace gpufence
