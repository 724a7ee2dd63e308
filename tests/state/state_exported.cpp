// link: state
// One promise a run about memory that open descriptors keep alive, told by locks alone. Files stand
// for the driver's node, whose name ours finds among the process's descriptors, and for dma-bufs.
//
//   state_exported NAME FOLDER
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <string>

#include "state/exported.h"
#include "state/owner.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint32_t kRow = 3;
constexpr uint32_t kOtherRow = 4;
constexpr uint64_t kBytes = 3 * kChunkBytes;
std::string folder;

int OpenIn(const char* name, int mode = O_RDWR) {
  const int fd = open((folder + "/" + name).c_str(), mode | O_CREAT | O_CLOEXEC, 0600);
  CHECK(fd >= 0);
  return fd;
}

int OpenNode() { return OpenIn("nvidiactl-test"); }

// Memory with one exported descriptor.
struct Memory {
  int fd;
  uint64_t place;
};

Memory Export(const RegionFile& file, uint32_t row, int fd, uint64_t bytes = kBytes) {
  Memory memory = {fd, 0};
  CHECK(LockExported(file, row, fd, bytes, &memory.place));
  CHECK(memory.place != 0);
  return memory;
}

uint64_t HeldAlone(const RegionFile& file, uint32_t row) {
  uint64_t bytes = 0;
  CHECK(HeldByDescriptors(file, row, &bytes));
  return bytes;
}

// Another process, which exports and then waits for its end.
class Neighbour {
 public:
  template <typename Body>
  explicit Neighbour(Body body) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_ = InChild([&] {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const uint64_t place = body().place;
      CHECK(write(ends[1], &place, sizeof place) == sizeof place);
      for (;;) pause();
    });
    close(ends[1]);
    CHECK(read(ends[0], &place_, sizeof place_) == sizeof place_);
    close(ends[0]);
  }
  ~Neighbour() {
    kill(pid_, SIGKILL);
    StatusOf(pid_);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  uint64_t place() const { return place_; }

 private:
  pid_t pid_;
  uint64_t place_ = 0;
};

// Whether another process sees any lock of this one from a place on.
bool IsLocked(int fd, off_t from) {
  const pid_t child = InChild([&] {
    struct flock found = LockAt(from, 0, F_WRLCK);
    CHECK(fcntl(fd, F_GETLK, &found) == 0);
    _exit(found.l_type != F_UNLCK);
  });
  return StatusOf(child) != 0;
}

void HeldWhileOpen() {
  const RegionFile file = MustOpen(folder.c_str());
  const Memory memory = Export(file, kRow, OpenNode());
  CHECK_EQ(HeldAlone(file, kRow), 0);  // charged

  EndCharged(file, memory.place);

  CHECK_EQ(HeldAlone(file, kRow), kBytes);
  CHECK(IsHeldByDescriptor(memory.place));
  close(memory.fd);
  CHECK_EQ(HeldAlone(file, kRow), 0);
  CHECK(!IsHeldByDescriptor(memory.place));
}

void RowsApart() {
  const RegionFile file = MustOpen(folder.c_str());

  EndCharged(file, Export(file, kRow, OpenNode()).place);

  CHECK_EQ(HeldAlone(file, kRow), kBytes);
  CHECK_EQ(HeldAlone(file, kOtherRow), 0);
}

void ContainersApart() {
  const RegionFile file = MustOpen(folder.c_str());
  const std::string second = folder + "/second";
  CHECK(mkdir(second.c_str(), 0700) == 0);

  const Neighbour neighbour([&] {
    const RegionFile other = MustOpen(second.c_str());
    const Memory memory = Export(other, kRow, OpenNode());
    EndCharged(other, memory.place);
    return memory;
  });

  CHECK_EQ(HeldAlone(file, kRow), 0);
}

// A region of a process's own memory is nobody else's, though it has no file to be told apart by.
void PrivateRegionsApart() {
  const auto hold = [] {
    RegionFile alone;
    CHECK(OpenPrivateRegion(&alone));
    const Memory memory = Export(alone, kRow, OpenNode());
    CHECK_EQ(HeldAlone(alone, kRow), kBytes);
    return memory;
  };
  RegionFile own;
  CHECK(OpenPrivateRegion(&own));

  const Neighbour neighbour(hold);

  CHECK_EQ(HeldAlone(own, kRow), 0);
}

// Both children count on from where the parent was, as processes might that began alike.
void PlacesApart(bool is_charged) {
  RegionFile file = MustOpen(folder.c_str());
  Export(file, kOtherRow, OpenNode());
  const Neighbour neighbour([&] {
    const RegionFile again = MustOpen(folder.c_str());
    const Memory memory = Export(again, kRow, OpenNode());
    if (is_charged) {
      close(memory.fd);
    } else {
      EndCharged(again, memory.place);
    }
    return memory;
  });

  const Memory memory = Export(file, kRow, OpenNode());

  CHECK(memory.place != neighbour.place());
}

void PlacesApartFromHeld() { PlacesApart(false); }
void PlacesApartFromCharged() { PlacesApart(true); }

// A program closes all that it has, and the numbers lead to files of its own.
void OwnDescriptorClosed() {
  const RegionFile file = MustOpen(folder.c_str());
  const Neighbour neighbour([] { return Export(MustOpen(folder.c_str()), kRow, OpenNode()); });
  const int foreign = OpenIn("foreign");
  CHECK(dup2(foreign, file.fd) == file.fd);

  CHECK_EQ(HeldAlone(file, kRow), 0);  // the neighbour is charged for it
  const Memory memory = Export(file, kRow, OpenNode());

  CHECK(!IsLocked(foreign, 0));
  CHECK_EQ(HeldAlone(file, kRow), kBytes);
  EndCharged(file, memory.place);
}

void NodeClosed() {
  const RegionFile file = MustOpen(folder.c_str());
  EndCharged(file, Export(file, kRow, OpenNode()).place);
  const int foreign = OpenIn("foreign");
  const int kept = OpenNode();
  EndCharged(file, Export(file, kRow, kept).place);
  struct stat node = {};
  CHECK(fstat(kept, &node) == 0);

  // Ours is among these.
  for (int fd = 3; fd < 64; ++fd) {
    if (fd != kept && fd != file.fd && fd != foreign && IsSameFile(fd, node.st_dev, node.st_ino)) {
      CHECK(dup2(foreign, fd) == fd);
    }
  }

  CHECK_EQ(HeldAlone(file, kRow), kBytes);
}

void LengthsInChunks() {
  const RegionFile file = MustOpen(folder.c_str());
  Memory memory = Export(file, kRow, OpenNode(), kChunkBytes + 1);
  EndCharged(file, memory.place);
  CHECK_EQ(HeldAlone(file, kRow), 2 * kChunkBytes);

  CHECK(LockExported(file, kRow, memory.fd, 5 * kChunkBytes, &memory.place));

  CHECK_EQ(HeldAlone(file, kRow), 5 * kChunkBytes);
  uint64_t place = 0;
  CHECK(!LockExported(file, kRow, memory.fd, kChunkBytes << 18, &place));
  CHECK_EQ(place, 0);
}

void NotLockable() {
  const RegionFile file = MustOpen(folder.c_str());
  uint64_t place = 0;

  CHECK(!LockExported(file, kRow, OpenIn("nvidiactl-test", O_WRONLY), kBytes, &place));

  CHECK_EQ(place, 0);
  CHECK(!IsLocked(file.fd, off_t{1} << 62));
}

void StrangersLocks() {
  const RegionFile file = MustOpen(folder.c_str());
  EndCharged(file, Export(file, kRow, OpenNode()).place);
  struct flock all = LockAt(0, 0, F_RDLCK);
  const int stranger = OpenNode();
  CHECK(fcntl(stranger, F_OFD_SETLK, &all) == 0);

  uint64_t bytes = 0;
  CHECK(!HeldByDescriptors(file, kRow, &bytes));
  close(stranger);

  CHECK_EQ(HeldAlone(file, kRow), kBytes);
}

void OfAnotherFile() {
  const RegionFile file = MustOpen(folder.c_str());
  Memory memory = Export(file, kRow, OpenIn("buffer"));
  const int node = OpenNode();
  CHECK_EQ(HeldAlone(file, kRow), 0);
  CHECK(LockExported(file, kRow, node, kBytes, &memory.place));

  EndCharged(file, memory.place);

  CHECK_EQ(HeldAlone(file, kRow), kBytes);
  close(node);
  CHECK_EQ(HeldAlone(file, kRow), kBytes);
  CHECK(IsHeldByDescriptor(memory.place));
  close(memory.fd);
  CHECK_EQ(HeldAlone(file, kRow), 0);
  CHECK(!IsHeldByDescriptor(memory.place));
}

// Then nobody can tell what is charged.
void RegionOutOfReach() {
  const RegionFile file = MustOpen(folder.c_str());
  EndCharged(file, Export(file, kRow, OpenNode()).place);
  CHECK(dup2(OpenIn("foreign"), file.fd) == file.fd);
  CHECK(rename((folder + "/gpufence-test.v" + std::to_string(kRegionVersion)).c_str(),
               (folder + "/elsewhere").c_str()) == 0);

  uint64_t bytes = 0;
  CHECK(!HeldByDescriptors(file, kRow, &bytes));
}

void ListUnreadable() {
  const RegionFile file = MustOpen(folder.c_str());
  const Memory memory = Export(file, kRow, OpenIn("buffer"));
  EndCharged(file, memory.place);
  close(memory.fd);
  const rlimit none = {3, 3};
  CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);

  uint64_t bytes = 0;
  CHECK(IsHeldByDescriptor(memory.place));
  CHECK(!HeldByDescriptors(file, kRow, &bytes));
}

constexpr Case kCases[] = {
    {"held_while_open", HeldWhileOpen},
    {"rows_apart", RowsApart},
    {"containers_apart", ContainersApart},
    {"private_regions_apart", PrivateRegionsApart},
    {"places_apart_from_held", PlacesApartFromHeld},
    {"places_apart_from_charged", PlacesApartFromCharged},
    {"own_descriptor_closed", OwnDescriptorClosed},
    {"node_closed", NodeClosed},
    {"lengths_in_chunks", LengthsInChunks},
    {"not_lockable", NotLockable},
    {"strangers_locks", StrangersLocks},
    {"of_another_file", OfAnotherFile},
    {"region_out_of_reach", RegionOutOfReach},
    {"list_unreadable", ListUnreadable},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[2];
  OpenNode();  // the driver's own
  return RunCase(kCases, argv[1]);
}
