// link: cuda nvml
// flags: -Wl,-z,lazy
// What an inference server does with memory, on command: calls of vLLM and SGLang in their order.
// One command a line on stdin, one line of numbers as the answer, the driver's code first.
//
//   server_calls GPU             the GPU that this process uses, of those that it sees
//
//   info                         code, free and total bytes: cuMemGetInfo
//   nvml INDEX                   code, free and total bytes, by NVML's index
//   alloc BYTES | free VA        a segment of the caching allocator
//   virtual BYTES                code, address of memory that may sleep: reserve, create, map, open
//   sleep VA | wake VA           unmaps and releases; creates, maps and opens at the same address
//   end VA                       unmaps, releases, gives the address back
//   fill VA BYTES BYTE           cuMemsetD8
//   ends VA BYTES                code, the first and the last byte
//   save VA BYTES | load VA      into pinned host memory, and back from there
//   ipc_get VA | ipc_open WORDS | ipc_close VA     the eight words of a handle
//   share VA                     code, descriptor of memory that may sleep
//   adopt FD BYTES               code, address: another process's memory for both GPUs
//   peer GPU                     cuCtxEnablePeerAccess, as a rank does for another's GPU
//   multicast                    code, whether the GPU says that it can
//   pid | fetch PID FD | close FD
#include <unistd.h>

#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "descriptor_commands.h"
#include "support/sim_program.h"

namespace {

struct Virtual {
  uint64_t bytes;
  CUmemGenericAllocationHandle handle;
};

CUdevice device = 0;
std::map<CUdeviceptr, Virtual> virtuals;
std::map<CUdeviceptr, std::string> saved;

template <typename... Numbers>
void Answer(CUresult code, Numbers... numbers) {
  std::cout << static_cast<int>(code);
  ((std::cout << ' ' << numbers), ...);
  std::cout << std::endl;
}

uint64_t Next(std::istringstream& words) {
  uint64_t number = 0;
  words >> number;
  return number;
}

CUmemAllocationProp Physical() {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  return prop;
}

// Where this process's GPU may use it.
CUresult Place(CUdeviceptr address, const Virtual& memory) {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  MUST(cuMemMap(address, memory.bytes, 0, memory.handle, 0));
  return cuMemSetAccess(address, memory.bytes, &access, 1);
}

void MakeVirtual(uint64_t bytes) {
  const CUmemAllocationProp prop = Physical();
  size_t step = 0;
  MUST(cuMemGetAllocationGranularity(&step, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  bytes = (bytes + step - 1) / step * step;
  Virtual memory = {bytes, 0};
  CUdeviceptr address = 0;
  MUST(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CUresult code = cuMemCreate(&memory.handle, bytes, &prop, 0);
  if (code == CUDA_SUCCESS) {
    code = Place(address, memory);
    virtuals[address] = memory;
  } else {
    MUST(cuMemAddressFree(address, bytes));
  }
  Answer(code, address);
}

void Sleep(CUdeviceptr address) {
  const Virtual& memory = virtuals.at(address);
  MUST(cuMemUnmap(address, memory.bytes));
  Answer(cuMemRelease(memory.handle));
}

void Wake(CUdeviceptr address) {
  Virtual& memory = virtuals.at(address);
  const CUmemAllocationProp prop = Physical();
  const CUresult code = cuMemCreate(&memory.handle, memory.bytes, &prop, 0);
  Answer(code == CUDA_SUCCESS ? Place(address, memory) : code);
}

void End(CUdeviceptr address) {
  const Virtual memory = virtuals.at(address);
  virtuals.erase(address);
  MUST(cuMemUnmap(address, memory.bytes));
  MUST(cuMemRelease(memory.handle));
  Answer(cuMemAddressFree(address, memory.bytes));
}

void Ends(CUdeviceptr address, uint64_t bytes) {
  unsigned char first = 0;
  unsigned char last = 0;
  MUST(cuMemcpyDtoH_v2(&first, address, 1));
  const CUresult code = cuMemcpyDtoH_v2(&last, address + bytes - 1, 1);
  Answer(code, unsigned{first}, unsigned{last});
}

void Save(CUdeviceptr address, uint64_t bytes) {
  void* pinned = nullptr;
  MUST(cuMemAllocHost_v2(&pinned, bytes));
  const CUresult code = cuMemcpyDtoH_v2(pinned, address, bytes);
  saved[address].assign(static_cast<const char*>(pinned), bytes);
  MUST(cuMemFreeHost(pinned));
  Answer(code);
}

void Adopt(uint64_t fd, uint64_t bytes) {
  Virtual memory = {bytes, 0};
  MUST(cuMemImportFromShareableHandle(&memory.handle, reinterpret_cast<void*>(fd),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CUdeviceptr address = 0;
  MUST(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  virtuals[address] = memory;
  Answer(Place(address, memory), address);
}

void ByNvml(unsigned index) {
  nvmlDevice_t board = nullptr;
  nvmlMemory_t memory = {};
  if (nvmlInit_v2() != NVML_SUCCESS) return Answer(CUDA_ERROR_UNKNOWN);
  nvmlReturn_t code = nvmlDeviceGetHandleByIndex_v2(index, &board);
  if (code == NVML_SUCCESS) code = nvmlDeviceGetMemoryInfo(board, &memory);
  Answer(static_cast<CUresult>(code), memory.free, memory.total);
}

// False: none of these commands.
bool Exchanged(const std::string& what, std::istringstream& words) {
  CUdeviceptr address = 0;
  CUipcMemHandle handle = {};
  uint64_t numbers[8] = {};
  static_assert(sizeof handle == sizeof numbers);
  if (what == "ipc_get") {
    const CUresult code = cuIpcGetMemHandle(&handle, Next(words));
    memcpy(numbers, &handle, sizeof handle);
    Answer(code, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6],
           numbers[7]);
  } else if (what == "ipc_open") {
    for (uint64_t& number : numbers) number = Next(words);
    memcpy(&handle, numbers, sizeof handle);
    const CUresult code =
        cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    Answer(code, address);
  } else if (what == "ipc_close") {
    Answer(cuIpcCloseMemHandle(Next(words)));
  } else if (what == "share") {
    int fd = -1;
    const CUresult code = cuMemExportToShareableHandle(&fd, virtuals.at(Next(words)).handle,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    Answer(code, fd);
  } else if (what == "adopt") {
    const uint64_t fd = Next(words);
    Adopt(fd, Next(words));
  } else if (what == "peer") {
    CUcontext other = nullptr;
    MUST(cuDevicePrimaryCtxRetain(&other, static_cast<CUdevice>(Next(words))));
    Answer(cuCtxEnablePeerAccess(other, 0));
  } else {
    return false;
  }
  return true;
}

void Perform(const std::string& what, std::istringstream& words) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  CUdeviceptr address = 0;
  uint64_t number = 0;
  if (what == "info") {
    const CUresult code = cuMemGetInfo_v2(&free_bytes, &total_bytes);
    return Answer(code, free_bytes, total_bytes);
  }
  if (what == "multicast") {
    int supported = 0;
    const CUresult code =
        cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device);
    return Answer(code, supported);
  }
  if (what == "pid") return Answer(CUDA_SUCCESS, getpid());
  if (Descriptors(what, words, &number)) {
    return Answer(number != UINT64_MAX ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM, number);
  }
  if (Exchanged(what, words)) return;
  const uint64_t first = Next(words);
  if (what == "nvml") return ByNvml(static_cast<unsigned>(first));
  if (what == "alloc") {
    const CUresult code = cuMemAlloc_v2(&address, first);
    return Answer(code, address);
  }
  if (what == "free") return Answer(cuMemFree_v2(first));
  if (what == "virtual") return MakeVirtual(first);
  if (what == "sleep") return Sleep(first);
  if (what == "wake") return Wake(first);
  if (what == "end") return End(first);
  if (what == "load") {
    const std::string& kept = saved.at(first);
    return Answer(cuMemcpyHtoD_v2(first, kept.data(), kept.size()));
  }
  const uint64_t bytes = Next(words);
  if (what == "fill") {
    return Answer(cuMemsetD8_v2(first, static_cast<unsigned char>(Next(words)), bytes));
  }
  if (what == "ends") return Ends(first, bytes);
  if (what == "save") return Save(first, bytes);
  Answer(CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace

int main(int argc, char** argv) {
  CUcontext primary = nullptr;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, argc > 1 ? atoi(argv[1]) : 0));
  MUST(cuDevicePrimaryCtxRetain(&primary, device));
  MUST(cuCtxSetCurrent(primary));
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    Perform(what, words);
  }
  return 0;
}
