// link: cuda nvml
// Takes and gives memory of every family on command, says what it is, and tries to move it. One
// command a line on stdin, one line of numbers as the answer, the driver's code first.
//
//   take FAMILY BYTES        code, handle: linear, pitch, managed, async, pool, physical, mapped,
//                            array, graph
//   give FAMILY DOOR HANDLE  code; doors of addresses: free, free_async, free_other (in another
//                            stream)
//   move HOW HANDLE BYTES    code; prefetch, prefetch_v2, batch, prefer, prefer_v2, mostly, unmap
//   tell HANDLE              code, memory type, managed, whether the driver exports it, where it is
//                            advised to lie (-1: the host, -2: nowhere; -3: it cannot be)
//   export HANDLE            code of cuIpcGetMemHandle
//   sync | query | query_other   code
//   hold | go                keeps the stream busy in between
//   view                     code, free, total, then NVML's used and total
//   kill                     ends at once, as kill -9 does
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <map>
#include <string>

#include "support/sim_program.h"

namespace {

CUstream stream = nullptr;
CUstream second = nullptr;
CUmemoryPool pool = nullptr;
std::atomic<bool> is_held{false};
std::map<CUdeviceptr, size_t> mapped;
std::map<uint64_t, CUdeviceptr> of_graphs;  // by executable

// Made when it is first used: a second stream costs device memory.
CUstream Other() {
  if (second == nullptr) MUST(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  return second;
}

constexpr CUmemLocation kDevice = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

CUresult CreatePhysical(size_t bytes, CUmemGenericAllocationHandle* handle) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = kDevice;
  return cuMemCreate(handle, bytes, &prop, 0);
}

CUresult TakeMapped(size_t bytes, CUdeviceptr* address) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult rc = CreatePhysical(bytes, &handle);
  if (rc != CUDA_SUCCESS) return rc;
  MUST(cuMemAddressReserve(address, bytes, 0, 0, 0));
  MUST(cuMemMap(*address, bytes, 0, handle, 0));
  const CUmemAccessDesc access = {kDevice, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  MUST(cuMemSetAccess(*address, bytes, &access, 1));
  MUST(cuMemRelease(handle));
  mapped[*address] = bytes;
  return rc;
}

CUresult TakeArray(size_t bytes, uint64_t* handle) {
  CUDA_ARRAY_DESCRIPTOR wanted = {};
  wanted.Format = CU_AD_FORMAT_FLOAT;
  wanted.NumChannels = 4;
  wanted.Width = 1024;  // rows of 16 KiB
  wanted.Height = bytes >> 14;
  return cuArrayCreate_v2(reinterpret_cast<CUarray*>(handle), &wanted);
}

CUresult TakeGraph(size_t bytes, uint64_t* handle) {
  CUgraph graph = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS node = {};
  node.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  node.poolProps.location = kDevice;
  node.bytesize = bytes;
  CUgraphNode added = nullptr;
  MUST(cuGraphAddMemAllocNode(&added, graph, nullptr, 0, &node));
  CUgraphExec executable = nullptr;
  CUresult rc = cuGraphInstantiateWithFlags(&executable, graph, 0);
  MUST(cuGraphDestroy(graph));
  if (rc == CUDA_SUCCESS) rc = cuGraphLaunch(executable, stream);
  if (rc != CUDA_SUCCESS && executable != nullptr) cuGraphExecDestroy(executable);
  if (rc != CUDA_SUCCESS) return rc;
  *handle = reinterpret_cast<uint64_t>(executable);
  of_graphs[*handle] = node.dptr;
  return rc;
}

CUresult Take(const std::string& family, size_t bytes, uint64_t* handle) {
  auto* address = reinterpret_cast<CUdeviceptr*>(handle);
  if (family == "linear") return cuMemAlloc_v2(address, bytes);
  if (family == "managed") return cuMemAllocManaged(address, bytes, CU_MEM_ATTACH_GLOBAL);
  if (family == "async") return cuMemAllocAsync(address, bytes, stream);
  if (family == "pool") return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
  if (family == "mapped") return TakeMapped(bytes, address);
  if (family == "array") return TakeArray(bytes, handle);
  if (family == "graph") return TakeGraph(bytes, handle);
  if (family == "physical") {
    return CreatePhysical(bytes, reinterpret_cast<CUmemGenericAllocationHandle*>(handle));
  }
  size_t pitch = 0;
  return cuMemAllocPitch_v2(address, &pitch, 1024, bytes / 1024, 4);
}

CUresult Give(const std::string& family, const std::string& door, uint64_t handle) {
  if (family == "array") return cuArrayDestroy(reinterpret_cast<CUarray>(handle));
  if (family == "physical") return cuMemRelease(handle);
  if (family == "graph") {
    MUST(cuMemFreeAsync(of_graphs[handle], stream));
    MUST(cuStreamSynchronize(stream));
    const CUresult rc = cuGraphExecDestroy(reinterpret_cast<CUgraphExec>(handle));
    return rc == CUDA_SUCCESS ? cuDeviceGraphMemTrim(0) : rc;
  }
  if (family == "mapped") {
    const CUresult rc = cuMemUnmap(handle, mapped[handle]);
    return rc == CUDA_SUCCESS ? cuMemAddressFree(handle, mapped[handle]) : rc;
  }
  if (door == "free") return cuMemFree_v2(handle);
  return cuMemFreeAsync(handle, door == "free_other" ? Other() : stream);
}

CUresult Move(const std::string& how, CUdeviceptr address, size_t bytes) {
  if (how == "prefetch") return cuMemPrefetchAsync(address, bytes, 0, stream);
  if (how == "prefetch_v2") return cuMemPrefetchAsync_v2(address, bytes, kDevice, 0, stream);
  if (how == "prefer") {
    return cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0);
  }
  if (how == "prefer_v2") {
    return cuMemAdvise_v2(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kDevice);
  }
  if (how == "mostly") return cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
  if (how == "unmap") return cuMemAdvise(address, bytes, CU_MEM_ADVISE_UNSET_ACCESSED_BY, 0);
  CUmemLocation place = kDevice;
  size_t from = 0;
  return cuMemPrefetchBatchAsync(&address, &bytes, 1, &place, &from, 1, 0, stream);
}

void Tell(CUdeviceptr address) {
  unsigned type = 0;
  unsigned managed = 0;
  unsigned exports = 0;
  const CUresult rc = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
  cuPointerGetAttribute(&exports, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address);
  int preferred = -3;
  cuMemRangeGetAttribute(&preferred, sizeof(preferred), CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                         address, 4096);
  std::cout << rc << " " << type << " " << managed << " " << exports << " " << preferred
            << std::endl;
}

void View() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  nvmlDevice_t device = nullptr;
  nvmlMemory_t memory = {};
  const CUresult rc = cuMemGetInfo_v2(&free_bytes, &total_bytes);
  nvmlInit_v2();
  nvmlDeviceGetHandleByIndex_v2(0, &device);
  nvmlDeviceGetMemoryInfo(device, &memory);
  std::cout << rc << " " << free_bytes << " " << total_bytes << " " << memory.used << " "
            << memory.total << std::endl;
}

// False for a command that answers otherwise.
bool Do(const std::string& command, CUresult* rc) {
  std::string family;
  std::string door;
  uint64_t handle = 0;
  size_t bytes = 0;
  if (command == "give") {
    std::cin >> family >> door >> handle;
    *rc = Give(family, door, handle);
  } else if (command == "move") {
    std::cin >> door >> handle >> bytes;
    *rc = Move(door, handle, bytes);
  } else if (command == "export") {
    CUipcMemHandle exported = {};
    std::cin >> handle;
    *rc = cuIpcGetMemHandle(&exported, handle);
  } else if (command == "sync") {
    *rc = cuCtxSynchronize();
  } else if (command == "query") {
    *rc = cuStreamQuery(stream);
  } else if (command == "query_other") {
    *rc = cuStreamQuery(Other());
  } else if (command == "hold") {
    is_held = true;
    const auto wait = [](void*) {
      while (is_held) usleep(1000);
    };
    *rc = cuLaunchHostFunc(stream, wait, nullptr);
  } else if (command == "go") {
    is_held = false;
    *rc = CUDA_SUCCESS;
  } else {
    return false;
  }
  return true;
}

void Obey(const std::string& command) {
  std::string family;
  uint64_t handle = 0;
  size_t bytes = 0;
  CUresult rc = CUDA_SUCCESS;
  if (command == "take") {
    std::cin >> family >> bytes;
    rc = Take(family, bytes, &handle);
    std::cout << rc << " " << handle << std::endl;
  } else if (command == "tell") {
    std::cin >> handle;
    Tell(handle);
  } else if (command == "view") {
    View();
  } else if (command == "kill") {
    raise(SIGKILL);
  } else if (Do(command, &rc)) {
    std::cout << rc << std::endl;
  } else {
    exit(2);
  }
}

}  // namespace

int main() {
  simtest::UseDevice(0);
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = kDevice;
  MUST(cuMemPoolCreate(&pool, &props));
  std::cout << "ready" << std::endl;
  for (std::string command; std::cin >> command;) Obey(command);
  return 0;
}
