// An event between two processes.
// link: cuda
//
//   time_ipc_event owner     records an event behind work that ends with the first line on stdin,
//                            prints its handle in hex and ends with the second line
//   time_ipc_event HANDLE    opens it, asks, lets a stream wait for it, prints "asked" and, when
//                            the event is there, what it saw
#include "support/time_program.h"

using namespace timing;

namespace {

int Own(const Gpu& gpu) {
  CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  CUstream stream = NewStream();
  CUipcEventHandle handle = {};
  MUST(cuIpcGetEventHandle(&handle, event));
  CUdeviceptr flag = 0;
  MUST(cuMemAllocManaged(&flag, 4, CU_MEM_ATTACH_GLOBAL));
  *reinterpret_cast<volatile cuuint32_t*>(flag) = 0;
  MUST(cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
  MUST(gpu.Spin(stream, kMs));
  MUST(cuEventRecord(event, stream));
  for (unsigned char byte : handle.reserved) printf("%02x", byte);
  printf("\n");
  fflush(stdout);
  char line[16];
  if (fgets(line, sizeof(line), stdin) == nullptr) return 3;
  *reinterpret_cast<volatile cuuint32_t*>(flag) = 1;
  MUST(cuStreamSynchronize(stream));
  return fgets(line, sizeof(line), stdin) != nullptr ? 0 : 3;
}

int Use(const char* text) {
  CUipcEventHandle handle = {};
  for (size_t i = 0; i < sizeof(handle.reserved); ++i) {
    unsigned byte = 0;
    if (sscanf(text + 2 * i, "%2x", &byte) != 1) return 2;
    handle.reserved[i] = static_cast<char>(byte);
  }
  CUevent event = nullptr;
  MUST(cuIpcOpenEventHandle(&event, handle));
  const CUresult before = cuEventQuery(event);
  CUstream stream = NewStream();
  MUST(cuStreamWaitEvent(stream, event, 0));
  const CUresult stream_before = cuStreamQuery(stream);
  printf("asked\n");
  fflush(stdout);
  Facts facts;
  facts.Code("before", before);
  facts.Code("stream before", stream_before);
  MUST(cuStreamSynchronize(stream));
  facts.Code("after", cuEventQuery(event));
  facts.Code("synchronise", cuEventSynchronize(event));
  CUevent plain = NewEvent();
  facts.Code("handle of a plain event", cuIpcGetEventHandle(&handle, plain));
  memset(&handle, 1, sizeof(handle));
  facts.Code("invented handle", cuIpcOpenEventHandle(&event, handle));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Gpu gpu;
  return strcmp(argv[1], "owner") == 0 ? Own(gpu) : Use(argv[1]);
}
