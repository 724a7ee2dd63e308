// Memory files that other processes may map: how one is made, recognised and reached.
//
// Must not know handles or addresses.
#ifndef GPUFENCE_LIB_SIM_CUDA_SHARED_FILE_H_
#define GPUFENCE_LIB_SIM_CUDA_SHARED_FILE_H_

#include <stddef.h>
#include <stdint.h>

namespace sim::shared_file {

// A new file of `bytes` for memory of a logical device (-1 = host); its descriptor, or -1.
int Create(int device, uint64_t bytes);

// Another descriptor of the same file, closed by exec; -1 when there are too many.
int Duplicate(int fd);

// Whether a descriptor is a file of Create, made by any process of this machine; then the machine's
// index of its device (-1 = host) and its size.
bool Identify(int fd, int* physical_device, uint64_t* bytes);

// Whether a descriptor is some process's device memory arena.
bool IsArena(int fd);

// Opens another process's descriptor; -1 when that process or descriptor is gone, or when what is
// open there is not the file with the given inode number.
int OpenForeign(int pid, int fd, uint64_t inode);

uint64_t InodeOf(int fd);

}  // namespace sim::shared_file

#endif  // GPUFENCE_LIB_SIM_CUDA_SHARED_FILE_H_
