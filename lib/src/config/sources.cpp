#include "config/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "config/gpu_names.h"
#include "config/grammar.h"
#include "config/options.h"
#include "config/text.h"

namespace gpufence {
namespace {

constexpr size_t kPathBytes = 4096;

bool IsOperators(int file) {
  struct statvfs mounted = {};
  if (fstatvfs(file, &mounted) == 0 && (mounted.f_flag & ST_RDONLY) != 0) return true;
  struct stat about = {};
  if (fstat(file, &about) != 0 || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0) return false;
  return about.st_uid == 0 || about.st_uid != geteuid();
}

FileResult ReadAll(int file, char* buffer, size_t bytes, std::string_view* content) {
  struct stat about = {};
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return FileResult::kUnreadable;
  size_t used = 0;
  while (used < bytes) {
    const ssize_t got = read(file, buffer + used, bytes - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileResult::kUnreadable;
    *content = {buffer, used + static_cast<size_t>(got)};
    if (got == 0) return FileResult::kRead;
    used += static_cast<size_t>(got);
  }
  return FileResult::kTooLarge;
}

constexpr std::string_view kLineBlanks = " \t\r";

// A shell cannot set a name with dashes, so that '_' stands for '-' in a UUID, too.
bool ParseUuidKey(std::string_view key, uint8_t uuid[16]) {
  char dashed[40];
  if (key.size() > sizeof dashed) return false;
  for (size_t i = 0; i < key.size(); ++i) dashed[i] = key[i] == '_' ? '-' : key[i];
  return ParseUuid({dashed, key.size()}, uuid);
}

// `key`: nothing, or '_' and the GPU.
bool ReadKey(std::string_view key, Statement* statement) {
  if (key.empty()) return true;
  key.remove_prefix(1);
  if (statement->option->keys == Keys::kIndexOrUuid && ParseUuidKey(key, statement->uuid)) {
    statement->target = ClaimTarget::kUuid;
    return true;
  }
  statement->target = ClaimTarget::kOrdinal;
  return ParseIndex(key, &statement->index);
}

Statement* FindName(Statements* statements, std::string_view name) {
  for (size_t i = 0; i < statements->count; ++i) {
    if (statements->all[i].name == name) return &statements->all[i];
  }
  return nullptr;
}

bool HasOption(const Statements& statements, const Option* option, Origin origin) {
  for (size_t i = 0; i < statements.count; ++i) {
    const Statement& statement = statements.all[i];
    if (statement.option == option && statement.origin == origin) return true;
  }
  return false;
}

bool Add(Statements* statements, const Statement& statement, Complaint complaint) {
  if (statements->count == Statements::kMost) {
    return complaint.Say("more than %zu limits are set. Set fewer", Statements::kMost);
  }
  statements->all[statements->count++] = statement;
  return true;
}

// Reads "NAME=TEXT" when the name is known; *known tells. False: its key is unreadable.
bool ReadEntry(std::string_view entry, Origin origin, Statement* statement, bool* known,
               Complaint complaint) {
  const size_t equals = entry.find('=');
  *known = false;
  *statement = Statement{};
  if (equals == std::string_view::npos) return true;
  statement->origin = origin;
  statement->name = First(entry, equals);
  statement->text = After(entry, equals + 1);
  std::string_view key;
  statement->option = FindOption(statement->name, &key);
  if (statement->option == nullptr) return true;
  *known = true;
  if (ReadKey(key, statement)) return true;
  char quoted[kQuoteBytes];
  Quote(statement->name, quoted);
  return complaint.Say("%s names no GPU. End it with an index%s", quoted,
                       statement->option->keys == Keys::kIndexOrUuid ? " or a UUID" : "");
}

// A typo in a name of ours would be a limit that nobody holds.
bool RefuseUnknown(const Statement& statement, Complaint complaint) {
  if (!IsUnknownOwn(statement.name)) return true;
  char quoted[kQuoteBytes];
  char nearest[kNearestBytes];
  Quote(statement.name, quoted);
  const char* place = statement.origin == Origin::kFirstProcess ? " of process 1" : "";
  if (!NearestOwn(statement.name, /*in_file=*/false, nearest)) {
    return complaint.Say("unknown variable %s%s. Unset it, or see docs/configuration.md", quoted,
                         place);
  }
  return complaint.Say("unknown variable %s%s. Did you mean %s?", quoted, place, nearest);
}

bool GatherEnvironment(char** environment, Statements* statements, Complaint complaint) {
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    Statement statement;
    bool known = false;
    if (!ReadEntry(*entry, Origin::kEnvironment, &statement, &known, complaint)) return false;
    if (!known && !RefuseUnknown(statement, complaint)) return false;
    // The first of two equal names counts, as it does for getenv.
    if (!known || FindName(statements, statement.name) != nullptr) continue;
    if (!Add(statements, statement, complaint)) return false;
  }
  return true;
}

// Process 1 is the container's first process only inside our own pid namespace.
bool FirstProcessIsOurs(const char* root) {
  if (root[0] != '\0') return true;
  struct stat own = {};
  struct stat first = {};
  return getpid() != 1 && stat("/proc/self/ns/pid", &own) == 0 &&
         stat("/proc/1/ns/pid", &first) == 0 && own.st_ino == first.st_ino &&
         own.st_dev == first.st_dev;
}

// A shell beside the container's first process (ssh, sudo) may lack what the container was given.
bool GatherFirstProcess(const char* root, Scratch* scratch, Complaint complaint) {
  if (!FirstProcessIsOurs(root)) return true;
  std::string_view rest;
  bool is_operators = false;  // a variable is the tenant's, whoever started the process
  const FileResult result = ReadWholeFile(root, "/proc/1/environ", scratch->first_process,
                                          sizeof scratch->first_process, &rest, &is_operators);
  if (result != FileResult::kRead && result != FileResult::kTooLarge) return true;
  Statements* statements = &scratch->statements;
  std::string_view entry;
  while (NextPart(&rest, '\0', &entry)) {
    Statement statement;
    bool known = false;
    if (!ReadEntry(entry, Origin::kFirstProcess, &statement, &known, complaint)) return false;
    if (!known && !RefuseUnknown(statement, complaint)) return false;
    if (!known || FindName(statements, statement.name) != nullptr) continue;
    // Our own names fall back together: a general limit set here must not lose to a special one
    // of process 1 that the one who set it could not see.
    if (statement.option->dialect == Dialect::kGpufence &&
        HasOption(*statements, statement.option, Origin::kEnvironment)) {
      continue;
    }
    if (!Add(statements, statement, complaint)) return false;
  }
  return true;
}

bool ReadOrComplain(const char* root, const char* path, bool required, char* buffer, size_t bytes,
                    std::string_view* content, bool* is_operators, Complaint complaint) {
  const FileResult result = ReadWholeFile(root, path, buffer, bytes, content, is_operators);
  if (result == FileResult::kRead || (result == FileResult::kMissing && !required)) return true;
  if (result == FileResult::kNoDescriptor) {
    return complaint.Say(
        "no file descriptor is left to look for %s. Raise the limit of open files (ulimit -n)",
        path);
  }
  if (result == FileResult::kTooLarge) {
    return complaint.Say("%s is larger than %zu bytes. Make it smaller", path, bytes - 1);
  }
  return complaint.Say(result == FileResult::kMissing
                           ? "%s does not exist. Make the file, or name another in GPUFENCE_CONFIG"
                           : "%s cannot be read. Make it a readable file, or remove it",
                       path);
}

// HAMi's file: NAME=VALUE lines that overrule the environment. Only its own names count.
bool GatherOverrides(const char* root, Scratch* scratch, Complaint complaint) {
  std::string_view rest;
  bool is_operators = false;
  if (!ReadOrComplain(root, kOverridePath, /*required=*/false, scratch->override_file,
                      sizeof scratch->override_file, &rest, &is_operators, complaint)) {
    return false;
  }
  std::string_view line;
  for (size_t number = 1; NextPart(&rest, '\n', &line); ++number) {
    line = Trim(line, kLineBlanks);
    if (line.empty() || line.front() == '#') continue;
    if (line.find('=') == std::string_view::npos) {
      return complaint.Say("%s line %zu has no '='. Write NAME=VALUE", kOverridePath, number);
    }
    Statement statement;
    bool known = false;
    if (!ReadEntry(line, Origin::kOverride, &statement, &known, complaint)) return false;
    if (!known || statement.option->dialect != Dialect::kHami) continue;
    statement.is_operators = is_operators;
    Statement* before = FindName(&scratch->statements, statement.name);
    if (before != nullptr) {
      *before = statement;
    } else if (!Add(&scratch->statements, statement, complaint)) {
      return false;
    }
  }
  return true;
}

bool ReadConfigLine(std::string_view line, size_t number, bool is_operators, Statements* statements,
                    Complaint complaint) {
  const char* path = statements->config_path;
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) {
    return complaint.Say("%s line %zu has no '='. Write NAME = VALUE", path, number);
  }
  Statement statement{};
  statement.origin = Origin::kConfigFile;
  statement.is_operators = is_operators;
  statement.name = Trim(First(line, equals), kLineBlanks);
  statement.text = Trim(After(line, equals + 1), kLineBlanks);
  std::string_view key;
  statement.option = FindFileOption(statement.name, &key);
  char quoted[kQuoteBytes];
  Quote(statement.name, quoted);
  if (statement.option == nullptr) {
    char nearest[kNearestBytes];
    if (!NearestOwn(statement.name, /*in_file=*/true, nearest)) {
      return complaint.Say("%s line %zu: '%s' is unknown. See docs/configuration.md", path, number,
                           quoted);
    }
    return complaint.Say("%s line %zu: '%s' is unknown. Did you mean %s?", path, number, quoted,
                         nearest);
  }
  if (!ReadKey(key, &statement)) {
    return complaint.Say("%s line %zu: '%s' names no GPU. End it with an index or a UUID", path,
                         number, quoted);
  }
  if (FindName(statements, statement.name) != nullptr) {
    return complaint.Say("%s line %zu: '%s' is there twice. Keep one", path, number, quoted);
  }
  return Add(statements, statement, complaint);
}

bool GatherConfigFile(const char* root, Scratch* scratch, Complaint complaint) {
  Statements* statements = &scratch->statements;
  const std::string_view named = TextOf(*statements, Dialect::kGpufence, Setting::kConfigFile);
  const std::string_view path = named.empty() ? std::string_view(kConfigPath) : named;
  if (path.size() >= sizeof statements->config_path) {
    return complaint.Say("GPUFENCE_CONFIG is too long. Name a shorter path");
  }
  memcpy(statements->config_path, path.data(), path.size());
  statements->config_path[path.size()] = '\0';
  std::string_view rest;
  bool is_operators = false;
  if (!ReadOrComplain(root, statements->config_path, !named.empty(), scratch->config_file,
                      sizeof scratch->config_file, &rest, &is_operators, complaint)) {
    return false;
  }
  std::string_view line;
  for (size_t number = 1; NextPart(&rest, '\n', &line); ++number) {
    line = Trim(line, kLineBlanks);
    if (line.empty() || line.front() == '#') continue;
    if (!ReadConfigLine(line, number, is_operators, statements, complaint)) return false;
  }
  return true;
}

}  // namespace

FileResult ReadWholeFile(const char* root, const char* path, char* buffer, size_t bytes,
                         std::string_view* content, bool* is_operators) {
  *content = {};
  *is_operators = false;
  char full[kPathBytes];
  const int length = snprintf(full, sizeof full, "%s%s", root, path);
  if (length < 0 || static_cast<size_t>(length) >= sizeof full) return FileResult::kUnreadable;
  const int saved_errno = errno;
  const int file = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  FileResult result = FileResult::kUnreadable;
  if (file >= 0) {
    result = ReadAll(file, buffer, bytes, content);
    *is_operators = IsOperators(file);
    close(file);
  } else if (errno == ENOENT || errno == ENOTDIR) {
    result = FileResult::kMissing;
  } else if (errno == EMFILE || errno == ENFILE) {
    result = FileResult::kNoDescriptor;
  }
  errno = saved_errno;
  return result;
}

bool Complaint::Say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, bytes, format, arguments);
  va_end(arguments);
  // One line of ASCII, whatever a path or a name holds.
  for (char* character = text; *character != '\0'; ++character) {
    if (*character < ' ' || *character > '~') *character = '?';
  }
  return false;
}

bool Gather(const Sources& sources, Scratch* scratch, Complaint complaint) {
  scratch->statements.count = 0;
  if (sources.environment != nullptr &&
      (!GatherEnvironment(sources.environment, &scratch->statements, complaint) ||
       !GatherFirstProcess(sources.root, scratch, complaint))) {
    return false;
  }
  return GatherOverrides(sources.root, scratch, complaint) &&
         GatherConfigFile(sources.root, scratch, complaint);
}

const Statement* StatementOf(const Statements& statements, Dialect dialect, Setting setting) {
  for (size_t i = 0; i < statements.count; ++i) {
    const Statement& statement = statements.all[i];
    if (statement.option->dialect == dialect && statement.option->setting == setting &&
        statement.target == ClaimTarget::kEvery && !statement.text.empty()) {
      return &statement;
    }
  }
  return nullptr;
}

std::string_view TextOf(const Statements& statements, Dialect dialect, Setting setting) {
  const Statement* statement = StatementOf(statements, dialect, setting);
  return statement != nullptr ? statement->text : std::string_view();
}

void DescribeStatement(const Statements& statements, const Statement& statement,
                       char source[kSourceBytes]) {
  char name[kQuoteBytes];
  char text[kQuoteBytes];
  Quote(statement.name, name);
  Quote(statement.text, text);
  switch (statement.origin) {
    case Origin::kEnvironment:
      snprintf(source, kSourceBytes, "%s=%s", name, text);
      break;
    case Origin::kFirstProcess:
      snprintf(source, kSourceBytes, "%s=%s of process 1", name, text);
      break;
    case Origin::kOverride:
      snprintf(source, kSourceBytes, "%s=%s in %s", name, text, kOverridePath);
      break;
    case Origin::kConfigFile:
      snprintf(source, kSourceBytes, "%s = %s in %.120s", name, text, statements.config_path);
      break;
  }
}

}  // namespace gpufence
