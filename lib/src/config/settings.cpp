// Words rather than amounts: policies, what is switched off, identity, folders, and how much is
// logged and where to, as each dialect says it. Nothing about the log is ever a reason to refuse.
#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"
#include "config/claims.h"
#include "config/grammar.h"
#include "config/text.h"

namespace gpufence {
namespace {

void Copy(std::string_view text, char* to, size_t bytes) {
  snprintf(to, bytes, "%.*s", static_cast<int>(text.size()), text.data());
}

bool HasLimit(const Statements& statements, Dialect dialect) {
  for (size_t i = 0; i < statements.count; ++i) {
    const Option& option = *statements.all[i].option;
    if (option.dialect == dialect && option.setting < Setting::kHooks &&
        !statements.all[i].text.empty()) {
      return true;
    }
  }
  return false;
}

// "shared" is a soft share of everything, for all GPUs, so that one stated beside it holds.
bool ReadOwnPolicy(Reading* reading, Hidden* hidden) {
  const Statements& statements = reading->statements();
  const Statement* policy = StatementOf(statements, Dialect::kGpufence, Setting::kCorePolicy);
  if (policy == nullptr || EqualsIgnoringCase(policy->text, "always")) return true;
  if (EqualsIgnoringCase(policy->text, "off")) {
    hidden->own_cores = true;
    return true;
  }
  if (!EqualsIgnoringCase(policy->text, "shared")) return Refuse(reading, *policy, Fault::kPolicy);
  Claim claim{};
  claim.kind = ClaimKind::kSoftCores;
  claim.dialect = static_cast<uint8_t>(Dialect::kGpufence);
  claim.layer = policy->origin == Origin::kConfigFile ? 1 : 0;
  claim.amount = 100 * kThousand;
  DescribeStatement(statements, *policy, claim.source);
  return AddClaim(reading, claim);
}

void ReadHamiPolicy(Reading* reading, Hidden* hidden) {
  const Statements& statements = reading->statements();
  const std::string_view policy = TextOf(statements, Dialect::kHami, Setting::kCorePolicy);
  char quoted[kQuoteBytes];
  Quote(policy, quoted);
  hidden->hami_cores = EqualsIgnoringCase(policy, "disable");
  if (!hidden->hami_cores && !policy.empty() && !EqualsIgnoringCase(policy, "force") &&
      !EqualsIgnoringCase(policy, "default")) {
    AddNote(reading->claims,
            "GPU_CORE_UTILIZATION_POLICY=%s is unknown, so the core limit applies. Write default, "
            "force or disable",
            quoted);
  }
}

}  // namespace

// Variables alone: what an operator wrote into a file still holds.
bool DropDisabled(Reading* reading) {
  Statements* statements = &reading->scratch->statements;
  const Statement* disable = StatementOf(*statements, Dialect::kGpufence, Setting::kDisable);
  if (disable == nullptr) return true;
  bool on = false;
  const Fault fault = ParseSwitch(disable->text, &on);
  if (fault != Fault::kNone) return Refuse(reading, *disable, fault);
  if (!on) return true;
  char source[kSourceBytes];
  DescribeStatement(*statements, *disable, source);
  size_t kept = 0;
  for (size_t i = 0; i < statements->count; ++i) {
    const Statement& statement = statements->all[i];
    const bool of_variable =
        statement.origin == Origin::kEnvironment || statement.origin == Origin::kFirstProcess;
    if (of_variable && statement.option->setting < Setting::kHooks) continue;
    statements->all[kept++] = statement;
  }
  if (kept < statements->count) {
    AddNote(reading->claims, "%s switches off the limits of all variables", source);
  }
  statements->count = kept;
  return true;
}

bool ReadSwitches(Reading* reading, Hidden* hidden) {
  const Statements& statements = reading->statements();
  ReadHamiPolicy(reading, hidden);
  hidden->vgpu_rs = TextOf(statements, Dialect::kVgpuRs, Setting::kHooks) == "false";
  if (hidden->vgpu_rs && HasLimit(statements, Dialect::kVgpuRs)) {
    AddNote(reading->claims, "ENABLE_CUDA_HOOKS=false switches off the limits of vgpu.rs");
  }
  return ReadOwnPolicy(reading, hidden);
}

namespace {

constexpr size_t kFolderBytes = sizeof Claims::state_folder;

bool ReadFolder(Reading* reading, Setting setting, const char* name, char (&kept)[kFolderBytes]) {
  const std::string_view folder = TextOf(reading->statements(), Dialect::kGpufence, setting);
  if (!folder.empty() && (folder.front() != '/' || folder.size() >= kFolderBytes)) {
    return reading->complaint.Say("%s is not an absolute path of at most %zu bytes. Write %s", name,
                                  kFolderBytes - 1, "/run/gpufence");
  }
  Copy(folder, kept, kFolderBytes);
  return true;
}

}  // namespace

bool ReadScope(Reading* reading) {
  const Statements& statements = reading->statements();
  Claims* claims = reading->claims;
  const std::string_view scope = TextOf(statements, Dialect::kGpufence, Setting::kScope);
  claims->process_scope = scope == "process";
  if (!scope.empty() && !claims->process_scope && scope != "container") {
    char quoted[kQuoteBytes];
    Quote(scope, quoted);
    return reading->complaint.Say(
        "GPUFENCE_SCOPE='%s' is neither container nor process. Write one of them", quoted);
  }
  return ReadFolder(reading, Setting::kStateFolder, "GPUFENCE_STATE_DIR", claims->state_folder) &&
         ReadFolder(reading, Setting::kNodeFolder, "GPUFENCE_NODE_DIR", claims->node_folder);
}

void ReadIdentity(Reading* reading) {
  const Statements& statements = reading->statements();
  Claims* claims = reading->claims;
  Copy(TextOf(statements, Dialect::kVcuda, Setting::kDeviceName), claims->device_name,
       sizeof claims->device_name);
  const std::string_view own = TextOf(statements, Dialect::kGpufence, Setting::kContainer);
  const std::string_view pod = TextOf(statements, Dialect::kVgpuManager, Setting::kPodUid);
  const std::string_view name = TextOf(statements, Dialect::kVgpuManager, Setting::kContainerName);
  const std::string_view id = TextOf(statements, Dialect::kAlnair, Setting::kId);
  if (!own.empty()) {
    Copy(own, claims->container, sizeof claims->container);
  } else if (!pod.empty() && !name.empty()) {
    snprintf(claims->container, sizeof claims->container, "%.*s_%.*s", static_cast<int>(pod.size()),
             pod.data(), static_cast<int>(name.size()), name.data());
  } else {
    Copy(id, claims->container, sizeof claims->container);
  }
}

void ReadGroup(Reading* reading) {
  Claims* claims = reading->claims;
  if (claims->container[0] != '\0') return;
  const std::string_view cache = TextOf(reading->statements(), Dialect::kHami, Setting::kContainer);
  // A long path differs from others at its end.
  constexpr size_t kMost = sizeof claims->container - 1;
  const size_t start = cache.size() > kMost ? cache.size() - kMost : 0;
  Copy(After(cache, start), claims->container, sizeof claims->container);
}

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
