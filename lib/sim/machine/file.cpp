// See file.h.
#include "machine/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sim::machine {
namespace {

// Locks live far behind the file's end, where no data can ever be.
constexpr off_t kGateByte = off_t{1} << 40;
constexpr off_t kSlotBytes = kGateByte + 1;

// Keeps this process's threads apart; the gate keeps processes apart.
constinit pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit std::atomic<MachineFile*> g_file{nullptr};
constinit int g_fd = -1;
constinit std::atomic<int> g_own_slot{kNoSlot};  // changed under the gate only
constinit pid_t g_pid = 0;
constinit bool g_complained = false;
constinit bool g_fork_handled = false;
constinit char g_path[kMaxPathBytes + 16] = {};

bool Fail(const char* step) {
  if (!g_complained) {
    char why[96];
    snprintf(why, sizeof(why), "cannot %s the machine file: %s (name another in this variable)",
             step, strerror(errno));
    Complain("GPUFENCE_SIM_STATE", g_path, why);
    g_complained = true;
  }
  return false;
}

// FNV-1a over what makes two machines different; processes that disagree use different files.
uint32_t MachineKey(const Config& config) {
  const uint64_t facts[] = {kLayout,
                            sizeof(MachineFile),
                            static_cast<uint64_t>(config.gpu_count),
                            static_cast<uint64_t>(config.sm_count),
                            static_cast<uint64_t>(config.mig_instances),
                            config.speed_permille,
                            config.slice_ns,
                            config.switch_ns,
                            static_cast<uint64_t>(config.is_mps),
                            config.memory_bytes};
  uint32_t hash = 2166136261u;
  for (const uint64_t fact : facts) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ static_cast<uint32_t>(fact >> shift & 255)) * 16777619u;
    }
  }
  return hash;
}

// Blocks until granted, at the given byte of a descriptor.
bool LockByte(int fd, int operation, short type, off_t byte) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  int rc;
  do {
    rc = fcntl(fd, operation, &lock);
  } while (rc != 0 && errno == EINTR);
  return rc == 0;
}

bool IsStillAtPath(int fd) {
  struct stat opened;
  struct stat named;
  return fstat(fd, &opened) == 0 && stat(g_path, &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

uint64_t Scramble(uint64_t value) {  // splitmix64: neighbours get unrelated identities
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

int DevicesPerBoard(const Config& config) {
  return config.mig_instances > 0 ? config.mig_instances : 1;
}

void MakeUuid(int number, uint8_t uuid[16]) {
  for (size_t half = 0; half < 2; ++half) {
    const uint64_t bits = Scramble(static_cast<uint64_t>(number) * 2 + half);
    memcpy(uuid + 8 * half, &bits, sizeof(bits));
  }
}

void LayOutDevice(int index, const Config& config, DeviceRecord* device) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const int parts = DevicesPerBoard(config);
  const int board = index / parts;
  MakeUuid(board, device->board_uuid);
  MakeUuid(config.mig_instances > 0 ? kMaxDevices + index : board, device->uuid);
  device->pci_domain = 0;
  device->pci_bus = 8u + 8u * static_cast<uint32_t>(board);
  device->pci_device = 0;
  device->sm_count =
      static_cast<uint32_t>(config.sm_count / parts > 0 ? config.sm_count / parts : 1);
  device->memory_bytes = config.memory_bytes / kMiB / static_cast<uint64_t>(parts) * kMiB;
  LayOutTurns(&device->compute, config.slice_ns, config.switch_ns);
  LayOutSms(&device->sms, device->sm_count, config.is_mps != 0);
}

// Fills a file of zeros.  Everything but the magic, which says that the rest is there.
void LayOut(const Config& config, MachineFile* file) {
  file->layout = kLayout;
  file->device_count = static_cast<uint32_t>(config.gpu_count * DevicesPerBoard(config));
  // By its number: glibc before 2.25 has no function for it.
  if (syscall(SYS_getrandom, &file->machine_id, sizeof(file->machine_id), GRND_NONBLOCK) < 0) {
    file->machine_id = MonotonicNs();
  }
  file->clock.is_virtual = config.speed_permille == 0 ? 1 : 0;
  file->clock.speed_permille = config.speed_permille == 0 ? 1000 : config.speed_permille;
  for (int index = 0; index < config.gpu_count * DevicesPerBoard(config); ++index) {
    LayOutDevice(index, config, &file->devices[index]);
  }
  file->magic.store(kMagic, std::memory_order_release);
}

bool IsWhole(const MachineFile& file, const Config& config) {
  return file.magic.load(std::memory_order_acquire) == kMagic && file.layout == kLayout &&
         file.device_count == static_cast<uint32_t>(config.gpu_count * DevicesPerBoard(config));
}

// Maps the file through a descriptor of its own.  A mapping keeps the description it was made from
// open, also in a forked child: made from the one that holds the locks, it would keep them held.
void* MapAgain() {
  const int fd = open(g_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return MAP_FAILED;
  void* map = mmap(nullptr, sizeof(MachineFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return map;
}

enum class Opened { kReady, kReplaced, kFailed };

// Maps an open file whose gate is held, laying it out if it is new.  kReplaced: it was foreign or
// damaged, is unlinked now, and the caller starts again.
Opened MapLocked(int fd, const Config& config, MachineFile** file) {
  struct stat status;
  if (fstat(fd, &status) != 0) return Fail("examine"), Opened::kFailed;
  const bool fresh = status.st_size == 0;
  const auto whole_bytes = static_cast<off_t>(sizeof(MachineFile));
  if (!IsStillAtPath(fd)) return Opened::kReplaced;
  if (fresh && ftruncate(fd, whole_bytes) != 0) return Fail("size"), Opened::kFailed;
  if (!fresh && status.st_size != whole_bytes) return unlink(g_path), Opened::kReplaced;
  void* map = MapAgain();
  if (map == MAP_FAILED) return Fail("map"), Opened::kFailed;
  *file = static_cast<MachineFile*>(map);
  // A zero magic in a sized file: its maker was killed between sizing and the last line of LayOut.
  if ((*file)->magic.load(std::memory_order_acquire) == 0) LayOut(config, *file);
  if (IsWhole(**file, config)) return Opened::kReady;
  munmap(map, sizeof(MachineFile));
  unlink(g_path);
  return Opened::kReplaced;
}

// Opens the machine file by name, with its gate held.
bool OpenByName(const Config& config, int* fd, MachineFile** file) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    *fd = open(g_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0) return Fail("open");
    if (!LockByte(*fd, F_OFD_SETLKW, F_WRLCK, kGateByte)) {
      close(*fd);
      return Fail("lock");
    }
    const Opened opened = MapLocked(*fd, config, file);
    if (opened == Opened::kReady) return true;
    close(*fd);
    if (opened == Opened::kFailed) return false;
  }
  errno = EAGAIN;
  return Fail("settle on");
}

void ForgetInChild() {
  pthread_mutex_init(&g_mutex, nullptr);
  // The descriptor shares the parent's locks: kept open, it would keep a dead parent's slot alive.
  if (g_fd >= 0) close(g_fd);
  g_fd = -1;
  SetOwnSlot(kNoSlot);
  g_pid = getpid();
}

// Carries this process's part over from a file that was deleted under it.
void CarryOver(const MachineFile& old_file, int old_slot, MachineFile* file) {
  const int slot = ClaimIn(file);
  SetOwnSlot(slot);
  if (slot == kNoSlot) return;
  for (uint32_t index = 0; index < file->device_count; ++index) {
    const SlotDevice& from = old_file.slots[old_slot].devices[index];
    SlotDevice& to = file->slots[slot].devices[index];
    to.used_bytes.store(from.used_bytes.load(std::memory_order_relaxed));
    to.busy_ns.store(from.busy_ns.load(std::memory_order_relaxed));
    to.contexts.store(from.contexts.load(std::memory_order_relaxed));
  }
}

// (Re)opens the file if this process has no descriptor or the name leads elsewhere by now, and
// enters its gate.  The old mapping stays: other threads may still read it.
bool EnterLocked(const Config& config) {
  if (g_fd >= 0 && LockByte(g_fd, F_OFD_SETLKW, F_WRLCK, kGateByte)) {
    if (IsStillAtPath(g_fd)) return true;
    LockByte(g_fd, F_OFD_SETLK, F_UNLCK, kGateByte);
  }
  int fd = -1;
  MachineFile* file = nullptr;
  if (!OpenByName(config, &fd, &file)) return false;
  const MachineFile* old_file = g_file.load(std::memory_order_relaxed);
  const int old_slot = CachedOwnSlot();
  if (g_fd >= 0) close(g_fd);
  g_fd = fd;
  SetOwnSlot(kNoSlot);
  g_file.store(file, std::memory_order_release);
  if (old_file != nullptr && old_slot != kNoSlot) CarryOver(*old_file, old_slot, file);
  return true;
}

// Under g_mutex.  False when there is no machine.
bool EnterGate() {
  const Config* config = GetConfig();
  if (config == nullptr) return false;
  if (g_path[0] == '\0') {
    snprintf(g_path, sizeof(g_path), "%s.%08x", config->state, MachineKey(*config));
  }
  if (!g_fork_handled) g_fork_handled = pthread_atfork(nullptr, nullptr, ForgetInChild) == 0;
  return EnterLocked(*config);
}

}  // namespace

Gate::Gate() : file_(nullptr) {
  // A child of a bare clone() ran no fork handler; it must not take its parent's slot for its own.
  if (g_pid != getpid()) {
    if (g_pid != 0) ForgetInChild();
    g_pid = getpid();
  }
  pthread_mutex_lock(&g_mutex);
  if (EnterGate()) file_ = g_file.load(std::memory_order_relaxed);
}

Gate::~Gate() {
  if (file_ != nullptr) LockByte(g_fd, F_OFD_SETLK, F_UNLCK, kGateByte);
  pthread_mutex_unlock(&g_mutex);
}

MachineFile* Map() {
  MachineFile* file = g_file.load(std::memory_order_acquire);
  if (file != nullptr) return file;
  return Gate().file();
}

const char* MachinePath() { return g_path; }

bool TryLockSlot(int slot) { return LockByte(g_fd, F_OFD_SETLK, F_WRLCK, kSlotBytes + slot); }

void UnlockSlot(int slot) { LockByte(g_fd, F_OFD_SETLK, F_UNLCK, kSlotBytes + slot); }

bool IsSlotLocked(int slot) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kSlotBytes + slot;
  lock.l_len = 1;
  return fcntl(g_fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

int CachedOwnSlot() { return g_own_slot.load(std::memory_order_relaxed); }

void SetOwnSlot(int slot) { g_own_slot.store(slot, std::memory_order_relaxed); }

}  // namespace sim::machine
