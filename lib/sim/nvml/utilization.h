// A device's load as NVML last sampled it, for the figures that follow it.
#pragma once

namespace sim::nvml {

// Percent of the newest sample period in which the device of this machine index was busy.
unsigned LoadPercent(int index);

}  // namespace sim::nvml
