#include "config/size.h"

#include "config/text.h"

namespace gpufence {
namespace {

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

}  // namespace

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

}  // namespace gpufence
