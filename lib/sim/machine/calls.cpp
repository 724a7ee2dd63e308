// See calls.h.
#include "machine/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "machine/config.h"
#include "machine/faults.h"

// What a program may define to be called from inside of every call, as by a tool of NVIDIA's that
// subscribed to them: before the call does anything, with no lock of the driver's held.
extern "C" [[gnu::weak]] void gpufence_sim_callback(const char* name);

namespace sim {
namespace {

constexpr int kCudaNotInitialized = 3;
constexpr int kNvmlUninitialized = 1;
constexpr int kCudaUnknown = 999;  // NVML_ERROR_UNKNOWN has the same number

constinit std::atomic<uint64_t> g_counts[gpufence::kSymCount] = {};
constinit std::atomic<bool> g_initialized{false};

// A page that the kernel zeroes in a forked child, whichever way it was forked; it holds 1 in the
// process that initialised.  Null as long as nothing can be lost by a fork.
constinit std::atomic<volatile unsigned char*> g_wiped_page{nullptr};

int NotInitializedCode(uint16_t sym) {
  return sym >= gpufence::kNvmlFirst && sym < gpufence::kNvmlEnd ? kNvmlUninitialized
                                                                 : kCudaNotInitialized;
}

char* AppendText(char* at, const char* end, const char* text) {
  while (*text != '\0' && at < end) *at++ = *text++;
  return at;
}

char* AppendHex(char* at, const char* end, uint64_t value) {
  at = AppendText(at, end, " 0x");
  int shift = 60;
  while (shift > 0 && (value >> shift) == 0) shift -= 4;
  for (; shift >= 0 && at < end; shift -= 4) *at++ = "0123456789abcdef"[value >> shift & 15];
  return at;
}

// "NAME 0xARG ... #PID\n"
void Log(const char* path, uint16_t sym, const uint64_t* args, size_t arg_count) {
  char line[512];
  const char* end = line + sizeof(line) - 32;
  char* at = AppendText(line, end, gpufence::kSymInfo[sym].name);
  for (size_t index = 0; index < arg_count; ++index) at = AppendHex(at, end, args[index]);
  at += snprintf(at, 24, " #%d\n", static_cast<int>(getpid()));
  AppendLine(path, line, static_cast<size_t>(at - line));
}

// What is planned for this call, by which it shall return a code or late.
Fault Suffer(uint16_t sym, uint64_t count) {
  const Fault* fault = faults::Planned(sym, count);
  if (fault == nullptr) return {};
  if (fault->action == FaultAction::kKill) raise(SIGKILL);
  if (fault->action == FaultAction::kBlock) Block(fault->value);
  return *fault;
}

}  // namespace

void AppendLine(const char* path, const char* line, size_t bytes) {
  const int saved_errno = errno;
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd >= 0) {
    if (write(fd, line, bytes) < 0) {
      // A full disk loses lines of a test's log; the call itself must not suffer.
    }
    close(fd);
  }
  errno = saved_errno;
}

void Block(uint64_t milliseconds) {
  timespec left = {.tv_sec = static_cast<time_t>(milliseconds / 1000),
                   .tv_nsec = static_cast<long>(milliseconds % 1000) * 1'000'000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

Answer Enter(Door door, uint16_t sym, const uint64_t* args, size_t arg_count) {
  const uint64_t count = g_counts[sym].fetch_add(1, std::memory_order_relaxed) + 1;
  const Config* config = GetConfig();
  if (config == nullptr) {  // said on stderr; nothing may work under a misread configuration
    return {door == Door::kAnytime ? kCudaUnknown : NotInitializedCode(sym), 0};
  }
  if (config->log[0] != '\0') Log(config->log, sym, args, arg_count);
  if (gpufence_sim_callback != nullptr) gpufence_sim_callback(gpufence::kSymInfo[sym].name);
  const Fault fault = Suffer(sym, count);
  if (fault.action == FaultAction::kCode) return {static_cast<int>(fault.value), 0};
  if (door == Door::kInitialized &&
      (!g_initialized.load(std::memory_order_acquire) || IsOrphanedByFork())) {
    return {NotInitializedCode(sym), 0};
  }
  return {0, fault.action == FaultAction::kLate ? fault.value : 0};
}

void SetInitialized(bool initialized, bool lost_by_fork) {
  volatile unsigned char* mark = g_wiped_page.load(std::memory_order_acquire);
  if (initialized && lost_by_fork && mark == nullptr) {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0) {
      mark = static_cast<volatile unsigned char*>(page);
    }
  }
  if (initialized && mark != nullptr) {
    *mark = 1;
    g_wiped_page.store(mark, std::memory_order_release);
  }
  g_initialized.store(initialized, std::memory_order_release);
}

bool IsOrphanedByFork() {
  const volatile unsigned char* mark = g_wiped_page.load(std::memory_order_acquire);
  return mark != nullptr && *mark == 0;
}

uint64_t CallCount(uint16_t sym) { return g_counts[sym].load(std::memory_order_relaxed); }

}  // namespace sim

extern "C" int gpufence_sim_call(uint16_t sym) {
  return sim::Visit(sim::Door::kInitialized, sym, nullptr, 0).code();
}
