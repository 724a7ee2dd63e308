// A device's load as NVML last sampled it, for the figures that follow it.
#ifndef GPUFENCE_LIB_SIM_NVML_UTILIZATION_H_
#define GPUFENCE_LIB_SIM_NVML_UTILIZATION_H_

namespace sim::nvml {

// Percent of the newest sample period in which the device of this machine index was busy.
unsigned LoadPercent(int index);

}  // namespace sim::nvml

#endif  // GPUFENCE_LIB_SIM_NVML_UTILIZATION_H_
