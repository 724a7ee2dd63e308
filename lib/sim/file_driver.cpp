// The version of the driver whose names this file exports, as text in the file.
//
// Compiled once for each file variant (CMakeLists.txt). Version scanners look for exactly these two
// shapes, so no other text in the libraries may look like a driver version.
#include "machine/version.h"

namespace sim {

const char kFileDriver[] = GPUFENCE_SIM_FILE_DRIVER;
const char kFileNvml[] = GPUFENCE_SIM_FILE_CUDA_MAJOR "." GPUFENCE_SIM_FILE_DRIVER;

}  // namespace sim
