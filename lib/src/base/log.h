// Log lines: where they go, which levels are on, and how often one cause may speak.
// Must not know who logs, nor touch stdout, locale, allocation or any lock.
#pragma once

#include <locale.h>
#include <stddef.h>
#include <string.h>

#include <atomic>
#include <cstdint>

namespace gpufence {

enum class LogLevel : int { kOff = -1, kError = 0, kWarn = 1, kInfo = 2, kDebug = 3, kTrace = 4 };

// True when lines of this level are written. Reads GPUFENCE_LOG_LEVEL (off, error, warn, info,
// debug, trace; default warn) once; one relaxed load afterwards, so it may guard a warm path.
bool LogEnabled(LogLevel level);

// The level that a word names, in any case; false: none.
bool LogLevelNamed(const char* word, size_t length, LogLevel* level);

// Another default than warn, from sources that this layer does not know. A readable
// GPUFENCE_LOG_LEVEL of the process beats it.
void SuggestLogLevel(LogLevel level);

// One cause of a line: says the first kBurst lines at once, then at most one a minute with the
// number it swallowed in between, so that a failing loop cannot flood a host program's stderr.
class LogThrottle {
 public:
  // True when the caller may write now; *swallowed is how many lines were withheld before.
  bool Admit(uint64_t now_seconds, uint32_t* swallowed);

 private:
  static constexpr uint32_t kBurst = 3;
  static constexpr uint64_t kPauseSeconds = 60;
  std::atomic<uint32_t> said_{0};
  std::atomic<uint32_t> swallowed_{0};
  std::atomic<uint64_t> last_seconds_{0};
};

// Another sink than stderr, from the same sources: lines are appended to `path`, with `daily` to
// path.YYYY-MM-DD (UTC). A relative path counts from today's working directory. The first call
// counts; "" asks for nothing. GPUFENCE_LOG_FILE of the process beats it.
void SuggestLogFile(const char* path, bool daily);

// Writes "gpufence: <text>\n" in one write(2) to the log file, else to stderr. Keeps errno.
// Longer lines are cut; one that cannot be written is lost after 0.1 s, without a signal to the
// program. Safe in any thread and after fork; not meant for signal handlers.
void LogLine(LogLevel level, LogThrottle* throttle, const char* format, ...)
    __attribute__((format(printf, 3, 4), cold));

// The text of an errno for a line, always in English. A translation may need a converter of
// character sets, which the C library loads first; and another thread may hold the loader's lock.
inline const char* ErrorText(int error) {
  // The C library's own "C" locale: nothing is allocated, and there is nothing to free.
  locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  return plain != nullptr ? strerror_l(error, plain) : "unknown error";
}

}  // namespace gpufence

// Logs with a throttle of its own per place in the code; costs one load when the level is off.
#define GPUFENCE_LOG(level, ...)                                                    \
  do {                                                                              \
    if (::gpufence::LogEnabled(::gpufence::LogLevel::level)) {                      \
      static constinit ::gpufence::LogThrottle log_throttle;                        \
      ::gpufence::LogLine(::gpufence::LogLevel::level, &log_throttle, __VA_ARGS__); \
    }                                                                               \
  } while (false)

// Debug and trace lines describe every event, so they are not throttled.
#define GPUFENCE_TRACE(level, ...)                                            \
  do {                                                                        \
    if (::gpufence::LogEnabled(::gpufence::LogLevel::level)) {                \
      ::gpufence::LogLine(::gpufence::LogLevel::level, nullptr, __VA_ARGS__); \
    }                                                                         \
  } while (false)
