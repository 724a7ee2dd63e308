// link: cuda
// Makes and ends streams on command; they may take device memory.
//
//   make | priority | end      one line: the driver's code, whether a handle was written
//   fill BYTES                 linear memory that stays
#include <iostream>
#include <string>
#include <vector>

#include "support/sim_program.h"

namespace {

using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers

std::vector<CUstream> streams;

CUresult Make(bool with_priority, bool* is_written) {
  CUstream stream = nullptr;
  const CUresult rc = with_priority
                          ? cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1)
                          : cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  *is_written = stream != nullptr;
  if (rc == CUDA_SUCCESS) streams.push_back(stream);
  return rc;
}

CUresult End() {
  if (streams.empty()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = cuStreamDestroy_v2(streams.back());
  streams.pop_back();
  return rc;
}

}  // namespace

int main() {
  MUST(cuInit(0));
  CUcontext context = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  std::cout << "ready" << std::endl;
  for (std::string command; std::cin >> command;) {
    bool is_written = false;
    CUresult rc = CUDA_SUCCESS;
    if (command == "fill") {
      size_t bytes = 0;
      CUdeviceptr address = 0;
      std::cin >> bytes;
      rc = cuMemAlloc_v2(&address, bytes);
    } else {
      rc = command == "end" ? End() : Make(command == "priority", &is_written);
    }
    std::cout << rc << " " << is_written << std::endl;
  }
  return 0;
}
