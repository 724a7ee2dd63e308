// Unified memory for everything, for PyTorch's pluggable allocator: what oversold memory is
// compared with. Freed memory is kept by size and given out again, as PyTorch's own allocator does.
// HOSTED: it prefers the host, where the device reaches it; otherwise pages move on demand.
#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/types.h>

struct Kept {
  struct Kept* next;
  void* memory;
  size_t bytes;
};

static struct Kept* kept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t Rounded(size_t bytes) {
  const size_t step = bytes < ((size_t)1 << 20) ? 512 : (size_t)2 << 20;
  return (bytes + step - 1) / step * step;
}

static void* Allocate(size_t bytes, int device) {
  CUdeviceptr memory = 0;
  if (cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS) return NULL;
#ifdef HOSTED
  const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
  const CUmemLocation gpu = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  cuMemAdvise(memory, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host);
  cuMemAdvise(memory, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu);
#endif
  (void)device;
  return (void*)memory;
}

void* take_managed(ssize_t size, int device, CUstream stream) {
  (void)stream;
  const size_t bytes = Rounded((size_t)size);
  void* memory = NULL;
  pthread_mutex_lock(&lock);
  for (struct Kept** at = &kept; *at != NULL && memory == NULL; at = &(*at)->next) {
    struct Kept* found = *at;
    if (found->bytes != bytes) continue;
    memory = found->memory;
    *at = found->next;
    free(found);
    break;
  }
  pthread_mutex_unlock(&lock);
  return memory != NULL ? memory : Allocate(bytes, device);
}

void give_managed(void* memory, ssize_t size, int device, CUstream stream) {
  (void)device;
  (void)stream;
  struct Kept* made = malloc(sizeof(*made));
  if (made == NULL) return;
  pthread_mutex_lock(&lock);
  *made = (struct Kept){kept, memory, Rounded((size_t)size)};
  kept = made;
  pthread_mutex_unlock(&lock);
}
