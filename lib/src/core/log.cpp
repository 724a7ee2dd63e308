#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "core/env.h"

namespace gpufence {
namespace {

constexpr int kUnread = -2;
constexpr size_t kLineBytes = 512;

struct LevelName {
  const char* name;
  LogLevel level;
};

constexpr LevelName kLevelNames[] = {{"off", LogLevel::kOff},     {"error", LogLevel::kError},
                                     {"warn", LogLevel::kWarn},   {"info", LogLevel::kInfo},
                                     {"debug", LogLevel::kDebug}, {"trace", LogLevel::kTrace}};

constinit std::atomic<int> enabled_level{kUnread};

// An unknown word must not silence errors, and a wrong log level is no reason to say anything
// in somebody else's program: the default stands.
bool ReadOwnLevel(LogLevel* level) {
  const char* text = EnvText("GPUFENCE_LOG_LEVEL");
  return text != nullptr && LogLevelNamed(text, strlen(text), level);
}

// Opened for every line: a program may close any descriptor it did not open itself (daemons close
// them all), and a kept number could by then be somebody's socket.
int OpenSink() {
  const char* path = EnvText("GPUFENCE_LOG_FILE");
  if (path == nullptr || *path == '\0') return STDERR_FILENO;
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
  return file >= 0 ? file : STDERR_FILENO;
}

uint64_t NowSeconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) + 1;  // 0 means "never" in LogThrottle
}

size_t Clamp(int printed, size_t room) {
  if (printed < 0) return 0;
  return static_cast<size_t>(printed) < room ? static_cast<size_t>(printed) : room - 1;
}

}  // namespace

bool LogLevelNamed(const char* word, size_t length, LogLevel* level) {
  for (const LevelName& entry : kLevelNames) {
    if (strlen(entry.name) == length && strncasecmp(word, entry.name, length) == 0) {
      *level = entry.level;
      return true;
    }
  }
  return false;
}

void SuggestLogLevel(LogLevel level) {
  ReadOwnLevel(&level);
  enabled_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

bool LogEnabled(LogLevel level) {
  int enabled = enabled_level.load(std::memory_order_relaxed);
  if (enabled == kUnread) {
    LogLevel own = LogLevel::kWarn;
    ReadOwnLevel(&own);
    enabled = static_cast<int>(own);
    enabled_level.store(enabled, std::memory_order_relaxed);
  }
  return static_cast<int>(level) <= enabled;
}

bool LogThrottle::Admit(uint64_t now_seconds, uint32_t* swallowed) {
  *swallowed = 0;
  if (said_.load(std::memory_order_relaxed) < kBurst) {
    said_.fetch_add(1, std::memory_order_relaxed);
    last_seconds_.store(now_seconds, std::memory_order_relaxed);
    return true;
  }
  uint64_t last = last_seconds_.load(std::memory_order_relaxed);
  // The exchange picks one speaker among threads that find the minute over at the same time.
  if (now_seconds - last < kPauseSeconds ||
      !last_seconds_.compare_exchange_strong(last, now_seconds, std::memory_order_relaxed)) {
    swallowed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  *swallowed = swallowed_.exchange(0, std::memory_order_relaxed);
  return true;
}

void LogLine(LogLevel level, LogThrottle* throttle, const char* format, ...) {
  const int saved_errno = errno;
  const uint64_t now_seconds = NowSeconds();
  uint32_t swallowed = 0;
  if (!LogEnabled(level) || (throttle != nullptr && !throttle->Admit(now_seconds, &swallowed))) {
    errno = saved_errno;
    return;
  }

  char line[kLineBytes];
  size_t used = Clamp(snprintf(line, sizeof line, "gpufence: "), sizeof line);
  va_list arguments;
  va_start(arguments, format);
  used += Clamp(vsnprintf(line + used, sizeof line - used, format, arguments), sizeof line - used);
  va_end(arguments);
  if (swallowed > 0) {
    used += Clamp(snprintf(line + used, sizeof line - used, " (%u more since)", swallowed),
                  sizeof line - used);
  }
  if (used > sizeof line - 2) used = sizeof line - 2;
  line[used++] = '\n';

  const int sink = OpenSink();
  // A full pipe or a closed stderr is the host program's choice; the line is lost then.
  if (write(sink, line, used) < 0) {
  }
  if (sink != STDERR_FILENO) close(sink);
  errno = saved_errno;
}

}  // namespace gpufence
