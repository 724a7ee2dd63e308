// link: cuda
// flags: -pthread
// Allocates and frees on command, through one way of reaching the driver (argv[1]):
//
//   linked | dlsym | address | address_v2 | per_thread
//
// With a second argument its only context is one of the first version: driver 580 crashes in the
// 32-bit forms where the process has another one besides.
//
// One command a line on stdin, one line of numbers as the answer, the driver's code first:
//
//   alloc FAMILY BYTES            code, address, whether an output was written
//   null FAMILY BYTES             code for a null pointer
//   free DOOR ADDRESS             code
//   sync KIND                     code
//   pool WHERE                    makes the pool that the family "pool" uses
//   destroy | trim | threshold B  of that pool, or of the device's default one
//   begin | end                   of a capture of the stream
//   hold | go                     keeps the stream busy in between
//   physical BYTES                cuMemCreate
//   race FAMILY BYTES THREADS     allocates until refused: last code, grants
//   churn FAMILY DOOR BYTES THREADS ROUNDS   code of the worst failure, how many
//   time FAMILY BYTES ROUNDS      code, nanoseconds a pair
//   kill                          ends at once, as kill -9 does
//   export ADDRESS                code; then the handle in hexadecimal
//   import HEX                    code, address
//   export_pool                   code, descriptor, process.   import_pool DESCRIPTOR PROCESS
//   export_pointer, import_pointer   as export and import, for pool memory
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "descriptor_commands.h"
#include "memory_ways.h"
#include "support/sim_program.h"

namespace {

CUcontext context = nullptr;
CUcontext first_version = nullptr;
CUstream stream = nullptr;
CUmemoryPool pool = nullptr;
CUmemoryPool imported = nullptr;
std::atomic<bool> held{false};

// Makes the context current in which a family or door works: on hardware the 32-bit forms (..._v1)
// do in contexts of the first version only, and most others do not there.
void Enter(const std::string& name) {
  const bool is_first = name.find("_v1") != std::string::npos;
  if (is_first && first_version == nullptr) MUST(cuCtxCreate(&first_version, 0, 0));
  MUST(cuCtxSetCurrent(is_first ? first_version : context));
}

struct Output {
  CUdeviceptr address = 0xabad1deaabad1dea;
  CUdeviceptr_v1 low = 0xabad1dea;
  size_t pitch = 77;
  unsigned low_pitch = 77;

  bool written() const {
    const Output fresh;
    return address != fresh.address || low != fresh.low || pitch != fresh.pitch ||
           low_pitch != fresh.low_pitch;
  }
};

// Rows of 1000 bytes have a pitch of 1024.
constexpr size_t kWidth = 1000;
constexpr size_t kPitch = 1024;

CUresult Allocate(const std::string& family, size_t bytes, Output* out) {
  Enter(family);
  CUdeviceptr* address = out != nullptr ? &out->address : nullptr;
  CUdeviceptr_v1* low = out != nullptr ? &out->low : nullptr;
  const auto low_bytes = static_cast<unsigned>(bytes);
  if (family == "linear") return FIND(cuMemAlloc_v2, cuMemAlloc, 3020)(address, bytes);
  if (family == "linear_v1") return FIND(cuMemAlloc, cuMemAlloc, 2000)(low, low_bytes);
  if (family == "pitch") {
    return FIND(cuMemAllocPitch_v2, cuMemAllocPitch, 3020)(
        address, out != nullptr ? &out->pitch : nullptr, kWidth, bytes / kPitch, 4);
  }
  if (family == "pitch_v1") {
    return FIND(cuMemAllocPitch, cuMemAllocPitch, 2000)(
        low, out != nullptr ? &out->low_pitch : nullptr, kWidth, low_bytes / kPitch, 4);
  }
  const auto managed = FIND(cuMemAllocManaged, cuMemAllocManaged, 6000);
  if (family == "managed_global") return managed(address, bytes, CU_MEM_ATTACH_GLOBAL);
  if (family == "managed_host") return managed(address, bytes, CU_MEM_ATTACH_HOST);
  if (family == "managed_single") return managed(address, bytes, CU_MEM_ATTACH_SINGLE);
  if (family == "async") {
    return FIND(cuMemAllocAsync, cuMemAllocAsync, 11020)(address, bytes, stream);
  }
  if (family == "async_ptsz") {
    return FIND(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020)(address, bytes, stream);
  }
  if (family == "pool") {
    return FIND(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020)(address, bytes, pool,
                                                                         stream);
  }
  if (family == "pool_ptsz") {
    return FIND(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020)(address, bytes, pool,
                                                                              stream);
  }
  fprintf(stderr, "no family %s\n", family.c_str());
  exit(1);
}

CUdeviceptr AddressOf(const Output& out) { return out.low != Output().low ? out.low : out.address; }

CUresult Free(const std::string& door, CUdeviceptr address) {
  Enter(door);
  if (door == "free") return FIND(cuMemFree_v2, cuMemFree, 3020)(address);
  if (door == "free_v1") {
    return FIND(cuMemFree, cuMemFree, 2000)(static_cast<CUdeviceptr_v1>(address));
  }
  if (door == "free_async") {
    return FIND(cuMemFreeAsync, cuMemFreeAsync, 11020)(address, stream);
  }
  if (door == "free_async_ptsz") {
    return FIND(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020)(address, stream);
  }
  return FIND(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010)(address);
}

CUresult Synchronize(const std::string& kind) {
  if (kind == "stream") return FIND(cuStreamSynchronize, cuStreamSynchronize, 7000)(stream);
  if (kind == "stream_ptsz") {
    return FIND(cuStreamSynchronize_ptsz, cuStreamSynchronize, 7000)(stream);
  }
  if (kind == "context") return FIND(cuCtxSynchronize, cuCtxSynchronize, 2000)();
  if (kind == "context_v2") return FIND(cuCtxSynchronize_v2, cuCtxSynchronize, 13000)(context);
  if (kind == "query") return FIND(cuStreamQuery, cuStreamQuery, 7000)(stream);
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, 0));
  MUST(cuEventRecord(event, stream));
  return FIND(cuEventSynchronize, cuEventSynchronize, 2000)(event);
}

CUmemoryPool ThePool() {
  CUmemoryPool result = pool;
  if (result == nullptr) MUST(cuDeviceGetDefaultMemPool(&result, 0));
  return result;
}

CUresult MakePool(const std::string& where) {
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = where == "host" ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  if (where == "shared") props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (where == "limited") props.maxSize = 8 * simtest::kMiB;
  return FIND(cuMemPoolCreate, cuMemPoolCreate, 11020)(&pool, &props);
}

void Race(const std::string& family, size_t bytes, int threads) {
  std::atomic<int> grants{0};
  std::atomic<int> last{0};
  std::vector<std::thread> racers;
  Enter(family);  // not in a race
  for (int i = 0; i < threads; ++i) {
    racers.emplace_back([&] {
      MUST(cuCtxSetCurrent(context));
      for (;;) {
        Output out;
        const CUresult rc = Allocate(family, bytes, &out);
        if (rc != CUDA_SUCCESS) {
          last = rc;
          return;
        }
        ++grants;
      }
    });
  }
  for (std::thread& racer : racers) racer.join();
  std::cout << last << " " << grants << std::endl;
}

void Churn(const std::string& family, const std::string& door, size_t bytes, int threads,
           int rounds) {
  std::atomic<int> failures{0};
  std::atomic<int> worst{0};
  std::vector<std::thread> workers;
  Enter(family);  // not in a race
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      MUST(cuCtxSetCurrent(context));
      for (int round = 0; round < rounds; ++round) {
        Output out;
        CUresult rc = Allocate(family, bytes * static_cast<size_t>(1 + (round + i) % 3), &out);
        if (rc == CUDA_SUCCESS) rc = Free(door, AddressOf(out));
        if (rc == CUDA_SUCCESS && round % 16 == i) rc = Synchronize("stream");
        if (rc == CUDA_SUCCESS) continue;
        ++failures;
        worst = rc;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  std::cout << worst << " " << failures << std::endl;
}

uint64_t NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// Functions are looked up outside of what is timed; linear and async only.
void Time(const std::string& family, size_t bytes, int rounds) {
  const auto sync_alloc = FIND(cuMemAlloc_v2, cuMemAlloc, 3020);
  const auto sync_free = FIND(cuMemFree_v2, cuMemFree, 3020);
  const auto async_alloc = FIND(cuMemAllocAsync, cuMemAllocAsync, 11020);
  const auto async_free = FIND(cuMemFreeAsync, cuMemFreeAsync, 11020);
  CUdeviceptr address = 0;
  int rc = 0;
  const uint64_t start = NowNs();
  for (int i = 0; i < rounds; ++i) {
    if (family == "linear") {
      rc |= sync_alloc(&address, bytes);
      rc |= sync_free(address);
    } else {
      rc |= async_alloc(&address, bytes, stream);
      rc |= async_free(address, stream);
    }
  }
  std::cout << rc << " " << (NowNs() - start) / static_cast<uint64_t>(rounds) << std::endl;
}

template <typename Bytes>
std::string Hex(const Bytes& bytes) {
  std::string text;
  for (size_t i = 0; i < sizeof(bytes); ++i) {
    char digits[3];
    snprintf(digits, sizeof(digits), "%02x", reinterpret_cast<const unsigned char*>(&bytes)[i]);
    text += digits;
  }
  return text;
}

template <typename Bytes>
Bytes FromHex(const std::string& text) {
  Bytes bytes = {};
  for (size_t i = 0; i < sizeof(bytes); ++i) {
    reinterpret_cast<unsigned char*>(&bytes)[i] =
        static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

// Between processes; false for a command that is none of these.
bool Share(const std::string& command) {
  std::string text;
  CUdeviceptr address = 0;
  if (command == "export") {
    CUipcMemHandle handle = {};
    std::cin >> address;
    std::cout << cuIpcGetMemHandle(&handle, address) << " " << Hex(handle) << std::endl;
  } else if (command == "import") {
    std::cin >> text;
    const auto open = FIND(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000);
    std::cout << open(&address, FromHex<CUipcMemHandle>(text), 1) << " " << address << std::endl;
  } else if (command == "export_pool") {
    int fd = -1;
    std::cout << cuMemPoolExportToShareableHandle(&fd, pool,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
              << " " << fd << " " << getpid() << std::endl;
  } else if (command == "import_pool") {
    uint64_t theirs = 0;
    uint64_t process = 0;
    std::cin >> theirs >> process;
    std::cout << cuMemPoolImportFromShareableHandle(
                     &imported, reinterpret_cast<void*>(FetchDescriptor(process, theirs)),
                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
              << std::endl;
  } else if (command == "export_pointer") {
    CUmemPoolPtrExportData ticket = {};
    std::cin >> address;
    std::cout << cuMemPoolExportPointer(&ticket, address) << " " << Hex(ticket) << std::endl;
  } else if (command == "import_pointer") {
    std::cin >> text;
    auto ticket = FromHex<CUmemPoolPtrExportData>(text);
    std::cout << cuMemPoolImportPointer(&address, imported, &ticket) << " " << address << std::endl;
  } else {
    return false;
  }
  return true;
}

// What prints more than a status; false for a command that is none of these.
bool ObeyAtLength(const std::string& command) {
  std::string family;
  std::string door;
  size_t bytes = 0;
  int threads = 0;
  int rounds = 0;
  if (command == "alloc") {
    std::cin >> family >> bytes;
    Output out;
    const CUresult rc = Allocate(family, bytes, &out);
    std::cout << rc << " " << AddressOf(out) << " " << out.written() << std::endl;
  } else if (command == "race") {
    std::cin >> family >> bytes >> threads;
    Race(family, bytes, threads);
  } else if (command == "churn") {
    std::cin >> family >> door >> bytes >> threads >> rounds;
    Churn(family, door, bytes, threads, rounds);
  } else if (command == "time") {
    std::cin >> family >> bytes >> rounds;
    Time(family, bytes, rounds);
  } else {
    return Share(command);
  }
  return true;
}

CUresult CreatePhysical(size_t bytes) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  return cuMemCreate(&handle, bytes, &prop, 0);
}

bool Obey(const std::string& command) {
  std::string family;
  std::string door;
  size_t bytes = 0;
  CUresult rc = CUDA_SUCCESS;
  Enter("");
  if (command == "null") {
    std::cin >> family >> bytes;
    rc = Allocate(family, bytes, nullptr);
  } else if (command == "free") {
    CUdeviceptr address = 0;
    std::cin >> door >> address;
    rc = Free(door, address);
  } else if (command == "sync") {
    std::cin >> door;
    rc = Synchronize(door);
  } else if (command == "pool") {
    std::cin >> door;
    rc = MakePool(door);
  } else if (command == "destroy") {
    rc = FIND(cuMemPoolDestroy, cuMemPoolDestroy, 11020)(ThePool());
    if (rc == CUDA_SUCCESS) pool = nullptr;
  } else if (command == "use") {
    rc = cuDeviceSetMemPool(0, ThePool());
  } else if (command == "trim") {
    std::cin >> bytes;
    rc = FIND(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020)(ThePool(), bytes);
  } else if (command == "threshold") {
    std::cin >> bytes;
    rc = cuMemPoolSetAttribute(ThePool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
  } else if (command == "hold") {
    held = true;
    rc = cuLaunchHostFunc(
        stream,
        [](void*) {
          while (held) usleep(1000);
        },
        nullptr);
  } else if (command == "go") {
    held = false;
  } else if (command == "kill") {
    raise(SIGKILL);
  } else if (command == "physical") {
    std::cin >> bytes;
    rc = CreatePhysical(bytes);
  } else if (command == "begin") {
    rc = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  } else if (command == "end") {
    CUgraph graph = nullptr;
    rc = cuStreamEndCapture(stream, &graph);
  } else {
    return ObeyAtLength(command);
  }
  std::cout << rc << std::endl;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  ways::way = argv[1];
  MUST(cuInit(0));
  if (argc > 2) {
    MUST(cuCtxCreate(&first_version, 0, 0));
    context = first_version;
  } else {
    MUST(cuCtxCreate_v2(&context, 0, 0));
  }
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::cout << "ready" << std::endl;
  for (std::string command; std::cin >> command;) {
    if (!Obey(command)) return 2;
  }
  return 0;
}
