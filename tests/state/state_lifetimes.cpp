// link: state
// Containers that end and begin again in the same place, and what each of them is called.
//
//   state_lifetimes own_pids COUNT     each has pids, mounts and a /dev of its own
//   state_lifetimes host_pids COUNT    the same with the machine's pids
//   state_lifetimes older COUNT        as the first, named as a kernel before 6.0 allows
//   state_lifetimes parts              each part of a lifetime alone makes another name
//
// Prints JSON: how many there were, and how many different names and numbers. Status 77: this
// machine does not allow it.
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <time.h>

#include <set>
#include <string>

#include "state/identity.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr int kNotAllowed = 77;

struct Answer {
  Lifetime lifetime;
  char name[kContainerNameBytes];
};

bool Mount(const char* kind, const char* place) {
  return mount(kind, place, kind, 0, nullptr) == 0;
}

// What runs as the container's first process.
int Live(int to, bool own_pids) {
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNotAllowed;
  if (own_pids && !Mount("proc", "/proc")) return kNotAllowed;
  if (!Mount("tmpfs", "/dev")) return kNotAllowed;
  Answer answer = {};
  answer.lifetime = OwnLifetime();
  NameContainer("", answer.name);
  return write(to, &answer, sizeof answer) == sizeof answer ? 0 : 1;
}

// Neither ids of namespaces nor births of files in memory.
std::string NameOnOlderKernel(Lifetime lifetime) {
  lifetime.namespace_id = 0;
  lifetime.devices_born_ns = 0;
  char name[kContainerNameBytes];
  NameLifetime(lifetime, name);
  return name;
}

uint64_t NsOf(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

// The kernel tells starts in hundredths of a second; no engine starts two containers in one.
void WaitForNextTick(uint64_t last) {
  constexpr uint64_t kTickNs = 10'000'000;
  timespec now = {};
  do {
    clock_gettime(CLOCK_BOOTTIME, &now);
  } while (NsOf(now) / kTickNs <= last);
}

// File systems tell times in steps of some milliseconds; no engine starts two containers in one.
// Asked of the kernel itself, whose own clock may be a moment behind the one that programs map.
void WaitUntilAfter(uint64_t born_ns) {
  timespec now = {};
  do {
    syscall(SYS_clock_gettime, CLOCK_REALTIME_COARSE, &now);
  } while (NsOf(now) <= born_ns);
}

Answer LiveOnce(bool own_pids) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const unsigned long kinds = CLONE_NEWNS | (own_pids ? CLONE_NEWPID : 0);
  const auto child = static_cast<pid_t>(syscall(SYS_clone, kinds | SIGCHLD, 0, 0, 0, 0));
  if (child < 0) _exit(kNotAllowed);
  if (child == 0) _exit(Live(ends[1], own_pids));
  close(ends[1]);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotAllowed) _exit(kNotAllowed);
  Answer answer = {};
  CHECK(read(ends[0], &answer, sizeof answer) == sizeof answer);
  close(ends[0]);
  return answer;
}

void Restart(const std::string& kind, int count) {
  const bool own_pids = kind != "host_pids";
  uint64_t last_start = 0;
  uint64_t last_born_ns = 0;
  std::set<std::string> names;
  std::set<uint64_t> namespaces;
  std::set<uint64_t> roots;
  for (int i = 0; i < count; ++i) {
    if (!own_pids) WaitUntilAfter(last_born_ns);
    if (kind == "older") WaitForNextTick(last_start);
    const Answer answer = LiveOnce(own_pids);
    // Without these numbers starts alone tell them apart, which is what "older" is for.
    if (kind == "own_pids" && answer.lifetime.namespace_id == 0) _exit(kNotAllowed);
    if (kind == "host_pids" && answer.lifetime.devices_born_ns == 0) _exit(kNotAllowed);
    last_start = answer.lifetime.first_start;
    last_born_ns = answer.lifetime.devices_born_ns;
    names.insert(kind == "older" ? NameOnOlderKernel(answer.lifetime) : answer.name);
    namespaces.insert(answer.lifetime.pid_namespace);
    roots.insert(answer.lifetime.root_device ^ answer.lifetime.root_inode << 32);
  }
  printf("{\"containers\": %d, \"names\": %zu, \"namespaces\": %zu, \"roots\": %zu}\n", count,
         names.size(), namespaces.size(), roots.size());
}

void ChangeParts() {
  const Lifetime own = OwnLifetime();
  std::set<std::string> names;
  char name[kContainerNameBytes];
  NameLifetime(own, name);
  names.insert(name);
  constexpr size_t kParts = sizeof own / sizeof(uint64_t);
  constexpr uint64_t kValues = 10'000;
  for (size_t part = 0; part < kParts; ++part) {
    for (uint64_t value = 1; value <= kValues; ++value) {
      Lifetime other = own;
      uint64_t word = 0;
      auto* at = reinterpret_cast<unsigned char*>(&other) + part * sizeof word;
      memcpy(&word, at, sizeof word);
      word += value;
      memcpy(at, &word, sizeof word);
      NameLifetime(other, name);
      names.insert(name);
    }
  }
  printf("{\"containers\": %llu, \"names\": %zu}\n",
         static_cast<unsigned long long>(1 + kParts * kValues), names.size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const int count = argc > 2 ? atoi(argv[2]) : 0;
  if (kind == "parts") {
    ChangeParts();
  } else if (kind == "own_pids" || kind == "host_pids" || kind == "older") {
    Restart(kind, count);
  } else {
    return 2;
  }
  return 0;
}
