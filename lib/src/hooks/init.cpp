// cuInit: where limits are read and, if they cannot be held, where the program is told.
#include "hooks/fence.h"
#include "real.h"

extern "C" CUresult cuInit(unsigned int Flags) {
  // Before the driver: an unreadable limit leaves it uninitialised, so that no later call works.
  CUresult rc = gpufence::OpenFence(gpufence::DriverIs::kDown);
  if (rc != CUDA_SUCCESS) return rc;
  rc = real::cuInit(Flags);
  if (rc != CUDA_SUCCESS) return rc;
  // After it: shares of a device and UUIDs need the driver's answers.
  return gpufence::OpenFence(gpufence::DriverIs::kUp);
}
