// A second process running the same program in another role: for facts that need two processes,
// and for calls that may kill the one that makes them.
// A driver that was initialised does not survive fork, hence always a fresh exec.

#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

extern char** environ;

namespace conformance {

// A running child that talks in lines.  Its stdin and stdout are pipes; its stderr is ours.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments) {
    int to_child[2];
    int from_child[2];
    if (pipe(to_child) != 0 || pipe(from_child) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
    for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) {
      posix_spawn_file_actions_addclose(&actions, fd);
    }
    std::vector<char*> argv{const_cast<char*>("/proc/self/exe")};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.data()));
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ) != 0)
      pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(to_child[0]);
    close(from_child[1]);
    in_ = fdopen(to_child[1], "w");
    out_ = fdopen(from_child[0], "r");
  }
  ~Child() { Wait(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Say(const std::string& line) {
    std::fprintf(in_, "%s\n", line.c_str());
    std::fflush(in_);
  }

  // The child's next line; empty when it has ended.
  std::string Hear() {
    char line[512] = "";
    if (std::fgets(line, sizeof line, out_) == nullptr) return "";
    std::string heard(line);
    while (!heard.empty() && heard.back() == '\n') heard.pop_back();
    return heard;
  }

  void Kill() const {
    if (pid_ > 0) kill(pid_, SIGKILL);
  }

  // How it ended: "exit N" or "signal N".
  std::string Wait() {
    if (in_ != nullptr) std::fclose(in_);
    in_ = nullptr;
    if (pid_ > 0) {
      int status = 0;
      waitpid(pid_, &status, 0);
      ending_ = WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status))
                                  : "signal " + std::to_string(WTERMSIG(status));
      pid_ = -1;
    }
    if (out_ != nullptr) std::fclose(out_);
    out_ = nullptr;
    return ending_;
  }

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  FILE* in_ = nullptr;
  FILE* out_ = nullptr;
  std::string ending_ = "never started";
};

// The one line that a child in this role prints, or how it ended without printing one.
inline std::string Ask(const std::vector<std::string>& arguments) {
  Child child(arguments);
  const std::string answer = child.Hear();
  const std::string ending = child.Wait();
  return answer.empty() ? ending : answer;
}

// In the child: one line from the parent.
inline std::string HearParent() {
  char line[512] = "";
  if (std::fgets(line, sizeof line, stdin) == nullptr) return "";
  std::string heard(line);
  while (!heard.empty() && heard.back() == '\n') heard.pop_back();
  return heard;
}

// In the child: one line to the parent.
inline void Tell(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace conformance
