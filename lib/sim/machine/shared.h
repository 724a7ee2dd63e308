// Device memory that no single process owns: it lives as long as anybody holds it, be it by nothing
// but a descriptor, and holds its bytes of the device meanwhile.
//
// Owns the control file beside the machine file, which stands for /dev/nvidiactl: a descriptor of
// it means one memory, and its pages are the memory; or a pool, whose memory is its maker's. Beside
// it lies the file that all dma-bufs are of. Must not know handles or addresses.
#pragma once

#include <stdint.h>

namespace sim::machine {

// One hold on a memory: it ends when the descriptor and all its duplicates are closed, in whatever
// process.
struct SharedHold {
  int fd = -1;  // closed by exec
  int place = -1;
  int device = -1;  // -1: host memory, which costs nothing
  uint64_t bytes = 0;
  uint64_t offset = 0;  // of the memory in the file behind the descriptor
};

// Keeps a descriptor of the control file open, as the driver does from cuInit on.
void OpenControl();

// Makes a memory of `bytes`, which this process has reserved on the device before: from now on they
// are the memory's. False when there are too many memories or descriptors.
bool MakeShared(int device, uint64_t bytes, SharedHold* hold);

// Another hold on the same memory, to be given away.
bool HoldAgain(const SharedHold& held, int* fd);

// What a descriptor from anywhere means, and a hold of this process's on it. False: it is none.
bool HoldForeign(int fd, SharedHold* hold);

// The open file that stands for a pool: all its descriptors are duplicates of one. Bytes that this
// process has reserved are left to the file by the process's end, or now.
bool MakePoolFile(int device, SharedHold* hold);

// The same file by a descriptor from anywhere. False: it is none of a pool.
bool HoldPoolFile(int fd, SharedHold* hold);

// Adds to what the owner's end leaves to the file, and to what the file holds.
void ChangePoolFile(const SharedHold& hold, int64_t owner_bytes, int64_t bytes);

// A new dma-buf, which holds nothing yet; -1: there are too many descriptors.
int OpenDmaBuf();

// What it holds from now on: another hold's memory, or bytes that this process has reserved and
// that are left to the dma-bufs on them by LeavePinned, or by its end. The latter's place, or -1.
bool HoldByDmaBuf(int dma_buf, int place);
int PinByDmaBuf(int dma_buf, int device, uint64_t bytes);
void LeavePinned(int place);

// Lets go of any hold.
void LetGo(SharedHold* hold);

}  // namespace sim::machine
