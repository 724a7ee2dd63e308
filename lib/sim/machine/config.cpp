// See config.h.
#include "machine/config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine/faults.h"
#include "machine/version.h"

namespace sim {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGranule = 2 * kMiB;
constexpr uint64_t kMaxMemory = uint64_t{1} << 42;
constexpr int64_t kLeastSliceNs = 1'000;

// An H200, as driver 580 shows it: 143155 MiB in all, 526 MiB taken by an empty context; slices and
// switches as kernels of two and three processes saw them that record when they are interrupted.
constinit Config g_config = {
    .kernels = {},
    .state = {},
    .log = {},
    .gpu_count = 1,
    .sm_count = 132,
    .mig_instances = 0,
    .is_mps = 0,
    .listed_pid = 0,
    .speed_permille = 1000,
    .memory_bytes = 143155 * kMiB,
    .context_bytes = 526 * kMiB,
    .stream_bytes = 512 << 10,
    .bus_mb_per_s = 50'000,
    .kernel_ns = 2'000,
    .event_ns = 0,
    .event_step_ns = 0,
    .event_gap_ns = 0,
    .memop_gap_ns = 0,
    .launch_gap_ns = 0,
    .step_gap_ns = 0,
    .start_ns = 0,
    .wide_gap_ns = 0,
    .launch_ns = 0,
    .record_ns = 0,
    .wake_ns = 0,
    .wake_run = 0,
    .slice_ns = 2'091'000,
    .switch_ns = 155'000,
};
constinit bool g_usable = true;
constinit pthread_once_t g_once = PTHREAD_ONCE_INIT;

void Refuse(const char* variable, const char* value, const char* why) {
  Complain(variable, value, why);
  g_usable = false;
}

// The value of a variable, or nullptr when it is unset or empty.
const char* Read(const char* variable) {
  const char* value = getenv(variable);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

void ReadInteger(const char* variable, int64_t low, int64_t high, const char* why, int* result) {
  const char* value = Read(variable);
  if (value == nullptr) return;
  int64_t number = 0;
  if (!ParseInteger(value, low, high, &number)) return Refuse(variable, value, why);
  *result = static_cast<int>(number);
}

void ReadBytes(const char* variable, uint64_t low, uint64_t high, const char* why,
               uint64_t* result) {
  const char* value = Read(variable);
  if (value == nullptr) return;
  uint64_t bytes = 0;
  if (!ParseBytes(value, &bytes) || bytes < low || bytes > high) {
    return Refuse(variable, value, why);
  }
  *result = bytes;
}

void ReadText(const char* variable, char* result, size_t capacity) {
  const char* value = Read(variable);
  if (value == nullptr) return;
  if (strlen(value) >= capacity) return Refuse(variable, value, "it is too long");
  strcpy(result, value);
}

// "2.5" as 2500; at most three decimals, so that the machine file can hold it exactly.
bool ParsePermille(const char* text, uint32_t* permille) {
  uint64_t whole = 0;
  const char* at = text;
  for (; *at >= '0' && *at <= '9'; ++at) {
    whole = whole * 10 + static_cast<uint64_t>(*at - '0');
    if (whole > 1000) return false;
  }
  if (at == text) return false;
  uint64_t thousandths = 0;
  if (*at == '.') {
    const char* point = at++;
    for (uint64_t weight = 100; *at >= '0' && *at <= '9'; ++at, weight /= 10) {
      if (weight == 0) return false;
      thousandths += weight * static_cast<uint64_t>(*at - '0');
    }
    if (at == point + 1) return false;
  }
  const uint64_t result = whole * 1000 + thousandths;
  if (*at != '\0' || result == 0 || result > 1'000'000) return false;
  *permille = static_cast<uint32_t>(result);
  return true;
}

void ReadNs(const char* variable, uint64_t* ns, int64_t low = 0) {
  const char* value = Read(variable);
  int64_t parsed = 0;
  if (value == nullptr) return;
  if (!ParseInteger(value, low, 1'000'000'000'000, &parsed)) {
    return Refuse(
        variable, value,
        low == 0 ? "write nanoseconds, from 0 to 10^12" : "write nanoseconds, from 1000 to 10^12");
  }
  *ns = static_cast<uint64_t>(parsed);
}

void ReadSpeed() {
  const char* value = Read("GPUFENCE_SIM_SPEED");
  if (value == nullptr) return;
  if (strcmp(value, "virtual") == 0) {
    g_config.speed_permille = 0;
  } else if (!ParsePermille(value, &g_config.speed_permille)) {
    Refuse("GPUFENCE_SIM_SPEED", value, "write a factor from 0.001 to 1000, or 'virtual'");
  }
}

void ReadDriver() {
  const char* value = Read("GPUFENCE_SIM_DRIVER");
  Driver driver;
  if (value != nullptr && !ParseDriver(value, &driver)) {
    Refuse("GPUFENCE_SIM_DRIVER", value,
           "write a branch on record such as 470 or 580, or a version such as 550.163.01");
  }
}

void ReadState() {
  const char* folder = Read("TMPDIR");
  if (folder == nullptr || strlen(folder) > kMaxPathBytes - 64) folder = "/tmp";
  snprintf(g_config.state, sizeof(g_config.state), "%s/gpufence-sim-%u", folder,
           static_cast<unsigned>(geteuid()));
  ReadText("GPUFENCE_SIM_STATE", g_config.state, sizeof(g_config.state) - 32);
}

void ReadFaults() {
  const char* value = Read("GPUFENCE_SIM_FAULTS");
  const char* why = nullptr;
  if (value != nullptr && !faults::Parse(value, &why)) {
    Refuse("GPUFENCE_SIM_FAULTS", value, why);
  }
}

void ReadAll() {
  ReadDriver();
  ReadState();
  ReadText("GPUFENCE_SIM_LOG", g_config.log, sizeof(g_config.log));
  ReadText("GPUFENCE_SIM_KERNELS", g_config.kernels, sizeof(g_config.kernels));
  ReadFaults();
  ReadInteger("GPUFENCE_SIM_GPUS", 0, kMaxDevices, "write a whole number from 0 to 16",
              &g_config.gpu_count);
  ReadInteger("GPUFENCE_SIM_SMS", 1, 1024, "write a whole number from 1 to 1024",
              &g_config.sm_count);
  ReadInteger("GPUFENCE_SIM_MPS", 0, 1, "write 0 or 1", &g_config.is_mps);
  ReadInteger("GPUFENCE_SIM_PID", 1, INT32_MAX, "write a process number from 1 to 2147483647",
              &g_config.listed_pid);
  const int most = g_config.gpu_count > 0 ? kMaxDevices / g_config.gpu_count : kMaxInstances;
  ReadInteger("GPUFENCE_SIM_MIG", 0, most < kMaxInstances ? most : kMaxInstances,
              "write a whole number from 0 to 7, with 16 instances in all at most",
              &g_config.mig_instances);
  ReadBytes("GPUFENCE_SIM_MEMORY", kGranule, kMaxMemory,
            "write bytes with an optional k, m, g or t, from 2m to 4t", &g_config.memory_bytes);
  ReadBytes("GPUFENCE_SIM_CONTEXT_BYTES", 0, kMaxMemory,
            "write bytes with an optional k, m, g or t, from 0 to 4t", &g_config.context_bytes);
  ReadBytes("GPUFENCE_SIM_STREAM_BYTES", 0, kMaxMemory,
            "write bytes with an optional k, m, g or t, from 0 to 4t", &g_config.stream_bytes);
  g_config.memory_bytes -= g_config.memory_bytes % kMiB;
  g_config.context_bytes += (kGranule - g_config.context_bytes % kGranule) % kGranule;
  ReadSpeed();
  ReadInteger("GPUFENCE_SIM_BUS_MB_PER_S", 1, 1'000'000, "write a whole number from 1 to 1000000",
              &g_config.bus_mb_per_s);
  ReadNs("GPUFENCE_SIM_KERNEL_NS", &g_config.kernel_ns);
  ReadNs("GPUFENCE_SIM_EVENT_NS", &g_config.event_ns);
  ReadNs("GPUFENCE_SIM_EVENT_STEP_NS", &g_config.event_step_ns);
  ReadNs("GPUFENCE_SIM_EVENT_GAP_NS", &g_config.event_gap_ns);
  ReadNs("GPUFENCE_SIM_MEMOP_GAP_NS", &g_config.memop_gap_ns);
  ReadNs("GPUFENCE_SIM_LAUNCH_GAP_NS", &g_config.launch_gap_ns);
  ReadNs("GPUFENCE_SIM_STEP_GAP_NS", &g_config.step_gap_ns);
  ReadNs("GPUFENCE_SIM_START_NS", &g_config.start_ns);
  ReadNs("GPUFENCE_SIM_WIDE_GAP_NS", &g_config.wide_gap_ns);
  ReadNs("GPUFENCE_SIM_LAUNCH_NS", &g_config.launch_ns);
  ReadNs("GPUFENCE_SIM_RECORD_NS", &g_config.record_ns);
  ReadNs("GPUFENCE_SIM_WAKE_NS", &g_config.wake_ns);
  ReadInteger("GPUFENCE_SIM_WAKE_RUN", 0, 1'000'000, "write a whole number from 0 to 1000000",
              &g_config.wake_run);
  ReadNs("GPUFENCE_SIM_SLICE_NS", &g_config.slice_ns, kLeastSliceNs);
  ReadNs("GPUFENCE_SIM_SWITCH_NS", &g_config.switch_ns);
}

// The power of 1024 that a unit stands for, or -1: "", "b", "k", "kb", "kib", ... "t", "tb", "tib".
int UnitPower(const char* unit) {
  int power = 0;
  const char first = static_cast<char>(*unit | 0x20);
  const char* letters = "kmgt";
  const char* hit = *unit != '\0' ? strchr(letters, first) : nullptr;
  if (hit != nullptr) {
    power = static_cast<int>(hit - letters) + 1;
    ++unit;
    if ((*unit | 0x20) == 'i') ++unit;
  }
  if ((*unit | 0x20) == 'b') ++unit;
  return *unit == '\0' ? power : -1;
}

}  // namespace

const Config* GetConfig() {
  pthread_once(&g_once, ReadAll);
  return g_usable ? &g_config : nullptr;
}

bool ParseInteger(const char* text, int64_t low, int64_t high, int64_t* value) {
  int64_t number = 0;
  const char* at = text;
  for (; *at >= '0' && *at <= '9'; ++at) {
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, *at - '0', &number)) {
      return false;
    }
  }
  if (at == text || *at != '\0' || number < low || number > high) return false;
  *value = number;
  return true;
}

bool ParseBytes(const char* text, uint64_t* bytes) {
  uint64_t whole = 0;
  const char* at = text;
  for (; *at >= '0' && *at <= '9'; ++at) {
    if (__builtin_mul_overflow(whole, uint64_t{10}, &whole) ||
        __builtin_add_overflow(whole, static_cast<uint64_t>(*at - '0'), &whole)) {
      return false;
    }
  }
  if (at == text) return false;
  uint64_t numerator = 0;
  uint64_t denominator = 1;
  if (*at == '.') {
    const char* point = at++;
    for (; *at >= '0' && *at <= '9' && denominator < 1'000'000; ++at) {
      numerator = numerator * 10 + static_cast<uint64_t>(*at - '0');
      denominator *= 10;
    }
    if (at == point + 1) return false;
  }
  const int power = UnitPower(at);
  if (power < 0) return false;
  const uint64_t unit = uint64_t{1} << (10 * power);
  uint64_t total = 0;
  if (__builtin_mul_overflow(whole, unit, &total)) return false;
  const auto part = static_cast<unsigned __int128>(unit) * numerator / denominator;
  if (__builtin_add_overflow(total, static_cast<uint64_t>(part), &total)) return false;
  *bytes = total;
  return true;
}

void Complain(const char* variable, const char* value, const char* why) {
  char line[1024];
  const int length = snprintf(line, sizeof(line), "gpufence-sim: %s='%.400s' refused: %s.\n",
                              variable, value, why);
  const size_t bytes =
      static_cast<size_t>(length) < sizeof(line) ? static_cast<size_t>(length) : sizeof(line) - 1;
  if (write(STDERR_FILENO, line, bytes) < 0) return;  // a closed stderr is nobody's fault here
}

}  // namespace sim
