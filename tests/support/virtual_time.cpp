// Virtual time for whole programs, preloaded: clocks, sleeps and futexes of all processes of a
// world run on one simulated clock, one thread at a time, so that a run is the same every time and
// as fast as it can be computed.
// flags: -shared -fPIC -fno-threadsafe-statics
//
//   GPUFENCE_TEST_WORLD=FILE     what the processes of a world share; an empty file at first, whose
//                                folder is what they open for "/"
//   GPUFENCE_TEST_WORLD_SIZE=N   it begins when so many are there
//   GPUFENCE_TEST_WORLD_PLACE=I  which of them this is, from 0; ties go to the lower one
//   GPUFENCE_TEST_WAKE_NS=N      from the end of a wait to running: kWakeNs, or no more than the
//                                thread's slack, if it is not set. Sleeps, which stand for what a
//                                program's host does, end in time
//
// A process that kills itself leaves the world as it is; one that stops itself goes on after
// kStopNs.
//
// Each thread has its own clock, as if on a processor of its own, and the one that is furthest
// behind runs. Reading a clock costs a little, so that nobody spins for ever. A thread is switched
// only in the calls below; whoever finds a lock taken tries again later. No fork, no other blocking
// call. Must not know what the programs do.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace {

constexpr uint64_t kBeginNs = 1'000'000'000'000;
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kNever = UINT64_MAX;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kShared = uint64_t{1} << 63;
constexpr uint64_t kReadNs = 25;  // reading a clock
constexpr uint64_t kTryNs = 200;  // until a lock is tried again
constexpr uint64_t kYieldNs = 1'000;
constexpr uint64_t kWakeNs = 5'000;    // from a wake-up to running, if nothing else is said
constexpr uint64_t kStartNs = 20'000;  // of a thread
constexpr uint64_t kStopNs = 3 * kSecondNs;
constexpr uint64_t kSlackNs = 50'000;  // a timer is so late, unless the thread asked for another
constexpr uint32_t kProcesses = 16;
constexpr uint32_t kThreads = 8;  // of a process
constexpr uint32_t kSeats = kProcesses * kThreads;

// A thread. Only the one that runs reads or writes any of it, except for `runs`.
struct Seat {
  std::atomic<uint32_t> runs;
  uint32_t is_taken;
  uint64_t at_ns;     // its clock, or when it goes on
  uint64_t waits_on;  // the futex; 0: none, or woken
  uint32_t bits;      // which wakes it is for
  // Since then it reads its clock over and over, until a wake or until `at_ns`; 0: it does not.
  uint64_t spins_from_ns;
};

struct World {
  std::atomic<uint32_t> arrived;
  std::atomic<int> processor;  // where all of it runs, counted from 1
  Seat seats[kSeats];
};

World* world = nullptr;
uint32_t place = 0;
uint64_t wake_ns = kWakeNs;
uint64_t late_ns = 0;  // beside its slack, where waking takes longer
// Whoever locks the root waits for those of its own world, never for what is run beside it: a real
// holder does not let go for all the virtual time that passes.
char root[PATH_MAX] = "/";
thread_local Seat* mine [[gnu::tls_model("initial-exec")]] = nullptr;
thread_local uint64_t slack_ns [[gnu::tls_model("initial-exec")]] = kSlackNs;
// Until then nobody else goes on, as far as the one who runs has looked: most readings of a clock
// need not look at all seats.
thread_local uint64_t others_from_ns [[gnu::tls_model("initial-exec")]] = 0;

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

long RealSyscall(long number, long a, long b, long c, long d, long e, long f) {
  static auto* real = Real<long(long, ...)>("syscall");
  return real(number, a, b, c, d, e, f);
}

void Await(Seat* seat) {
  while (seat->runs.load(std::memory_order_acquire) == 0) {
    RealSyscall(SYS_futex, reinterpret_cast<long>(&seat->runs), FUTEX_WAIT, 0, 0, 0, 0);
  }
}

Seat* FurthestBehind() {
  Seat* found = nullptr;
  for (Seat& seat : world->seats) {
    if (seat.is_taken != 0 && (found == nullptr || seat.at_ns < found->at_ns)) found = &seat;
  }
  if (found == nullptr || found->at_ns != kNever) return found;
  fprintf(stderr, "virtual time: everybody waits for ever\n");
  _exit(99);
}

void Resume(Seat* seat) {
  seat->runs.store(1, std::memory_order_release);
  RealSyscall(SYS_futex, reinterpret_cast<long>(&seat->runs), FUTEX_WAKE, 1, 0, 0, 0);
}

uint64_t OthersFromNs() {
  uint64_t from_ns = kNever;
  for (const Seat& seat : world->seats) {
    if (seat.is_taken != 0 && &seat != mine) from_ns = std::min(from_ns, seat.at_ns);
  }
  return from_ns;
}

// Lets whoever is furthest behind run, which may be the caller.
void Switch() {
  Seat* next = FurthestBehind();
  if (next == mine) {
    others_from_ns = OthersFromNs();
    return;
  }
  others_from_ns = 0;
  mine->runs.store(0, std::memory_order_relaxed);
  Resume(next);
  Await(mine);
}

void Spend(uint64_t ns) {
  mine->at_ns += ns;
  if (mine->at_ns >= others_from_ns) Switch();
}

// Another thread goes on then.
void GoesOnAt(Seat* seat, uint64_t at_ns) {
  seat->at_ns = at_ns;
  others_from_ns = std::min(others_from_ns, at_ns);
}

uint64_t Nanoseconds(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * kSecondNs + static_cast<uint64_t>(time.tv_nsec);
}

// A word that processes share has another address in each, but the same place in a page. Words that
// have that in common wake each other too early, as any futex may.
uint64_t KeyOf(const void* word, int operation) {
  const auto address = reinterpret_cast<uint64_t>(word);
  if ((operation & FUTEX_PRIVATE_FLAG) == 0) return kShared | (address & (kPageBytes - 1));
  return address ^ uint64_t{place + 1} << 48;
}

// As the kernel reads it: another thread may have unmapped it meanwhile.
bool ReadWord(const uint32_t* word, uint32_t* value) {
  const iovec to = {value, sizeof *value};
  const iovec from = {const_cast<uint32_t*>(word), sizeof *value};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof *value;
}

long FutexWait(const uint32_t* word, uint32_t seen, uint64_t until_ns, uint64_t key,
               uint32_t bits) {
  uint32_t value = 0;
  if (!ReadWord(word, &value)) return errno = EFAULT, -1;
  if (value != seen) return errno = EAGAIN, -1;
  mine->waits_on = key;
  mine->bits = bits;
  mine->at_ns = until_ns == kNever ? kNever : std::max(until_ns, mine->at_ns) + slack_ns + late_ns;
  Switch();
  const bool woken = mine->waits_on == 0;
  mine->waits_on = 0;
  return woken ? 0 : (errno = ETIMEDOUT, -1);
}

// When a thread that spins reads its clock next, behind the one who runs.
uint64_t NextReadingNs(const Seat& seat) {
  const uint64_t since_ns = mine->at_ns - std::min(mine->at_ns, seat.spins_from_ns);
  const uint64_t readings = std::max<uint64_t>((since_ns + kReadNs - 1) / kReadNs, 1);
  const uint64_t reads_ns = seat.spins_from_ns + readings * kReadNs;
  const bool was_first = reads_ns == mine->at_ns && &seat < mine;
  return was_first ? reads_ns + kReadNs : reads_ns;
}

long FutexWake(long most, uint64_t key, uint32_t bits) {
  long count = 0;
  for (Seat& seat : world->seats) {
    if (count == most || seat.is_taken == 0 || seat.waits_on != key) continue;
    if ((seat.bits & bits) == 0) continue;
    seat.waits_on = 0;
    const bool spins = seat.spins_from_ns != 0;
    GoesOnAt(&seat, spins ? std::min(NextReadingNs(seat), seat.at_ns) : mine->at_ns + wake_ns);
    ++count;
  }
  return count;
}

long Futex(const uint32_t* word, int operation, long value, const timespec* time, uint32_t bits) {
  const uint64_t given_ns = time == nullptr ? kNever : Nanoseconds(*time);
  const uint64_t key = KeyOf(word, operation);
  const auto seen = static_cast<uint32_t>(value);
  switch (operation & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
      return FutexWait(word, seen, time == nullptr ? kNever : mine->at_ns + given_ns, key,
                       FUTEX_BITSET_MATCH_ANY);
    case FUTEX_WAIT_BITSET:
      return FutexWait(word, seen, given_ns, key, bits);
    case FUTEX_WAKE:
      return FutexWake(value, key, FUTEX_BITSET_MATCH_ANY);
    case FUTEX_WAKE_BITSET:
      return FutexWake(value, key, bits);
    default:
      fprintf(stderr, "virtual time: futex operation %d\n", operation);
      _exit(99);
  }
}

struct Start {
  void* (*function)(void*);
  void* argument;
  Seat* seat;
};

void* RunThread(void* given) {
  const Start start = *static_cast<Start*>(given);
  delete static_cast<Start*>(given);
  mine = start.seat;
  Await(mine);
  void* result = start.function(start.argument);
  mine->is_taken = 0;
  Seat* next = FurthestBehind();
  if (next != nullptr) Resume(next);
  mine = nullptr;
  return result;
}

int LockFile(int fd, struct flock* lock) {
  static auto* real = Real<int(int, int, ...)>("fcntl");
  for (;;) {
    if (real(fd, F_OFD_SETLK, lock) == 0) return 0;
    if (errno != EAGAIN && errno != EACCES) return -1;
    Spend(kTryNs);
  }
}

int Sleep(uint64_t ns) {
  Spend(ns + slack_ns);
  return 0;
}

// Only one thread runs at a time, and the next one starts sooner where the last one ran: on two
// processors a run of many turns takes up to four times as long. Where it cannot be had nothing is
// lost.
void StayTogether() {
  int chosen = 0;
  const int here = sched_getcpu() + 1;
  if (here == 0) return;
  if (world->processor.compare_exchange_strong(chosen, here)) chosen = here;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(chosen - 1, &set);
  sched_setaffinity(0, sizeof set, &set);
}

[[gnu::constructor]] void Enter() {
  const char* file = getenv("GPUFENCE_TEST_WORLD");
  const char* size = getenv("GPUFENCE_TEST_WORLD_SIZE");
  const char* own = getenv("GPUFENCE_TEST_WORLD_PLACE");
  const char* wake = getenv("GPUFENCE_TEST_WAKE_NS");
  if (wake != nullptr) late_ns = wake_ns = strtoull(wake, nullptr, 10);
  const int fd = file != nullptr ? open(file, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0 || size == nullptr || own == nullptr) return;
  if (ftruncate(fd, sizeof(World)) != 0) _exit(99);
  void* memory = mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  place = static_cast<uint32_t>(atoi(own));
  if (memory == MAP_FAILED || place >= kProcesses) _exit(99);
  world = static_cast<World*>(memory);
  snprintf(root, sizeof root, "%.*s", static_cast<int>(strrchr(file, '/') - file), file);
  StayTogether();
  Seat* seat = &world->seats[place * kThreads];
  seat->at_ns = kBeginNs;
  seat->is_taken = 1;
  if (world->arrived.fetch_add(1) + 1 == static_cast<uint32_t>(atoi(size))) {
    Resume(FurthestBehind());
  }
  Await(seat);
  mine = seat;
}

// None of its threads runs meanwhile. What others would wake, turns, is not awaited by who stops.
void Stop() {
  for (uint32_t i = 0; i < kThreads; ++i) {
    Seat& seat = world->seats[place * kThreads + i];
    if (seat.is_taken != 0 && seat.at_ns != kNever) {
      seat.at_ns = std::max(seat.at_ns, mine->at_ns + kStopNs);
      if (seat.spins_from_ns != 0) seat.waits_on = 0;
    }
  }
  Switch();
}

// The process's other threads stay where they are until it is gone.
[[gnu::destructor]] void Leave() {
  if (mine == nullptr) return;
  mine = nullptr;
  for (uint32_t i = 0; i < kThreads; ++i) world->seats[place * kThreads + i].is_taken = 0;
  Seat* next = FurthestBehind();
  if (next != nullptr) Resume(next);
}

}  // namespace

extern "C" {

// Two ways of the simulator to read the clock over and over, and what they take. A thread that did
// so beside another one would take turns with it at each reading: most of what a world costs.
[[gnu::visibility("default")]] void gpufence_sim_be_busy(uint64_t ns) {
  if (mine == nullptr) return;
  const uint64_t until_ns = mine->at_ns + kReadNs + ns;
  uint64_t now_ns = mine->at_ns + 2 * kReadNs;
  while (now_ns < until_ns) now_ns += kReadNs + (until_ns - now_ns > kYieldNs ? kYieldNs : 0);
  Spend(now_ns - mine->at_ns);
}

[[gnu::visibility("default")]] void gpufence_sim_spin(const std::atomic<uint32_t>* word,
                                                      uint32_t seen, uint64_t until_ns) {
  if (mine == nullptr) return;
  Spend(kReadNs);
  while (mine->at_ns < until_ns && word->load(std::memory_order_acquire) == seen) {
    mine->waits_on = KeyOf(word, FUTEX_WAKE);
    mine->bits = FUTEX_BITSET_MATCH_ANY;
    mine->spins_from_ns = mine->at_ns;
    mine->at_ns += (until_ns - mine->at_ns + kReadNs - 1) / kReadNs * kReadNs;
    Switch();
    mine->waits_on = mine->spins_from_ns = 0;
  }
}

[[gnu::visibility("default")]] int clock_gettime(clockid_t, timespec* time) {
  uint64_t now_ns = kBeginNs;
  if (mine != nullptr) {
    Spend(kReadNs);
    now_ns = mine->at_ns;
  }
  *time = {static_cast<time_t>(now_ns / kSecondNs), static_cast<long>(now_ns % kSecondNs)};
  return 0;
}

[[gnu::visibility("default")]] long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && mine != nullptr) {
    return Futex(reinterpret_cast<const uint32_t*>(arguments[0]), static_cast<int>(arguments[1]),
                 arguments[2], reinterpret_cast<const timespec*>(arguments[3]),
                 static_cast<uint32_t>(arguments[5]));
  }
  return RealSyscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                     arguments[5]);
}

[[gnu::visibility("default")]] int nanosleep(const timespec* time, timespec*) {
  return mine != nullptr ? Sleep(Nanoseconds(*time)) : 0;
}

[[gnu::visibility("default")]] int usleep(useconds_t us) {
  return mine != nullptr ? Sleep(uint64_t{us} * 1'000) : 0;
}

[[gnu::visibility("default")]] int kill(pid_t process, int number) {
  static auto* real = Real<int(pid_t, int)>("kill");
  const bool is_own = mine != nullptr && process == getpid();
  if (is_own && number == SIGSTOP) return Stop(), 0;
  if (is_own && number == SIGKILL) Leave();
  return real(process, number);
}

[[gnu::visibility("default")]] int sched_yield() {
  if (mine != nullptr) Spend(kYieldNs);
  return 0;
}

[[gnu::visibility("default")]] int prctl(int option, ...) {
  static auto* real = Real<int(int, ...)>("prctl");
  va_list list;
  va_start(list, option);
  long arguments[4];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (option == PR_SET_TIMERSLACK) slack_ns = static_cast<uint64_t>(arguments[0]);
  return real(option, arguments[0], arguments[1], arguments[2], arguments[3]);
}

[[gnu::visibility("default")]] int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static auto* real = Real<int(pthread_mutex_t*)>("pthread_mutex_lock");
  if (mine == nullptr) return real(mutex);
  for (;;) {
    const int code = pthread_mutex_trylock(mutex);
    if (code != EBUSY) return code;
    Spend(kTryNs);
  }
}

[[gnu::visibility("default")]] int pthread_create(pthread_t* thread, const pthread_attr_t* how,
                                                  void* (*function)(void*), void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static auto* real = Real<Create>("pthread_create");
  if (mine == nullptr) return real(thread, how, function, argument);
  for (uint32_t i = 0; i < kThreads; ++i) {
    Seat* seat = &world->seats[place * kThreads + i];
    if (seat->is_taken != 0) continue;
    seat->runs.store(0);
    seat->waits_on = 0;
    GoesOnAt(seat, mine->at_ns + kStartNs);
    seat->is_taken = 1;
    return real(thread, how, RunThread, new Start{function, argument, seat});
  }
  return EAGAIN;
}

[[gnu::visibility("default")]] int open(const char* path, int flags, ...) {
  static auto* real = Real<int(const char*, int, ...)>("open");
  va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, unsigned);
  va_end(list);
  return real(strcmp(path, "/") == 0 ? root : path, flags, mode);
}

[[gnu::visibility("default")]] int open64(const char* path, int flags, ...)
    __attribute__((alias("open")));

[[gnu::visibility("default")]] int fcntl(int fd, int operation, ...) {
  static auto* real = Real<int(int, int, ...)>("fcntl");
  va_list list;
  va_start(list, operation);
  void* argument = va_arg(list, void*);
  va_end(list);
  if (mine != nullptr && operation == F_OFD_SETLKW) {
    return LockFile(fd, static_cast<struct flock*>(argument));
  }
  return real(fd, operation, argument);
}

[[gnu::visibility("default")]] int fcntl64(int fd, int operation, ...)
    __attribute__((alias("fcntl")));

}  // extern "C"
