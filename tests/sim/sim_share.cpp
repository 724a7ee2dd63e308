// link: cuda
// Memory that one process makes and another uses: {codes, bytes seen, what importing cost}.
//
//   sim_share ipc | virtual | pool    the exporter lives on
//   sim_share ipc_dead                the exporter ends before the handle is opened
//   sim_share ipc_freed               the exporter frees the memory before that
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/sim_families.h"

namespace {

using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kBytes = 4 * kMiB;
constexpr uint32_t kExported = 0x600df00d;
constexpr uint32_t kImported = 0x5eed5eed;

// 64 bytes of handle, and for the other two ways a descriptor.
void Send(int socket, const void* ticket, int fd) {
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec data = {const_cast<void*>(ticket), 64};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  if (sendmsg(socket, &message, 0) != 64) exit(1);
}

int Receive(int socket, void* ticket) {
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec data = {ticket, 64};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_WAITALL) != 64) exit(1);
  int fd = -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr) memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return fd;
}

CUdeviceptr MapPhysical(CUmemGenericAllocationHandle physical) {
  CUdeviceptr address = 0;
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  MUST(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
  MUST(cuMemMap(address, kBytes, 0, physical, 0));
  MUST(cuMemSetAccess(address, kBytes, &access, 1));
  return address;
}

CUdeviceptr Export(const char* way, void* ticket, int* fd) {
  CUdeviceptr address = 0;
  if (strcmp(way, "virtual") == 0) {
    CUmemAllocationProp prop = PropOn(CU_MEM_LOCATION_TYPE_DEVICE);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle physical = 0;
    MUST(cuMemCreate(&physical, kBytes, &prop, 0));
    MUST(cuMemExportToShareableHandle(fd, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return MapPhysical(physical);
  }
  if (strcmp(way, "pool") == 0) {
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool = nullptr;
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&address, kBytes, pool, nullptr));
    MUST(cuMemPoolExportToShareableHandle(fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    MUST(cuMemPoolExportPointer(static_cast<CUmemPoolPtrExportData*>(ticket), address));
    return address;
  }
  CUdeviceptr before = 0;
  MUST(cuMemAlloc_v2(&before, 1000));  // so that the exported block does not begin its granule
  MUST(cuMemAlloc_v2(&address, 1000));
  MUST(cuIpcGetMemHandle(static_cast<CUipcMemHandle*>(ticket), address));
  return address;
}

CUresult Import(const char* way, void* ticket, int fd, CUdeviceptr* address) {
  void* os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  if (strcmp(way, "virtual") == 0) {
    CUmemGenericAllocationHandle physical = 0;
    const CUresult rc = cuMemImportFromShareableHandle(&physical, os_handle,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (rc == CUDA_SUCCESS) *address = MapPhysical(physical);
    return rc;
  }
  if (strcmp(way, "pool") == 0) {
    CUmemoryPool pool = nullptr;
    MUST(cuMemPoolImportFromShareableHandle(&pool, os_handle,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return cuMemPoolImportPointer(address, pool, static_cast<CUmemPoolPtrExportData*>(ticket));
  }
  CUipcMemHandle handle;
  memcpy(&handle, ticket, sizeof(handle));
  return cuIpcOpenMemHandle_v2(address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

CUresult Close(const char* way, CUdeviceptr address) {
  if (strcmp(way, "virtual") == 0) return cuMemUnmap(address, kBytes);
  if (strcmp(way, "pool") == 0) return cuMemFreeAsync(address, nullptr);
  return cuIpcCloseMemHandle(address);
}

// The exporter: sends the handle, and afterwards what the importer wrote.
void RunExporter(const char* way, int socket) {
  UseDevice(0);
  char ticket[64] = {};
  int fd = -1;
  const CUdeviceptr address = Export(way, ticket, &fd);
  MUST(cuMemcpyHtoD_v2(address, &kExported, sizeof(kExported)));
  if (strcmp(way, "ipc_freed") == 0) MUST(cuMemFree_v2(address));
  Send(socket, ticket, fd);
  if (strcmp(way, "ipc_dead") == 0) return;
  char go = 0;
  if (read(socket, &go, 1) != 1) exit(1);
  uint32_t back = 0;
  MUST(cuMemcpyDtoH_v2(&back, address, sizeof(back)));
  if (write(socket, &back, sizeof(back)) != sizeof(back)) exit(1);
}

void RunImporter(const char* way, int socket, pid_t exporter) {
  UseDevice(0);
  char ticket[64] = {};
  const int fd = Receive(socket, ticket);
  if (strcmp(way, "ipc_dead") == 0) waitpid(exporter, nullptr, 0);
  const uint64_t before_bytes = UsedBytes();
  CUdeviceptr address = 0;
  Facts facts;
  const CUresult rc = Import(way, ticket, fd, &address);
  facts.Code("import", rc);
  facts.Say("cost", UsedBytes() - before_bytes);
  if (rc != CUDA_SUCCESS) return;
  uint32_t seen = 0;
  MUST(cuMemcpyDtoH_v2(&seen, address, sizeof(seen)));
  facts.Say("seen", seen == kExported);
  MUST(cuMemcpyHtoD_v2(address, &kImported, sizeof(kImported)));
  uint32_t back = 0;
  if (write(socket, "g", 1) != 1 || read(socket, &back, sizeof(back)) != sizeof(back)) exit(1);
  facts.Say("written", back == kImported);
  facts.Code("close", Close(way, address));
  facts.Code("close again", Close(way, address));
}

}  // namespace

int main(int argc, char** argv) {
  int sockets[2];
  if (argc != 2 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 2;
  const pid_t exporter = fork();
  close(sockets[exporter == 0 ? 0 : 1]);  // so that the other's end is seen
  if (exporter == 0) {
    RunExporter(argv[1], sockets[1]);
    return 0;
  }
  RunImporter(argv[1], sockets[0], exporter);
  return 0;
}
