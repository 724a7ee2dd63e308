#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

#include "base/env.h"
#include "base/futex.h"

namespace gpufence {
namespace {

constexpr int kUnread = -2;
constexpr size_t kLineBytes = 512;
constexpr size_t kLogPathBytes = 512;

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

enum class SinkState : int { kStderr, kBeingSet, kFile };

// Written once, before kFile is published.
constinit std::atomic<SinkState> sink_state{SinkState::kStderr};
constinit char sink_path[kLogPathBytes] = {};
constinit bool sink_is_daily = false;

// The civil date of a day counted from 1970-01-01. Not gmtime_r: it takes a lock that a forked
// child may find held for ever.
void FormatDay(int64_t day, char text[16]) {
  constexpr int64_t kEraDays = 146097;   // of 400 years
  const int64_t shifted = day + 719468;  // from 0000-03-01, so that leap days end a year
  const int64_t era_day = shifted % kEraDays;
  const int64_t era_year =
      (era_day - era_day / 1460 + era_day / 36524 - era_day / (kEraDays - 1)) / 365;
  const int64_t year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
  const int64_t month = (5 * year_day + 2) / 153;  // 0 is March
  const int64_t month_day = year_day - (153 * month + 2) / 5 + 1;
  const int64_t year = shifted / kEraDays * 400 + era_year + (month >= 10 ? 1 : 0);
  snprintf(text, 16, ".%04u-%02u-%02u", static_cast<unsigned>(year) % 10000,
           static_cast<unsigned>(month < 10 ? month + 3 : month - 9),
           static_cast<unsigned>(month_day));
}

// The path that the sources ask for; empty: none.
void SuggestedPath(char path[kLogPathBytes + 16]) {
  path[0] = '\0';
  if (sink_state.load(std::memory_order_acquire) != SinkState::kFile) return;
  char day[16] = "";
  if (sink_is_daily) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    FormatDay(now.tv_sec / 86400, day);
  }
  snprintf(path, kLogPathBytes + 16, "%s%s", sink_path, day);
}

// Opened for every line: a program may close any descriptor it did not open itself (daemons close
// them all), and a kept number could by then be somebody's socket.
int OpenSink() {
  char suggested[kLogPathBytes + 16];
  const char* path = EnvText("GPUFENCE_LOG_FILE");
  if (path == nullptr || *path == '\0') {
    SuggestedPath(suggested);
    path = suggested;
  }
  if (*path == '\0') return STDERR_FILENO;
  // A pipe that nobody reads is no reason to wait.
  const int file =
      open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
  return file >= 0 ? file : STDERR_FILENO;
}

// Keeps signals that a write can raise away from the program, which did not ask for it: SIGPIPE
// where nobody reads any more, SIGXFSZ where a file may not grow. Both come to the thread that
// writes. One that was pending before is the program's.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t pending;
    sigemptyset(&raised_);
    sigpending(&pending);
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending, signal) == 0) sigaddset(&raised_, signal);
    }
    sigprocmask(SIG_BLOCK, &raised_, &before_);
  }
  ~WithoutSignals() {
    const timespec at_once = {};
    while (sigtimedwait(&raised_, nullptr, &at_once) > 0) {
    }
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t raised_;
  sigset_t before_;
};

// A full pipe or terminal may be read in a moment; one that is not must not stop the program.
constexpr int kPatienceMs = 100;

// What cannot be written is lost: the sink is the host program's choice.
void WriteLine(int sink, const char* line, size_t bytes) {
  pollfd ready = {.fd = sink, .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, kPatienceMs) == 0) return;
  const WithoutSignals quiet;
  if (write(sink, line, bytes) < 0) {
  }
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

void SuggestLogFile(const char* path, bool daily) {
  SinkState unset = SinkState::kStderr;
  if (*path == '\0' || !sink_state.compare_exchange_strong(unset, SinkState::kBeingSet)) return;
  const int saved_errno = errno;
  char folder[kLogPathBytes / 2] = "";
  const bool relative = *path != '/' && getcwd(folder, sizeof folder) != nullptr;
  snprintf(sink_path, sizeof sink_path, "%s%s%s", folder, relative ? "/" : "", path);
  sink_is_daily = daily;
  errno = saved_errno;
  // Pairs with the acquire in SuggestedPath: whoever sees kFile sees the path.
  sink_state.store(SinkState::kFile, std::memory_order_release);
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

  const Uncancelled during;
  const int sink = OpenSink();
  WriteLine(sink, line, used);
  if (sink != STDERR_FILENO) close(sink);
  errno = saved_errno;
}

}  // namespace gpufence
