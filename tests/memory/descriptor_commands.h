// What commands do with descriptors that the driver gave out; knows no driver.
#pragma once

#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <string>

// Duplicates another process's descriptor, of the same open file.
inline int64_t FetchDescriptor(uint64_t process, uint64_t fd) {
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  const int64_t fetched = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
  close(pidfd);
  return fetched;
}

// A child that keeps all it inherited but the streams that others wait for.
inline int64_t MakeChild() {
  const pid_t child = fork();
  if (child != 0) return child;
  close(STDIN_FILENO);
  close(STDOUT_FILENO);
  pause();
  _exit(0);
}

inline int64_t EndChild(uint64_t child) {
  kill(static_cast<pid_t>(child), SIGKILL);
  return waitpid(static_cast<pid_t>(child), nullptr, 0);
}

// No descriptor at or above `end` from now on.
inline int64_t AllowDescriptors(uint64_t end) {
  rlimit most = {};
  getrlimit(RLIMIT_NOFILE, &most);
  most.rlim_cur = end;
  return setrlimit(RLIMIT_NOFILE, &most);
}

inline int64_t CloseFrom(uint64_t first) {
  for (auto fd = static_cast<int>(first); fd < 1024; ++fd) close(fd);
  return 0;
}

// False: none of these commands. `*result`: a number, or UINT64_MAX when it failed.
inline bool Descriptors(const std::string& what, std::istringstream& words, uint64_t* result) {
  const auto next = [&words] {
    uint64_t number = 0;
    words >> number;
    return number;
  };
  int64_t done = -1;
  if (what == "fetch") {
    const uint64_t process = next();
    done = FetchDescriptor(process, next());
  } else if (what == "child") {
    done = MakeChild();
  } else if (what == "reap") {
    done = EndChild(next());
  } else if (what == "few") {
    done = AllowDescriptors(next());
  } else if (what == "close") {
    done = close(static_cast<int>(next()));
  } else if (what == "close_from") {
    done = CloseFrom(next());
  } else {
    return false;
  }
  *result = static_cast<uint64_t>(done);
  return true;
}
