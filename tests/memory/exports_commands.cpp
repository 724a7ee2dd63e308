// link: cuda
// flags: -Wl,-z,lazy
// Memory that goes out by descriptors, on command. One command a line on stdin, one line of numbers
// as the answer, the driver's code first; addresses and handles are numbers.
//
//   create WHERE BYTES | release H         physical memory; code, handle
//   reserve BYTES | map VA BYTES H | unmap VA BYTES
//   export H | import FD         its descriptor
//   alloc BYTES | free VA        linear memory
//   managed BYTES
//   pool                         code and a pool that others may open
//   take POOL BYTES | free_async VA | keep POOL | trim_pool POOL | end_pool POOL | sync
//   export_pool POOL | import_pool FD | import_pointer POOL WORDS
//   export_pointer VA            code and the eight words of what it gave out
//   range VA BYTES               a dma-buf of these addresses
//   contexts and streams: elsewhere_commands.h
//   pid | fetch PID FD | close FD | close_from FD | child | reap PID | few N    descriptors
#include <unistd.h>

#include <iostream>
#include <sstream>
#include <string>

#include "descriptor_commands.h"
#include "elsewhere_commands.h"
#include "pool_commands.h"

namespace {

CUstream stream = nullptr;

void Answer(CUresult code, uint64_t number) {
  std::cout << static_cast<int>(code) << ' ' << number << std::endl;
}

CUresult Create(const std::string& where, uint64_t bytes, uint64_t* handle) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  if (where == "shared") prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle created = 0;
  const CUresult code = cuMemCreate(&created, bytes, &prop, 0);
  *handle = created;
  return code;
}

// Where the GPU may use it.
CUresult Map(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle) {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  MUST(cuMemMap(address, bytes, 0, handle, 0));
  return cuMemSetAccess(address, bytes, &access, 1);
}

CUresult Perform(const std::string& what, std::istringstream& words, uint64_t* answer) {
  const auto next = [&words] {
    uint64_t number = 0;
    words >> number;
    return number;
  };
  CUresult code = CUDA_ERROR_UNKNOWN;
  CUdeviceptr address = 0;
  int fd = -1;
  if (what == "create") {
    std::string where;
    words >> where;
    return Create(where, next(), answer);
  }
  if (what == "release") return cuMemRelease(next());
  if (what == "unmap") {
    address = next();
    return cuMemUnmap(address, next());
  }
  if (what == "map") {
    address = next();
    const uint64_t bytes = next();
    return Map(address, bytes, next());
  }
  if (what == "export") {
    code = cuMemExportToShareableHandle(&fd, next(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    *answer = static_cast<uint64_t>(fd);
  } else if (what == "import") {
    CUmemGenericAllocationHandle handle = 0;
    code = cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(next()),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    *answer = handle;
  } else if (what == "reserve") {
    code = cuMemAddressReserve(&address, next(), 0, 0, 0);
    *answer = address;
  } else if (what == "range") {
    address = next();
    code =
        cuMemGetHandleForAddressRange(&fd, address, next(), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    *answer = static_cast<uint64_t>(fd);
  } else if (what == "alloc") {
    code = cuMemAlloc_v2(&address, next());
    *answer = address;
  } else if (what == "managed") {
    code = cuMemAllocManaged(&address, next(), CU_MEM_ATTACH_GLOBAL);
    *answer = address;
  } else if (what == "free") {
    code = cuMemFree_v2(next());
  } else if (what == "sync") {
    code = cuCtxSynchronize();
  } else if (what == "pid") {
    *answer = static_cast<uint64_t>(getpid());
    code = CUDA_SUCCESS;
  } else if (Descriptors(what, words, answer)) {
    code = *answer != UINT64_MAX ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  } else if (!Elsewhere(what, words, &stream, &code, answer)) {
    Pools(what, words, stream, &code, answer);
  }
  return code;
}

}  // namespace

int main() {
  simtest::UseDevice(0);
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "export_pointer") {
      CUdeviceptr address = 0;
      words >> address;
      ExportPointer(address);
      continue;
    }
    uint64_t answer = 0;
    const CUresult code = Perform(what, words, &answer);
    Answer(code, answer);
  }
  return 0;
}
