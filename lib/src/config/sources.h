// Where limits are written: every known name with its text, gathered from the environment, the
// first process's environment, HAMi's /overrideEnv and our config file; and a small file read
// without surprises. Knows where names stand, not what they mean.
//
// Texts are views into the environment and into Scratch: read them, never keep them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

#include "config/limits.h"
#include "config/options.h"

namespace gpufence {

inline constexpr size_t kSmallFileBytes = size_t{64} << 10;

enum class Origin : uint8_t { kEnvironment, kFirstProcess, kOverride, kConfigFile };

struct Statement {
  const Option* option;
  std::string_view name;  // as it was written
  std::string_view text;
  Origin origin;
  bool is_operators;   // from a file that this process's user could not have written
  ClaimTarget target;  // kEvery, kOrdinal for any kind of index, kUuid
  uint32_t index;
  uint8_t uuid[16];
};

struct Statements {
  static constexpr size_t kMost = 1024;
  size_t count;
  Statement all[kMost];
  char config_path[256];
};

// Where everything is read. A test gives a folder as root and an environment of its own.
struct Sources {
  const char* root;    // put before every path; "" outside tests
  char** environment;  // null: a privileged process, whose variables are not ours to trust
  bool asks;           // whether a hypervisor that the sources name is asked
};

// Room for what is read from files. Large: mapped memory, never the stack.
struct Scratch {
  char first_process[size_t{1} << 20];
  char override_file[kSmallFileBytes];
  char config_file[kSmallFileBytes];
  char yaml_file[kSmallFileBytes];
  char workspace_file[kSmallFileBytes];
  char vgpu_rs_file[kSmallFileBytes];
  char token_file[size_t{16} << 10];
  char request[size_t{20} << 10];
  char answer[kSmallFileBytes];
  char record_file[2][8192 + 1];  // vgpu.config has 8192 bytes
  Statements statements;
};

// One line that says why the sources cannot be read.
struct Complaint {
  char* text;
  size_t bytes;

  // Always false, so that `return complaint.Say(...)` reads well.
  bool Say(const char* format, ...) __attribute__((format(printf, 2, 3)));
};

// Fills scratch->statements. False: `complaint` says why.
bool Gather(const Sources& sources, Scratch* scratch, Complaint complaint);

// The statement of a setting without a key; null when it is not set.
const Statement* StatementOf(const Statements& statements, Dialect dialect, Setting setting);

// Its text; empty when it is not set.
std::string_view TextOf(const Statements& statements, Dialect dialect, Setting setting);

// How a statement is named in messages: "GPUFENCE_MEMORY_LIMIT=4g".
void DescribeStatement(const Statements& statements, const Statement& statement,
                       char source[kSourceBytes]);

// Reading a whole small file: no blocking on a pipe, no allocation, a bound.
enum class FileResult { kRead, kMissing, kNoDescriptor, kUnreadable, kTooLarge };

// Reads root + path into `buffer`. kMissing: nothing is there. kNoDescriptor: nobody could look,
// since the process or the machine has as many files open as it may. kUnreadable: something is, but
// it cannot be opened, is no regular file, or fails to be read. kTooLarge: `bytes` were not enough;
// the buffer is filled then.
//
// `is_operators`: this process's user could not have written what was read. The file lies on a
// read-only mount; or nobody but its owner may write to it, who is root or another user.
FileResult ReadWholeFile(const char* root, const char* path, char* buffer, size_t bytes,
                         std::string_view* content, bool* is_operators);

}  // namespace gpufence
