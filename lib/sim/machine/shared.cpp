// See shared.h.
#include "machine/shared.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>

#include "machine/slots.h"

namespace sim::machine {
namespace {

// Behind all memory. A hold is a lock on the byte of its place, by a description of its own. What
// was given away has another one, kMaxShared behind it.
constexpr off_t kHoldBytes = off_t{1} << 60;

// A descriptor tells its place by where it stands in the file.
constexpr off_t kFirstPosition = 1;

constinit int g_control = -1;

constexpr char kControl[] = "nvidiactl";
constexpr char kDmaBufs[] = "dmabuf";

int OpenBeside(const char* prefix, int flags) {
  const char* machine = MachinePath();
  const char* slash = strrchr(machine, '/');
  const int folder_bytes = slash != nullptr ? static_cast<int>(slash + 1 - machine) : 0;
  char path[kMaxPathBytes + 32];
  snprintf(path, sizeof(path), "%.*s%s-%s", folder_bytes, machine, prefix, machine + folder_bytes);
  return open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
}

int OpenControlFile() { return OpenBeside(kControl, O_CREAT); }

// The files in which anybody may hold something.
class Files {
 public:
  Files() : control_(OpenControlFile()), dma_bufs_(OpenBeside(kDmaBufs, 0)) {}
  ~Files() {
    if (control_ >= 0) close(control_);
    if (dma_bufs_ >= 0) close(dma_bufs_);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  int control() const { return control_; }
  bool IsHeld(int place) const;

 private:
  int control_;
  int dma_bufs_;  // -1: no dma-buf was ever made
};

struct flock HoldOf(int place, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kHoldBytes + place;
  lock.l_len = 1;
  return lock;
}

int OpenHold(int place) {
  const int fd = OpenControlFile();
  if (fd < 0) return -1;
  struct flock lock = HoldOf(place, F_RDLCK);
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0 && lseek(fd, kFirstPosition + place, SEEK_SET) > 0) {
    return fd;
  }
  close(fd);
  return -1;
}

bool Files::IsHeld(int place) const {
  for (const int file : {control_, dma_bufs_}) {
    struct flock lock = HoldOf(place, F_WRLCK);
    if (fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) return true;
  }
  return false;
}

// Where `bytes` fit among the memories there are.
uint64_t FindOffset(const MachineFile& file, uint64_t bytes) {
  uint64_t offset = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (const SharedMemory& other : file.shared) {
      if (other.kind != SharedKind::kMemory || offset + bytes <= other.offset ||
          offset >= other.offset + other.bytes) {
        continue;
      }
      offset = other.offset + other.bytes;
      moved = true;
    }
  }
  return offset;
}

void ClearIfUnheld(const Files& files, int place, SharedMemory* memory) {
  const bool is_owned = memory->kind == SharedKind::kPinned && memory->owner != kNoSlot;
  if (is_owned || files.IsHeld(place)) return;
  if (memory->kind == SharedKind::kMemory) {
    fallocate(files.control(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(memory->offset), static_cast<off_t>(memory->bytes));
  }
  *memory = {};
}

// An importer is listed when the owner and every descriptor are gone, as on an H200.
bool IsListedUnder(int slot, int place, const SharedMemory& memory) {
  if (memory.kind != SharedKind::kMemory) return false;
  if (memory.owner != kNoSlot) return memory.owner == slot;
  return memory.importer == slot && !Files().IsHeld(kMaxShared + place);
}

// The owner's process has given back what it had reserved of it, or is about to.
void Inherit(SharedMemory* memory) {
  memory->owner = kNoSlot;
  memory->bytes += memory->owner_bytes;
  memory->owner_bytes = 0;
}

int FreePlace(const MachineFile& file) {
  for (int place = 0; place < kMaxShared; ++place) {
    if (file.shared[place].kind == SharedKind::kNone) return place;
  }
  return -1;
}

// A place that is free, and a hold of it; -1: none is to be had. Under the gate.
int OpenNew(MachineFile* file, int* place) {
  if (file == nullptr || CachedOwnSlot() == kNoSlot) return -1;
  ClearUnheld(file);
  *place = FreePlace(*file);
  return *place >= 0 ? OpenHold(*place) : -1;
}

void Add(MachineFile* file, int place, const SharedMemory& memory) {
  file->shared[place] = memory;
  if (place >= file->shared_limit) file->shared_limit = place + 1;
}

// The place that a descriptor means; -1: none of that kind. Under the gate.
int PlaceOf(const MachineFile& file, int fd, SharedKind kind) {
  const int control = OpenControlFile();
  struct stat own;
  struct stat foreign;
  const bool same = control >= 0 && fstat(control, &own) == 0 && fstat(fd, &foreign) == 0 &&
                    own.st_dev == foreign.st_dev && own.st_ino == foreign.st_ino;
  if (control >= 0) close(control);
  const off_t at = same ? lseek(fd, 0, SEEK_CUR) - kFirstPosition : -1;
  if (at < 0 || at >= kMaxShared || file.shared[at].kind != kind) return -1;
  return static_cast<int>(at);
}

}  // namespace

void ClearUnheld(MachineFile* file) {
  if (file->shared_limit == 0) return;
  const Files files;
  if (files.control() < 0) return;
  int limit = 0;
  for (int place = 0; place < file->shared_limit; ++place) {
    SharedMemory& memory = file->shared[place];
    if (memory.kind != SharedKind::kNone) ClearIfUnheld(files, place, &memory);
    if (memory.kind != SharedKind::kNone) limit = place + 1;
  }
  file->shared_limit = limit;
}

uint64_t SharedBytes(const MachineFile& file, int device, int slot) {
  uint64_t sum_bytes = 0;
  for (int place = 0; place < file.shared_limit; ++place) {
    const SharedMemory& memory = file.shared[place];
    if (memory.kind == SharedKind::kNone || memory.device != device) continue;
    if (slot == kNoSlot || IsListedUnder(slot, place, memory)) sum_bytes += memory.bytes;
  }
  return sum_bytes;
}

void ForgetOwner(MachineFile* file, int slot) {
  for (int place = 0; place < file->shared_limit; ++place) {
    SharedMemory& memory = file->shared[place];
    if (memory.owner == slot) Inherit(&memory);
    if (memory.importer == slot) memory.importer = kNoSlot;
  }
}

void OpenControl() {
  Gate gate;
  struct stat status;
  if (gate.file() != nullptr && (g_control < 0 || fstat(g_control, &status) != 0)) {
    g_control = OpenControlFile();
  }
}

bool MakeShared(int device, uint64_t bytes, SharedHold* hold) {
  Gate gate;
  MachineFile* file = gate.file();
  int place = -1;
  const int fd = OpenNew(file, &place);
  if (fd < 0) return false;
  const uint64_t offset = FindOffset(*file, bytes);
  const auto end = static_cast<off_t>(offset + bytes);
  struct stat status;
  if (fstat(fd, &status) != 0 || (status.st_size < end && ftruncate(fd, end) != 0)) {
    close(fd);
    return false;
  }
  Add(file, place,
      {.bytes = bytes,
       .owner_bytes = 0,
       .offset = offset,
       .device = device,
       .owner = CachedOwnSlot(),
       .importer = kNoSlot,
       .kind = SharedKind::kMemory});
  if (device >= 0) {
    file->slots[CachedOwnSlot()].devices[device].used_bytes.fetch_sub(bytes,
                                                                      std::memory_order_relaxed);
  }
  *hold = {fd, place, device, bytes, offset};
  return true;
}

bool HoldAgain(const SharedHold& held, int* fd) {
  *fd = OpenHold(held.place);
  struct flock lock = HoldOf(kMaxShared + held.place, F_RDLCK);
  return *fd >= 0 && fcntl(*fd, F_OFD_SETLK, &lock) == 0;
}

bool HoldForeign(int given, SharedHold* hold) {
  Gate gate;
  if (gate.file() == nullptr) return false;
  const int place = PlaceOf(*gate.file(), given, SharedKind::kMemory);
  const int fd = place >= 0 ? OpenHold(place) : -1;
  if (fd < 0) return false;
  SharedMemory& memory = gate.file()->shared[place];
  memory.importer = CachedOwnSlot();
  *hold = {fd, place, memory.device, memory.bytes, memory.offset};
  return true;
}

bool MakePoolFile(int device, SharedHold* hold) {
  Gate gate;
  int place = -1;
  const int fd = OpenNew(gate.file(), &place);
  if (fd < 0) return false;
  Add(gate.file(), place,
      {.bytes = 0,
       .owner_bytes = 0,
       .offset = 0,
       .device = device,
       .owner = CachedOwnSlot(),
       .importer = kNoSlot,
       .kind = SharedKind::kPool});
  *hold = {fd, place, device, 0, 0};
  return true;
}

bool HoldPoolFile(int given, SharedHold* hold) {
  Gate gate;
  if (gate.file() == nullptr) return false;
  const int place = PlaceOf(*gate.file(), given, SharedKind::kPool);
  const int fd = place >= 0 ? fcntl(given, F_DUPFD_CLOEXEC, 0) : -1;
  if (fd < 0) return false;
  *hold = {fd, place, gate.file()->shared[place].device, 0, 0};
  return true;
}

void ChangePoolFile(const SharedHold& hold, int64_t owner_bytes, int64_t bytes) {
  Gate gate;
  if (gate.file() == nullptr || hold.place < 0) return;
  SharedMemory& memory = gate.file()->shared[hold.place];
  memory.owner_bytes += static_cast<uint64_t>(owner_bytes);
  memory.bytes += static_cast<uint64_t>(bytes);
}

int OpenDmaBuf() { return OpenBeside(kDmaBufs, O_CREAT); }

bool HoldByDmaBuf(int dma_buf, int place) {
  struct flock lock = HoldOf(place, F_RDLCK);
  return fcntl(dma_buf, F_OFD_SETLK, &lock) == 0;
}

int PinByDmaBuf(int dma_buf, int device, uint64_t bytes) {
  Gate gate;
  if (gate.file() == nullptr || CachedOwnSlot() == kNoSlot) return -1;
  const int place = FreePlace(*gate.file());
  if (place < 0 || !HoldByDmaBuf(dma_buf, place)) return -1;
  Add(gate.file(), place,
      {.bytes = 0,
       .owner_bytes = bytes,
       .offset = 0,
       .device = device,
       .owner = CachedOwnSlot(),
       .importer = kNoSlot,
       .kind = SharedKind::kPinned});
  return place;
}

void LeavePinned(int place) {
  Gate gate;
  if (gate.file() == nullptr) return;
  SharedMemory& memory = gate.file()->shared[place];
  Inherit(&memory);
  ClearIfUnheld(Files(), place, &memory);
}

void LetGo(SharedHold* hold) {
  Gate gate;
  close(hold->fd);
  if (gate.file() != nullptr) {
    SharedMemory& memory = gate.file()->shared[hold->place];
    if (memory.owner == CachedOwnSlot()) {
      Inherit(&memory);
    } else if (memory.importer == CachedOwnSlot()) {
      memory.importer = kNoSlot;
    }
    ClearIfUnheld(Files(), hold->place, &memory);
  }
  *hold = {};
}

}  // namespace sim::machine
