// A device's own marks as text, for the functions that tell them and those that search by them.
#pragma once

#include "machine/machine.h"

namespace sim::nvml {

// A board's serial number: thirteen digits, from the UUID, so that it is as lasting.
inline constexpr unsigned kSerialTextBytes = 14;
void FormatSerial(const machine::DeviceRecord& record, char text[kSerialTextBytes]);

}  // namespace sim::nvml
