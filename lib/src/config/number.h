// Decimal numbers, exactly: no floating point, no rounding but the one that is asked for.
// Pure. Must not know units, names or sources.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

namespace gpufence {

// Why a text is no amount. One list for every grammar; see Describe() in config/fault.h.
enum class Fault : uint8_t {
  kNone,
  kBlank,
  kNegative,
  kSigned,
  kFormula,
  kNoNumber,
  kLeadingZero,
  kNoFraction,
  kUnit,
  kFractionOfByte,
  kTooLarge,
  kRoundsToZero,
  kTooFine,
  kAboveHundred,
  kZero,
  kBelowOne,
  kSwitch,
  kOversubscribe,
  kPolicy,
  kUuid,
  kJson,
  kDeviceKey,
  kTwice,
  kMegabytes,
  kPercent,
  kRatio,
  kPriority,
  kWeight,
  kDuration,
  kAboveTenSeconds,
  kFloor,
};

// Digits of a number and what follows it. Views into the parsed text.
struct Number {
  std::string_view whole;
  std::string_view fraction;  // empty: the number has no point
  std::string_view rest;      // what follows, without blanks around it

  bool IsZero() const;
};

// number := digit+ ( "." digit+ )?, blanks before and behind. No sign, exponent, hex or leading
// zero.
Fault ReadNumber(std::string_view text, Number* number);

// floor(number x factor). `exact` tells whether nothing was cut. factor <= 2^40.
// kTooLarge above 2^63 - 1, kRoundsToZero when something became nothing.
Fault Scale(const Number& number, uint64_t factor, uint64_t* scaled, bool* exact);

}  // namespace gpufence
