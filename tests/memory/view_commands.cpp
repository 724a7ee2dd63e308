// link: cuda nvml
// flags: -rdynamic
// What CUDA and NVML show, on command: one command a line on stdin, one line of numbers as answer.
//
//   cuda ORDINAL         cuInit and a context: code
//   alloc BYTES          code
//   ask                  code, free, total: one call
//   clock NS             stops this process's steady clock, or moves it on; 0
//   elsewhere            another thread destroys the current context; code
//   info                 code, free, total (64 bits); code, free, total (32 bits)
//   totals ORDINAL       code, bytes (64 bits); code, bytes (32 bits)
//   nvml INDEX           code, total, free, used (first form); code, total, reserved, free, used
//   odd INDEX            codes: wrong version, null, null device; bytes that were written meanwhile
//   nulls                codes of cuMemGetInfo and cuDeviceTotalMem without a place for the answer
//   processes INDEX ROOM WITH_LIST   code, count, pids that came
//   details INDEX ROOM   the same from nvmlDeviceGetRunningProcessDetailList
//   busy INDEX ROOM WITH_LIST        the same from nvmlDeviceGetProcessUtilization
//   name INDEX LENGTH    code, name, the byte behind it
//   fork                 goes on in a child; code
//   time ROUNDS          nanoseconds of one cuMemGetInfo
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "driver_abi.h"

namespace {

constexpr long kSecondNs = 1'000'000'000;

std::atomic<long> stopped_at_ns{0};  // 0: the clock runs

template <typename Struct>
constexpr unsigned VersionOf(unsigned number) {
  return static_cast<unsigned>(sizeof(Struct)) | number << 24;
}

std::ostream& Say(long long value) { return std::cout << value << ' '; }

nvmlDevice_t DeviceAt(std::istream& words) {
  unsigned index = 0;
  words >> index;
  nvmlDevice_t device = nullptr;
  nvmlInit_v2();
  nvmlDeviceGetHandleByIndex_v2(index, &device);
  return device;
}

void StartCuda(std::istream& words) {
  int ordinal = 0;
  words >> ordinal;
  CUcontext context = nullptr;
  CUresult rc = cuInit(0);
  if (rc == CUDA_SUCCESS) rc = cuCtxCreate(&context, 0, ordinal);  // so that the 32-bit forms work
  Say(rc);
}

void SayOneAnswer() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  Say(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  Say(static_cast<long long>(free_bytes));
  Say(static_cast<long long>(total_bytes));
}

void MoveClock(std::istream& words) {
  long ns = 0;
  words >> ns;
  if (stopped_at_ns == 0) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    stopped_at_ns = now.tv_sec * kSecondNs + now.tv_nsec;
  }
  stopped_at_ns += ns;
  Say(0);
}

void DestroyElsewhere() {
  CUcontext context = nullptr;
  CUresult rc = cuCtxGetCurrent(&context);
  if (rc == CUDA_SUCCESS) std::thread([&] { rc = cuCtxDestroy(context); }).join();
  Say(rc);
}

void SayInfo() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  unsigned free32 = 0;
  unsigned total32 = 0;
  Say(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  Say(static_cast<long long>(free_bytes));
  Say(static_cast<long long>(total_bytes));
  Say(cuMemGetInfo(&free32, &total32));
  Say(free32);
  Say(total32);
}

void SayTotals(std::istream& words) {
  int ordinal = 0;
  words >> ordinal;
  size_t bytes = 0;
  unsigned bytes32 = 0;
  Say(cuDeviceTotalMem_v2(&bytes, ordinal));
  Say(static_cast<long long>(bytes));
  Say(cuDeviceTotalMem(&bytes32, ordinal));
  Say(bytes32);
}

void SayMemory(std::istream& words) {
  const nvmlDevice_t device = DeviceAt(words);
  nvmlMemory_t first = {};
  nvmlMemory_v2_t second = {};
  second.version = VersionOf<nvmlMemory_v2_t>(2);
  Say(nvmlDeviceGetMemoryInfo(device, &first));
  for (const auto value : {first.total, first.free, first.used}) Say(static_cast<long long>(value));
  Say(nvmlDeviceGetMemoryInfo_v2(device, &second));
  for (const auto value : {second.total, second.reserved, second.free, second.used}) {
    Say(static_cast<long long>(value));
  }
}

void SayOdd(std::istream& words) {
  const nvmlDevice_t device = DeviceAt(words);
  nvmlMemory_v2_t memory;
  memset(&memory, 0x5a, sizeof memory);
  Say(nvmlDeviceGetMemoryInfo_v2(device, &memory));
  Say(nvmlDeviceGetMemoryInfo_v2(device, nullptr));
  Say(nvmlDeviceGetMemoryInfo(device, nullptr));
  nvmlMemory_t first;
  Say(nvmlDeviceGetMemoryInfo(nullptr, &first));
  int written = 0;
  for (const char byte : std::string(reinterpret_cast<char*>(&memory), sizeof memory)) {
    written += byte != 0x5a;
  }
  Say(written);
}

void SayNulls() {
  size_t bytes = 0;
  Say(cuMemGetInfo_v2(nullptr, &bytes));
  Say(cuMemGetInfo_v2(&bytes, nullptr));
  Say(cuDeviceTotalMem_v2(nullptr, 0));
}

void SayProcesses(std::istream& words) {
  const nvmlDevice_t device = DeviceAt(words);
  unsigned room = 0;
  int with_list = 0;
  words >> room >> with_list;
  std::vector<nvmlProcessInfo_t> infos(room + 1);
  unsigned count = room;
  const nvmlReturn_t rc =
      nvmlDeviceGetComputeRunningProcesses_v3(device, &count, with_list ? infos.data() : nullptr);
  Say(rc);
  Say(count);
  for (unsigned i = 0; rc == NVML_SUCCESS && i < count; ++i) Say(infos[i].pid);
}

void SayDetails(std::istream& words) {
  const nvmlDevice_t device = DeviceAt(words);
  unsigned room = 0;
  words >> room;
  std::vector<nvmlProcessDetail_v1_t> details(room + 1);
  nvmlProcessDetailList_t list = {};
  list.version = VersionOf<nvmlProcessDetailList_v1_t>(1);
  list.numProcArrayEntries = room;
  list.procArray = details.data();
  const nvmlReturn_t rc = nvmlDeviceGetRunningProcessDetailList(device, &list);
  Say(rc);
  Say(list.numProcArrayEntries);
  for (unsigned i = 0; rc == NVML_SUCCESS && i < list.numProcArrayEntries; ++i) {
    Say(details[i].pid);
  }
}

void SayBusy(std::istream& words) {
  const nvmlDevice_t device = DeviceAt(words);
  unsigned room = 0;
  int with_list = 0;
  words >> room >> with_list;
  std::vector<nvmlProcessUtilizationSample_t> samples(room + 1);
  unsigned count = room;
  const nvmlReturn_t rc =
      nvmlDeviceGetProcessUtilization(device, with_list ? samples.data() : nullptr, &count, 0);
  Say(rc);
  Say(count);
  for (unsigned i = 0; rc == NVML_SUCCESS && i < count; ++i) Say(samples[i].pid);
}

void SayName(std::istream& words) {
  const nvmlDevice_t device = DeviceAt(words);
  unsigned length = 0;
  words >> length;
  std::string name(256, '#');
  Say(nvmlDeviceGetName(device, name.data(), length));
  std::cout << name.substr(0, length).c_str() << '|' << name[length];
}

void SayTime(std::istream& words) {
  long rounds = 0;
  words >> rounds;
  timespec start;
  timespec end;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (long i = 0; i < rounds; ++i) cuMemGetInfo_v2(&free_bytes, &total_bytes);
  clock_gettime(CLOCK_MONOTONIC, &end);
  Say(((end.tv_sec - start.tv_sec) * 1000000000L + end.tv_nsec - start.tv_nsec) / rounds);
}

bool Obey(const std::string& line) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  if (command == "cuda") {
    StartCuda(words);
  } else if (command == "alloc") {
    size_t bytes = 0;
    CUdeviceptr address = 0;
    words >> bytes;
    Say(cuMemAlloc_v2(&address, bytes));
  } else if (command == "ask") {
    SayOneAnswer();
  } else if (command == "clock") {
    MoveClock(words);
  } else if (command == "elsewhere") {
    DestroyElsewhere();
  } else if (command == "info") {
    SayInfo();
  } else if (command == "totals") {
    SayTotals(words);
  } else if (command == "nvml") {
    SayMemory(words);
  } else if (command == "odd") {
    SayOdd(words);
  } else if (command == "nulls") {
    SayNulls();
  } else if (command == "processes") {
    SayProcesses(words);
  } else if (command == "details") {
    SayDetails(words);
  } else if (command == "busy") {
    SayBusy(words);
  } else if (command == "name") {
    SayName(words);
  } else if (command == "time") {
    SayTime(words);
  } else if (command == "fork") {
    const pid_t child = fork();
    int status = 0;
    if (child > 0 && waitpid(child, &status, 0) == child) _exit(WEXITSTATUS(status));
    Say(child == 0 ? 0 : 1);
  } else {
    return false;
  }
  std::cout << std::endl;
  return true;
}

}  // namespace

// In front of the C library's, for gpufence, too.
extern "C" int clock_gettime(clockid_t id, timespec* out) noexcept {
  const long ns = stopped_at_ns;
  if (id != CLOCK_MONOTONIC || ns == 0) {
    return static_cast<int>(syscall(SYS_clock_gettime, id, out));
  }
  *out = {ns / kSecondNs, ns % kSecondNs};
  return 0;
}

int main() {
  std::cout << "ready " << getpid() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    if (!Obey(line)) return 2;
  }
  return 0;
}
