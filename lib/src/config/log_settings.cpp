// How much is logged and where to, as each dialect says it: levels in words, numbers and
// directives, sinks in words and paths. Nothing here is ever a reason to refuse.
#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"
#include "config/reading.h"
#include "config/text.h"

namespace gpufence {
namespace {

LogLevel FromNumber(uint32_t number, LogLevel zero, LogLevel one) {
  if (number == 0) return zero;
  if (number == 1) return one;
  return number >= 5 ? LogLevel::kTrace : static_cast<LogLevel>(number - 1);
}

bool NumberedLevel(std::string_view text, LogLevel one, LogLevel* level) {
  text = Trim(text);
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > 9) return false;
  uint32_t number = 0;
  for (const char digit : text) {
    if (!IsDigit(digit)) return false;
    number = number * 10 + static_cast<uint32_t>(digit - '0');
  }
  *level = negative ? LogLevel::kWarn : FromNumber(number, LogLevel::kError, one);
  return true;
}

bool WordedLevel(std::string_view text, LogLevel* level) {
  struct Word {
    std::string_view word;
    LogLevel level;
  };
  constexpr Word kWords[] = {{"none", LogLevel::kOff},       {"err", LogLevel::kError},
                             {"critical", LogLevel::kError}, {"crit", LogLevel::kError},
                             {"fatal", LogLevel::kError},    {"warning", LogLevel::kWarn}};
  for (const Word& word : kWords) {
    if (EqualsIgnoringCase(text, word.word)) {
      *level = word.level;
      return true;
    }
  }
  return LogLevelNamed(text.data(), text.size(), level);
}

// "a=debug,info": the most verbose of its directives.
bool DirectiveLevel(std::string_view text, LogLevel* level) {
  bool found = false;
  std::string_view part;
  while (NextPart(&text, ',', &part)) {
    const size_t equals = part.rfind('=');
    LogLevel one = LogLevel::kOff;
    if (!WordedLevel(Trim(After(part, equals == std::string_view::npos ? 0 : equals + 1)), &one)) {
      return false;
    }
    if (!found || one > *level) *level = one;
    found = true;
  }
  return found;
}

bool IsOffWord(std::string_view text) {
  return EqualsIgnoringCase(text, "off") || EqualsIgnoringCase(text, "false") || text == "0";
}

bool LevelOf(const Statement& statement, LogLevel* level) {
  switch (statement.option->dialect) {
    case Dialect::kHami:
      return NumberedLevel(statement.text, LogLevel::kWarn, level);
    case Dialect::kVgpuManager:
      return NumberedLevel(statement.text, LogLevel::kError, level);
    case Dialect::kVgpuRs:
      return DirectiveLevel(statement.text, level);
    default:
      return WordedLevel(Trim(statement.text), level);
  }
}

// A folder gets a file of vgpu.rs's name.
bool IsFolder(const char* root, std::string_view path) {
  char place[640];
  struct stat found = {};
  snprintf(place, sizeof place, "%s%.*s", root, static_cast<int>(path.size()), path.data());
  return stat(place, &found) == 0 && S_ISDIR(found.st_mode);
}

// vcuda-hook's sink as a path; empty: stderr, which stands for stdout, too.
std::string_view VcudaSink(const Statements& statements) {
  constexpr std::string_view kFile = "file:";
  const std::string_view sink = Trim(TextOf(statements, Dialect::kVcuda, Setting::kLogSink));
  if (EqualsIgnoringCase(sink, "null") || EqualsIgnoringCase(sink, "none")) return "/dev/null";
  if (EqualsIgnoringCase(First(sink, kFile.size()), kFile)) return After(sink, kFile.size());
  if (!EqualsIgnoringCase(sink, "file")) return {};
  const std::string_view file = TextOf(statements, Dialect::kVcuda, Setting::kLogFile);
  return file.empty() ? "vcuda-hook.log" : file;
}

}  // namespace

bool ReadLogLevel(const Statements& statements, LogLevel* level, char unreadable[kSourceBytes]) {
  const std::string_view log_switch = TextOf(statements, Dialect::kVgpuRs, Setting::kLogSwitch);
  const bool silenced = IsOffWord(log_switch);
  bool found = silenced;
  LogLevel most = LogLevel::kOff;
  unreadable[0] = '\0';
  for (size_t i = 0; i < statements.count; ++i) {
    const Statement& statement = statements.all[i];
    const Option& option = *statement.option;
    if (option.setting != Setting::kLogLevel || statement.text.empty()) continue;
    LogLevel one = LogLevel::kOff;
    if (!LevelOf(statement, &one)) {
      if (unreadable[0] == '\0') DescribeStatement(statements, statement, unreadable);
      continue;
    }
    // Our own, from process 1 or the config file, beats every dialect's.
    const bool own = option.dialect == Dialect::kGpufence;
    if (!own && silenced && option.dialect == Dialect::kVgpuRs) continue;
    if (own || one > most) most = one;
    found = true;
    if (own) break;
  }
  if (found) {
    *level = most;
    SuggestLogLevel(most);
  }
  return unreadable[0] == '\0';
}

void ReadLogSink(Reading* reading) {
  const Statements& statements = reading->statements();
  Claims* claims = reading->claims;
  const char* file = "";
  std::string_view path = TextOf(statements, Dialect::kGpufence, Setting::kLogFile);
  if (path.empty()) path = VcudaSink(statements);
  if (path.empty() && !IsOffWord(TextOf(statements, Dialect::kVgpuRs, Setting::kLogSwitch))) {
    path = TextOf(statements, Dialect::kVgpuRs, Setting::kLogFile);
    claims->log_is_daily = !path.empty();
    if (claims->log_is_daily && IsFolder(reading->sources->root, path)) file = "/tf.log";
  }
  if (path.size() + 8 > sizeof claims->log_file) {
    AddNote(claims, "the log file's path is too long: lines go to stderr");
    path = {};
    file = "";
  }
  claims->log_is_daily = claims->log_is_daily && !path.empty();
  snprintf(claims->log_file, sizeof claims->log_file, "%.*s%s", static_cast<int>(path.size()),
           path.data(), file);
}

}  // namespace gpufence
