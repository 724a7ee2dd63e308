// The grammars of single texts: sizes, shares of GPU time, ratios, switches, counts and a core
// limit's terms; and how a refused text is worded: what, why, how to fix, on one line. Numbers are
// decimal and exact: no floating point, no rounding but the one that is asked for. Pure functions.
// Must not know names, sources or who reads a refusal. Source: tests/config/limits.vectors.json.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

#include "config/limits.h"

namespace gpufence {

// Why a text is no amount. One list for every grammar; WordingOf() says it in words.
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
  kMode,
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

// Bytes, or a part of a device's memory in billionths of a percent.
struct Size {
  uint64_t amount;
  bool percent_of_device;
};

inline constexpr uint64_t kPercentSteps = 1'000'000'000;  // billionths in one percent

//   size := blank* number blank* unit? blank*
//   unit := "b" | "byte" | "bytes" | [kmgt] "i"? "b"? | "%"      any case; always 1024-based
//
// kNone and *size, or why not. Zero is kNone: what "no limit" means is the caller's to say.
Fault ParseSize(std::string_view text, Size* size);

// floor(total_bytes x percent / 100), saturated at 2^64 - 1.
uint64_t PartOf(uint64_t total_bytes, uint64_t percent_steps);

inline constexpr uint64_t kThousand = 1000;

// number "%"?, 0 to 100, in thousandths of a percent, rounded down.
Fault ParsePercent(std::string_view text, uint64_t* thousandths);

// A decimal number without a unit, in thousandths, rounded down.
Fault ParseRatio(std::string_view text, uint64_t* thousandths);

// A whole number of MiB, in bytes.
Fault ParseMegabytes(std::string_view text, uint64_t* bytes);

// 1 true yes on, 0 false no off, in any case.
Fault ParseSwitch(std::string_view text, bool* on);

// Off, on or a ratio of at least 1 in thousandths; 1 is on without a ratio, 0 is off.
Fault ParseOversubscribe(std::string_view text, uint64_t* amount);

// Digits only, below 10000, no leading zero.
bool ParseIndex(std::string_view text, uint32_t* index);

// low, normal or high, in any case.
Fault ParsePriority(std::string_view text, CorePriority* priority);

// HAMi counts downwards: 0 goes first, 1 is what a pod without a word has.
bool ParseTaskPriority(std::string_view text, CorePriority* priority);

// low, medium, high or critical, in any case, as vgpu.rs's hypervisor says it.
bool ParseServiceClass(std::string_view text, CorePriority* priority);

// A whole number, 1 to kMostWeight.
Fault ParseWeight(std::string_view text, uint32_t* weight);

// number ("us" | "ms" | "s"), in any case, or 0; up to ten seconds, in nanoseconds, cut.
Fault ParseBurst(std::string_view text, uint64_t* ns);

// number "%"?, 0 to 100, in thousandths of a percent, cut.
Fault ParseFloor(std::string_view text, uint32_t* thousandths);

inline constexpr size_t kQuoteBytes = 64;

// `text` for a message: printable ASCII, cut after 60 characters.
void Quote(std::string_view text, char quoted[kQuoteBytes]);

// What is wrong, and what to write instead: "is negative", "Unset it for no limit".
struct Wording {
  Fault fault;
  const char* clause;
  const char* fix;
};

const Wording& WordingOf(Fault fault);

// "NAME='TEXT' is negative. Unset it for no limit"
void DescribeFault(std::string_view name, std::string_view text, Fault fault, char* why,
                   size_t why_bytes);

}  // namespace gpufence
