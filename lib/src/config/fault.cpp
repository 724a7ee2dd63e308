#include "config/fault.h"

#include <stdio.h>

namespace gpufence {
namespace {

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
    {Fault::kPolicy, "is no policy", "Write always, shared or off"},
    {Fault::kUuid, "is no GPU UUID", "Write GPU-<uuid> as nvidia-smi -L prints it"},
    {Fault::kJson, "is no JSON object of whole numbers", "Write {\"0\": 2147483648}"},
    {Fault::kDeviceKey, "names a GPU by neither index nor UUID", "Write {\"0\": 2147483648}"},
    {Fault::kTwice, "names a GPU twice", "Name it once"},
    {Fault::kMegabytes, "is no whole number of MiB", "Write 1024 for 1 GiB"},
    {Fault::kPercent, "is no percentage", "Write 1 to 100, or unset it for no limit"},
    {Fault::kRatio, "is no ratio", "Write a number such as 1.5, or unset it"},
    {Fault::kPriority, "is no priority", "Write low, normal or high"},
    {Fault::kWeight, "is no weight", "Write a whole number from 1 to 10000"},
    {Fault::kDuration, "is no duration", "Write 0 to 10s, such as 250ms"},
    {Fault::kAboveTenSeconds, "is above ten seconds", "Write 0 to 10s, such as 250ms"},
    {Fault::kFloor, "is no percentage", "Write 0 to 100, such as 5"},
};

}  // namespace

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
